import os
import signal
import time
from contextlib import contextmanager

import pytest
from common.run.clock import TripTimeout, deadline, run_trips

from common.analysis.statistics import summarise


class Journal:
    """Fakes for run_trips that note who was called, and a clock that only `send` and `receive` move."""

    def __init__(self):
        self.calls = []
        self.now = 100.0

    def make_query(self, number):
        self.calls.append(f"make {number}")
        return number

    def send(self, query):
        self.calls.append(f"send {query}")
        self.now += 2
        return -query

    def receive(self, results):
        self.calls.append(f"receive {results}")
        self.now += 3

    def clock(self):
        self.calls.append("clock")
        return self.now

    @contextmanager
    def limit(self):
        self.calls.append("limit on")
        yield
        self.calls.append("limit off")

    def trips(self, warmup, iterations):
        return run_trips(warmup, iterations, self.make_query, self.send, self.receive, self.limit, self.clock)


def test_the_clock_runs_from_send_to_receive_and_over_nothing_else():
    journal = Journal()
    trips = journal.trips(0, 1)
    next(trips)
    trip = ["make 1", "limit on", "clock", "send 1", "receive -1", "clock", "limit off"]
    assert journal.calls == trip
    next(trips)
    assert journal.calls[len(trip) :] == [call.replace("1", "2") for call in trip]


def test_what_happens_between_two_trips_is_not_timed():
    journal = Journal()
    seconds = []
    for trip in journal.trips(1, 3):
        seconds.append(trip.seconds)
        journal.now += 1000
    assert seconds == [5, 5, 5, 5, 5]


def test_the_first_trip_and_the_warm_up_are_told_from_the_timed_ones():
    trips = list(Journal().trips(2, 3))
    assert [trip.number for trip in trips] == [1, 2, 3, 4, 5, 6]
    assert [trip.kind for trip in trips] == ["first", "warmup", "warmup", "timed", "timed", "timed"]


def test_without_warm_up_timed_trips_follow_the_first():
    assert [trip.kind for trip in Journal().trips(0, 2)] == ["first", "timed", "timed"]


def test_an_error_of_a_trip_reaches_the_caller_and_leaves_the_limit():
    limits = []

    @contextmanager
    def limit():
        try:
            yield
        finally:
            limits.append("off")

    def send(query):
        raise OSError("no route")

    with pytest.raises(OSError, match="no route"):
        next(run_trips(0, 1, lambda number: number, send, print, limit))
    assert limits == ["off"]


@pytest.fixture
def alarm_handler():
    """A handler of somebody else's, which a deadline must put back."""

    def handler(*_):
        raise AssertionError("an alarm went off after its deadline was over")

    previous = signal.signal(signal.SIGALRM, handler)
    yield handler
    signal.signal(signal.SIGALRM, previous)


def alarm_is_off():
    return signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_block_that_takes_too_long_is_a_trip_timeout(alarm_handler):
    with pytest.raises(TripTimeout, match=r"within 0\.05 s .*--timeout"), deadline(0.05):
        time.sleep(30)
    assert signal.getsignal(signal.SIGALRM) is alarm_handler
    assert alarm_is_off()


def test_a_block_in_time_leaves_no_alarm_behind(alarm_handler):
    with deadline(60):
        assert not alarm_is_off()
    assert signal.getsignal(signal.SIGALRM) is alarm_handler
    assert alarm_is_off()


def test_a_genuine_interrupt_is_not_taken_for_a_timeout(alarm_handler):
    """As Ctrl-C gives it, whatever the runner of these tests did with the signal."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), deadline(60):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(30)
    finally:
        signal.signal(signal.SIGINT, previous)
    assert signal.getsignal(signal.SIGALRM) is alarm_handler
    assert alarm_is_off()


def test_an_error_inside_a_deadline_passes_unchanged(alarm_handler):
    with pytest.raises(ZeroDivisionError), deadline(60):
        1 / 0  # noqa: B018
    assert alarm_is_off()


def test_summary_of_the_samples():
    summary = summarise([4.0, 1.0, 2.0, 3.0, 10.0])
    assert (summary.count, summary.min, summary.median, summary.max) == (5, 1, 3, 10)
    assert summary.p95 == pytest.approx(8.8)
    assert summary.variation == pytest.approx((50 / 5) ** 0.5 / 4)


def test_summary_of_one_sample_does_not_vary():
    assert summarise([0.25]).variation == 0
    assert summarise([0.25]).p95 == 0.25


def test_no_sample_has_no_summary():
    with pytest.raises(ValueError, match="no timed trip"):
        summarise([])
