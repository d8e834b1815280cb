"""The order in which trips run, what their clock covers, and what is checked when."""

from types import SimpleNamespace

import pytest
import torch

import torch_simulate_chat_learn_data_flow as script
from common.machine.ceiling import Ceiling
from common.payload.participant import Participant
from common.run.trips import episodes, measure, run_episode
from common.runtime.process_crew import ProcessCrew
from common.trace.board import ENDING, Board

KILOBYTES = ("--batch-size", "4", "--prompt-seq-len", "256")
EVERYBODY = ("driver", "policy", "reference", "reward")


class Journal:
    """Fakes that note who was called, and a clock that only submit, collect and receive move."""

    def __init__(self):
        self.calls, self.now = [], 100.0

    def note(self, what, value, seconds):
        self.calls.append(f"{what} {value}")
        self.now += seconds
        return value

    def trips(self, numbers, in_flight):
        def ways(what, seconds):
            return lambda value: self.note(what, value, seconds)

        def clock():
            self.calls.append("clock")
            return self.now

        found = (ways("make", 1000), ways("submit", 2), ways("collect", 3), ways("receive", 4))
        return run_episode(numbers, in_flight, *found, clock)


def test_one_at_a_time_the_clock_runs_from_submit_to_receive_and_over_nothing_else():
    journal = Journal()
    seconds = [end - start for _, start, end in journal.trips([7, 8], 1)]
    trip = ["make 7", "clock", "submit 7", "collect 7", "receive 7", "clock"]
    assert journal.calls == trip + [call.replace("7", "8") for call in trip]
    assert seconds == [9, 9]


def test_three_in_flight_are_collected_in_order_and_each_makes_room_for_the_next():
    journal = Journal()
    trips = list(journal.trips(range(1, 6), 3))
    order = [call for call in journal.calls if not call.startswith(("clock", "make"))]
    assert order == [
        "submit 1", "submit 2", "submit 3", "collect 1", "receive 1", "submit 4", "collect 2", "receive 2", "submit 5",
        "collect 3", "receive 3", "collect 4", "receive 4", "collect 5", "receive 5",
    ]  # fmt: skip
    assert [number for number, _, _ in trips] == [1, 2, 3, 4, 5]
    assert trips[0][2] - trips[0][1] == 3 * 2 + 2 * 1000 + 3 + 4  # two others were made and submitted meanwhile
    assert trips[-1][2] - trips[-1][1] == 2 + 3 * (3 + 4)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 9])
def test_never_more_than_three_are_open_and_each_is_closed(count):
    journal, numbers = Journal(), range(1, 1 + count)
    assert [trip[0] for trip in journal.trips(numbers, 3)] == list(numbers)
    under_way, most = 0, 0
    for call in journal.calls:
        under_way += call.startswith("submit") - call.startswith("receive")
        most = max(most, under_way)
    assert (under_way, most) == (0, min(3, count))


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        (("--warmup", "1", "--iterations", "3"), [[1], [2], [3], [4], [5]]),
        (("--warmup", "0", "--iterations", "2"), [[1], [2], [3]]),
        (("--warmup", "1", "--iterations", "5", "--episode", "2"), [[1], [2], [3, 4], [5, 6], [7]]),
        (("--warmup", "3", "--iterations", "5", "--in-flight", "2"), [[1], [2, 3], [4], [5, 6], [7, 8], [9]]),
        (("--warmup", "2", "--iterations", "2", "--episode", "100"), [[1], [2], [3], [4, 5]]),
    ],
)
def test_checks_come_after_the_first_trip_in_the_warm_up_and_after_every_episode(make_plan, flags, found):
    plan = make_plan("store", "--transport", "refs", *flags, *KILOBYTES)
    assert [list(numbers) for numbers in episodes(plan)] == found


@pytest.fixture
def measured(make_plan, monkeypatch, tmp_path):
    """measured(*flags, spoil=...) -> what a run reports whose actors live in this process, and what was verified."""
    verified = {name: [] for name in EVERYBODY}
    verify = Participant.verify

    def noted(self, first, last):
        verified[self.name].append((first, last))
        return verify(self, first, last)

    def run(*flags, spoil=lambda number, result: None):
        threads = ("--threads", str(torch.get_num_threads()))
        plan = make_plan("torch", "--transport", "memcpy", *threads, *flags, *KILOBYTES, folder=tmp_path)
        board = Board.create(tmp_path, plan.participants, plan.trips)
        known = {}
        with monkeypatch.context() as patch:
            patch.setattr(Participant, "verify", noted)
            crew = ProcessCrew(plan)
            wiring = script.by_memcpy(crew)

            def collect(results):
                spoil(board.progress[1], results[0])
                return results

            measure(
                plan,
                crew,
                SimpleNamespace(submit=wiring.submit, collect=collect, check=dict, facts=dict, spans=dict),
                lambda **new: known.update(new),
            )
        assert board.phase == ENDING
        assert all(board.trip(number)[1] > 0 for number in range(1, 1 + plan.trips))
        assert board.numbers() == dict.fromkeys(EVERYBODY, plan.trips)
        seconds = [end - start for start, end in map(board.trip, range(1, 1 + plan.trips))]
        return SimpleNamespace(known=known, verified=verified, seconds=seconds)

    return run


def test_what_was_right_is_reported_as_such(measured):
    done = measured("--warmup", "1", "--iterations", "3", "--episode", "2")
    assert done.verified == {name: [(1, 1), (2, 2), (3, 4), (5, 5)] for name in EVERYBODY}
    assert (done.known["status"], done.known["reason"], done.known["payload_copied"]) == ("ok", None, True)
    assert "wrong_bytes" not in done.known
    (shared,) = done.known["processes"]  # one process, whose memory counts once
    assert shared == "+".join(("policy", "reference", "reward", "driver"))
    assert done.known["processes"][shared]["harness_seconds"] > 0


@pytest.mark.parametrize(("trip", "wrong"), [(1, 1), (2, 1), (3, 0), (4, 1), (5, 0), (6, 1), (7, 1)])
def test_a_wrong_byte_is_seen_in_the_last_trip_of_an_episode_and_in_every_trip_without(measured, trip, wrong):
    def spoil(number, result):
        if number == trip:
            result.view(torch.uint8)[-1] ^= 1

    done = measured("--warmup", "1", "--iterations", "5", "--episode", "2", spoil=spoil)
    assert done.known.get("wrong_bytes", 0) == wrong
    assert done.known["status"] == ("failed" if wrong else "ok")


@pytest.mark.parametrize("trip", range(3, 8))
def test_a_stale_stamp_is_seen_wherever_in_an_episode_it_is(measured, trip):
    def spoil(number, result):
        if number == trip:
            result[0] -= 1

    done = measured("--warmup", "1", "--iterations", "5", "--episode", "5", spoil=spoil)
    assert done.known["status"] == "failed"
    assert done.known["wrong_bytes"] >= 1
    assert list(done.known["wrong_bytes_by_field"]) == ["reward -> driver"]


@pytest.mark.parametrize("what", ["flip", "stale"])
def test_a_fault_of_a_task_is_seen_by_all_who_read_it(measured, what):
    done = measured("--warmup", "1", "--iterations", "3", "--inject", f"policy:5:{what}")
    assert done.known["status"] == "failed"
    assert "most of them in policy -> re" in done.known["reason"]
    assert set(done.known["wrong_bytes_by_field"]) == {"policy -> reference", "policy -> reward"}


def test_a_delay_makes_each_trip_from_its_own_on_longer_and_nothing_wrong(measured):
    done = measured("--warmup", "1", "--iterations", "4", "--inject", "policy:5:delay=100ms")
    assert done.known["status"] == "ok"
    assert [seconds > 0.1 for seconds in done.seconds] == [False, False, False, False, True, True]


def test_a_task_that_raises_ends_the_trips(measured):
    with pytest.raises(OSError, match="no luck today"):
        measured("--inject", "reference:2:raise")


def test_nothing_is_wrapped_and_nothing_noted_without_the_flag(measured):
    done = measured("--warmup", "0", "--iterations", "1")
    assert not {"spans", "trips_us"} & set(done.known)
    assert not hasattr(Participant.emit, "__wrapped__")
    assert not hasattr(torch.Tensor.copy_, "__wrapped__")


def test_the_ceiling_copies_every_edge_once_a_pass(make_plan):
    usual = torch.get_num_threads()
    ceiling = Ceiling(make_plan("store", *KILOBYTES))
    assert [source.nbytes for source, _ in ceiling.pairs] == [8192, 24576, 24576, 16384, 40960]
    assert not any(destination.any() for _, destination in ceiling.pairs)
    samples = ceiling.measure(passes=4)
    assert len(samples) == 4
    assert min(samples) > 0
    assert all(torch.equal(source, destination) for source, destination in ceiling.pairs)
    assert torch.get_num_threads() == usual
