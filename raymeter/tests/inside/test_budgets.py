# SPDX-License-Identifier: Apache-2.0
"""Measurements that are not needed for each message have budgets of their own, and slow messages are measured once."""

import json
import time

import numpy as np
import pytest
from raymeter.inside import by_class, calls, identity, recorder, tasks


@pytest.fixture
def made_recorder(tmp_path, monkeypatch):
    made = recorder.Recorder(tmp_path, 1, [])
    monkeypatch.setattr(calls, "recorder", made)
    monkeypatch.setattr(calls, "measured_kinds", {})
    yield made
    made.close()


def read_events(folder) -> list[str]:
    [path] = folder.glob("*.jsonl")
    return path.read_text().splitlines()


def test_a_driver_writes_what_waits_although_nothing_follows(made_recorder, tmp_path):
    made_recorder.start_flushing()
    made_recorder.write({"event": "get"})
    end = time.monotonic() + 20
    while time.monotonic() < end and '{"event":"get"}' not in read_events(tmp_path):
        time.sleep(0.05)
    events = read_events(tmp_path)
    assert '{"event":"get"}' in events and '"has_ended":false' in events[-1]
    made_recorder.end()
    assert '"has_ended":true' in read_events(tmp_path)[-1]


def test_a_worker_writes_what_waits_when_it_is_idle_and_not_while_it_is_busy(
    made_recorder, tmp_path, monkeypatch
):
    monkeypatch.setattr(recorder.ray_internals, "is_worker", lambda: True)
    monkeypatch.setattr(recorder, "IDLE_SECONDS", 0.4)
    monkeypatch.setattr(recorder, "FLUSH_SECONDS", 1e9)  # no call writes them
    monkeypatch.setattr(calls, "recorder", None)
    monkeypatch.setattr(calls, "WRAPPERS", {})
    monkeypatch.setattr(calls, "Recorder", lambda *_: made_recorder)
    monkeypatch.setattr(calls.os, "register_at_fork", lambda **_: None)
    monkeypatch.setenv("RAYMETER_FOLDER", str(tmp_path))
    monkeypatch.setenv("RAYMETER_MIN_BYTES", "1")
    calls.install()
    end = time.monotonic() + 1.2
    while time.monotonic() < end:
        made_recorder.write({"event": "get"})
        time.sleep(0.01)
    assert '{"event":"get"}' not in read_events(tmp_path)
    end = time.monotonic() + 20
    while time.monotonic() < end and '{"event":"get"}' not in read_events(tmp_path):
        time.sleep(0.05)
    assert '{"event":"get"}' in read_events(tmp_path)


def test_after_a_line_that_was_not_written_recording_ends(made_recorder):
    made_recorder.has_failed = True
    with pytest.raises(OSError):
        made_recorder.flush()


def measure(value, seconds: float) -> dict:
    event = {"bytes": 2**20, "seconds": seconds}
    calls.add_alternatives(event, "kind", value)
    return event.get("alternatives", {})


def test_the_check_of_repeats_takes_no_time_from_alternatives(made_recorder):
    made_recorder.spend_extra("repeats", 100.0)
    assert not made_recorder.has_time("repeats")
    assert made_recorder.has_time("alternatives")


def test_a_slow_message_is_measured_once_although_the_budget_is_spent(made_recorder, monkeypatch):
    monkeypatch.setattr(calls, "MAX_FIRST_SECONDS", 100.0)  # also on a busy machine
    monkeypatch.setattr(calls, "FIRST_SECONDS", 100.0)
    monkeypatch.setattr(calls, "FIRST_PASSES", 1e6)
    made_recorder.spend_extra("alternatives", 100.0)
    labels = {f"user {number}": f"label {number}" for number in range(20_000)}
    assert "columns" in measure({"x": np.arange(10), "labels": labels}, seconds=0.0)
    made_recorder.spend_extra("alternatives", 100.0)
    calls.measured_kinds["kind"].pop("columns")
    assert not measure({"x": np.arange(10)}, seconds=1.0)


def test_the_first_messages_of_all_kinds_have_one_limit(made_recorder, monkeypatch):
    measured = []

    def measure_as_long_as_allowed(value, event, known, has_time):
        measured.append(value)
        while has_time():
            time.sleep(0.001)
        return {"as it is": {"serialise": 0.1}}

    monkeypatch.setattr(calls.alternatives, "measure", measure_as_long_as_allowed)
    monkeypatch.setattr(calls, "MAX_FIRST_SECONDS", 0.1)
    monkeypatch.setattr(calls, "ALL_FIRST_SECONDS", 0.25)
    made_recorder.spend_extra("alternatives", 100.0)
    for kind in range(20):
        calls.add_alternatives({"seconds": 1.0}, kind, kind)
    assert 0 < len(measured) <= 3  # fewer on a busy machine
    made_recorder.extra_seconds["alternatives"] = -0.05
    calls.add_alternatives({"seconds": 1.0}, 19, 19)
    assert measured[-1] == 19  # the budget has time again


def test_a_fast_message_is_measured_when_there_is_time_again(made_recorder):
    made_recorder.spend_extra("alternatives", 100.0)
    calls.measured_kinds["kind"] = {"as it is": {"serialise": 0.1}}
    assert not measure({"x": list(range(5_000))}, seconds=0.0)
    made_recorder.extra_seconds["alternatives"] = 0.0
    measured = measure({"x": list(range(5_000))}, seconds=0.0)
    assert measured["arrays of numbers"]


@pytest.mark.parametrize(("count", "is_sampled"), [(20, False), (200, True)])
def test_only_many_calls_are_sampled(made_recorder, count, is_sampled):
    made_recorder.window_start = time.time() - 1
    for _ in range(count - 1):
        made_recorder.window_calls += 1
    made_recorder.spend_on_small_call(0.5, time.time())
    assert (made_recorder.period > 1) == is_sampled


@pytest.mark.parametrize("spend", ["spend_on_small_call", "spend_on_counted_call"])
def test_over_the_budget_only_longer_calls_are_written_in_any_case(made_recorder, spend):
    """Both kinds of calls are judged alike: those that are written, and those that are only counted."""
    before = made_recorder.always_seconds
    made_recorder.window_start = time.time() - 1
    made_recorder.window_calls = 200
    made_recorder.window_own_seconds = 0.5
    outer = (None,) if spend == "spend_on_counted_call" else ()
    getattr(made_recorder, spend)(*outer, 1e-5, time.time())
    assert made_recorder.period == 2
    assert made_recorder.always_seconds == 2 * before


def test_a_counted_call_inside_of_another_one_is_no_time_of_that(made_recorder):
    outer = made_recorder.enter()
    before = made_recorder.own_seconds
    made_recorder.spend_on_counted_call(outer, 2e-5, time.time())
    assert outer.own_seconds == 2e-5
    assert made_recorder.own_seconds == before + 2e-5
    interruption = 0.25
    made_recorder.spend_on_counted_call(outer, interruption, time.time())
    assert made_recorder.own_seconds < before + 1e-3


def add_content(monkeypatch, buffer: bytes) -> dict:
    monkeypatch.setattr(calls.parts, "buffers", [buffer])
    event = {}
    calls.add_content(event, {"data": None})
    return event


def test_a_first_repeat_is_compared_although_large_messages_have_spent_the_budget(
    made_recorder, monkeypatch
):
    monkeypatch.setattr(calls, "contents", {})
    monkeypatch.setattr(calls, "compared_contents", set())
    first, second = b"a" * 10_000, b"b" * 10_000
    assert "is_same" not in add_content(monkeypatch, first)
    add_content(monkeypatch, second)
    made_recorder.spend_extra("repeats", 100.0)
    assert add_content(monkeypatch, first)["is_same"]
    assert "is_same" not in add_content(monkeypatch, second)


def test_a_written_call_says_how_many_were_left_out_before_it(made_recorder, monkeypatch):
    monkeypatch.setattr(calls.ray_internals, "current_task", lambda: "")
    monkeypatch.setattr(calls.ray_internals, "current_name", lambda: "")
    monkeypatch.setattr(recorder, "RARE_SECONDS", 100.0)
    made_recorder.always_seconds = 100.0  # also on a busy machine
    made_recorder.window_start = time.time() + 1_000  # the period stays
    put = calls.in_scope(calls.record_put)(lambda: b"object")
    made_recorder.period = 8
    for _ in range(40):
        put()
    written = [event for event in made_recorder.lines if event["event"] == "put"]
    assert [event.get("left_out", 0) for event in written] == [0, 6, 7, 7, 7, 7]


def test_the_tasks_are_written_however_many_events_there_were(made_recorder, tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "MAX_EVENTS", 2)
    for _ in range(5):
        made_recorder.write({"event": "get"})
    own_seconds = made_recorder.own_seconds
    made_recorder.write_tasks([{"event": "task"}] * 3)
    events = read_events(tmp_path)
    assert events.count('{"event":"task"}') == 3
    assert made_recorder.left_out_events == 4  # the first one is the process
    assert made_recorder.own_seconds == own_seconds


class Event:
    """What Ray knows of a task."""

    def __init__(self, time):
        self.job_id = b"job"
        self.state_updates = type("Updates", (), {"state_ts_ns": {1: time, 2: time + 1}})


def test_of_many_tasks_those_in_the_middle_are_kept(monkeypatch):
    monkeypatch.setattr(tasks, "MAX_TASKS", 4)
    monkeypatch.setattr(tasks, "describe_task", lambda event: event.state_updates.state_ts_ns[1])
    job = type("Job", (), {"binary": lambda _: b"job"})()
    worker = type("Worker", (), {"current_job_id": job})
    monkeypatch.setattr(tasks.ray_internals, "worker", worker)
    monkeypatch.setattr(
        tasks.ray_internals, "task_events", lambda: [Event(t) for t in (5, 3, 9, 1, 7, 2, 8, 4)]
    )
    assert tasks.read_tasks() == ([3, 4, 5, 7], 4)


class Result:
    """What Ray's serialisation returns of a large message."""

    contained_object_refs = ()
    total_bytes = 200_000


@pytest.fixture
def put(made_recorder, monkeypatch):
    """Return ray.put of a large message."""
    for name in ("current_task", "current_name", "current_node"):
        monkeypatch.setattr(calls.ray_internals, name, lambda: "")
    monkeypatch.setattr(calls, "add_description", lambda event, value, called: None)
    monkeypatch.setattr(recorder, "MESSAGE_WINDOW_SECONDS", 1e9)
    for module in (calls, recorder):
        monkeypatch.setattr(module, "ALWAYS_SECONDS", 100.0)  # also on a busy machine
    serialise = calls.make_serialise_wrapper(lambda context, value: Result())

    def put_object():
        serialise(None, {"x": 1})
        return b"object"

    return calls.in_scope(calls.record_put)(put_object)


def test_messages_over_the_budget_are_left_out_with_their_calls(made_recorder, put):
    for budget in [1.0] + [0.0] * 7 + [1.0]:
        made_recorder.message_seconds = budget
        put()
    for kind in ("sent", "put"):
        written = [event for event in made_recorder.lines if event["event"] == kind]
        assert [event.get("left_out", 0) for event in written] == [0, 7]
    assert made_recorder.message_seconds < 1.0


def test_the_end_says_how_many_messages_were_left_out_after_the_last_one(
    made_recorder, put, tmp_path
):
    for budget in (1.0, 0.0, 0.0, 0.0):
        made_recorder.message_seconds = budget
        put()
    made_recorder.close()
    end = json.loads(read_events(tmp_path)[-1])
    left_out = {"line": "", "by_name": "", "type": "dict", "kind": "sent", "count": 3}
    assert end["last_left_out"][0].pop("seconds") > 0.0
    assert end["last_left_out"] == [left_out]


def test_a_slow_message_over_the_budget_is_written_in_short(made_recorder, put, monkeypatch):
    made_recorder.message_seconds = 1.0
    put()
    monkeypatch.setattr(recorder, "LEFT_OUT_SECONDS", 0.0)
    monkeypatch.setattr(recorder, "DESCRIBED_FIRST", 1)
    made_recorder.message_seconds = 0.0
    put()
    written = [event for event in made_recorder.lines if event["event"] == "put"]
    assert [event.get("left_out_messages", 0) for event in written] == [0, 0]
    assert [len(event["messages"]) for event in written] == [1, 1]
    sent = [event for event in made_recorder.lines if event["event"] == "sent"]
    assert [event.get("is_short", False) for event in sent] == [False, True]
    assert sent[1]["seconds"] > 0.0
    assert "fields" not in sent[1]


def test_each_new_actor_is_written(made_recorder, put, monkeypatch):
    monkeypatch.setattr(recorder, "RARE_SECONDS", 100.0)
    made_recorder.period = 1_000

    def record(event, scope, *values):
        event["event"], event["kind"] = "call", "actor"
        calls.write_call(event, "Actor.__init__", scope)

    monkeypatch.setattr(calls, "record_actor", record)
    create = calls.in_scope(record)(lambda: None)
    for _ in range(5):
        create()
    assert sum(event["event"] == "call" for event in made_recorder.lines) == 5


def test_all_messages_within_the_budget_are_written(made_recorder, put):
    made_recorder.message_seconds = 100.0  # also on a busy machine
    for _ in range(20):
        put()
    assert sum(event["event"] == "sent" for event in made_recorder.lines) == 20


def test_the_budget_grows_at_the_same_times_in_all_processes(made_recorder, monkeypatch):
    monkeypatch.setattr(recorder.time, "process_time", lambda: made_recorder.cpu_seconds + 0.1)
    made_recorder.message_seconds = 0.0
    window = recorder.MESSAGE_WINDOW_SECONDS
    made_recorder.message_window = 1_000
    assert not made_recorder.has_message_time(1_000.9 * window)
    assert made_recorder.has_message_time(1_001.0 * window)


def test_the_budget_is_a_share_of_the_cpu_time_and_not_of_a_pause(made_recorder, monkeypatch):
    used = made_recorder.cpu_seconds
    monkeypatch.setattr(recorder.time, "process_time", lambda: used)
    made_recorder.message_seconds = -0.5
    made_recorder.message_window = 1_000
    window = recorder.MESSAGE_WINDOW_SECONDS
    assert not made_recorder.has_message_time(9_000 * window)
    assert made_recorder.message_seconds == -0.5
    used += 10.0
    made_recorder.has_message_time(9_001 * window)
    assert made_recorder.message_seconds == pytest.approx(10.0 * recorder.MESSAGE_SHARE - 0.5)
    used += 1_000.0
    assert made_recorder.has_message_time(9_002 * window)
    assert made_recorder.message_seconds == pytest.approx(recorder.MAX_MESSAGE_SECONDS)


@pytest.mark.parametrize(("own_seconds", "is_left_out"), [(0.001, False), (0.03, True)])
def test_a_slow_message_is_written_over_the_budget_if_this_takes_little_of_its_time(
    made_recorder, own_seconds, is_left_out, monkeypatch
):
    monkeypatch.setattr(recorder, "DESCRIBED_FIRST", 1)
    begin = time.time()
    assert not made_recorder.leaves_out_message("kind", 1.0, begin)
    made_recorder.write_message("kind", {"event": "sent", "start": begin, "seconds": 1.0})
    made_recorder.spend_on_message("kind", own_seconds)
    made_recorder.message_seconds = -1e9
    assert made_recorder.leaves_out_message("kind", 1.0, begin + 1.01) == is_left_out


def test_the_first_slow_messages_of_a_kind_are_described(made_recorder):
    """In the third one, other ways to send it are measured."""
    made_recorder.message_seconds = -1e9
    at = time.time()
    described = []
    for number in range(5):
        described.append(made_recorder.describes_message("kind", 0.1, at + 0.1 * number))
        event = {"event": "sent", "start": at + 0.1 * (number - 1), "seconds": 0.1}
        made_recorder.write_message("kind", event)
        made_recorder.message_counters["kind"].own_seconds = 0.09
    assert described == [True, True, True, False, False]


def test_a_message_is_described_once_per_window_however_many_are_short(made_recorder, monkeypatch):
    """Short ones make no debt, and do not count as the last one that was described."""
    monkeypatch.setattr(recorder, "MESSAGE_SHARE", 0.0)
    made_recorder.message_seconds = 0.0
    at = time.time()
    described = 0
    for number in range(100):
        end = at + 0.1 * number
        is_short = made_recorder.writes_short_message("kind", 0.05, end)
        event = {"event": "sent", "start": end - 0.05, "seconds": 0.05, "is_short": is_short}
        made_recorder.write_message("kind", event)
        if is_short:
            made_recorder.spend_on_short_message(0.001)
        else:
            made_recorder.message_counters["kind"].own_seconds = 0.02
            described += 1
    assert made_recorder.message_seconds > -0.001
    assert 10 <= described <= 14  # in ten seconds, and the first ones


def test_the_call_of_a_message_takes_from_the_budget_of_messages(made_recorder, put):
    made_recorder.message_seconds = 1.0
    message_alone = []
    spend = made_recorder.spend_on_message

    def spend_and_note(key, seconds):
        spend(key, seconds)
        message_alone.append(made_recorder.message_seconds)

    made_recorder.spend_on_message = spend_and_note
    put()
    assert made_recorder.message_seconds < message_alone[0] - recorder.WRITING_SECONDS
    assert made_recorder.window_own_seconds == 0.0


@pytest.mark.parametrize(("period", "seconds", "is_written"), [
    (1, 0.0015, True), (2, 0.0015, False), (2, 0.0025, True), (256, 0.0035, False), (256, 0.0045, True),
])  # fmt: skip
def test_of_slow_calls_fewer_are_written_over_the_budget(
    made_recorder, period, seconds, is_written
):
    made_recorder.period = period
    made_recorder.window_own_seconds = recorder.MAX_SHARE / 2  # so the period stays
    made_recorder.judge_window(made_recorder.window_start + 1.0)
    counter = recorder.LineCounter()
    counter.last = time.time() + 1_000  # none is rare
    scope = made_recorder.enter()
    made_recorder.leave(scope)
    assert made_recorder.is_written(counter, scope, seconds) == is_written
    assert counter.count == 1


def test_what_was_counted_and_not_timed_is_part_of_the_cost(made_recorder, monkeypatch):
    made_recorder.own_seconds = 1.0
    made_recorder.entry_seconds, made_recorder.next_number = 0.5, 4
    made_recorder.reading_seconds, made_recorder.readings = 0.25, 8
    cost = made_recorder.describe_itself()
    assert cost["own_seconds"] == 1.0 + 2.0 + 2.0
    used = made_recorder.cpu_at_start + 7.0
    monkeypatch.setattr(recorder.time, "process_time", lambda: used)
    assert made_recorder.describe_itself()["cpu_seconds"] == pytest.approx(7.0)


def test_the_cost_is_cpu_time_and_the_call_takes_longer_by_the_clock(made_recorder):
    """A recorder that waits for a core takes nothing from other programs, and the call waits, too."""
    waiting = calls.ending_recording(lambda: time.sleep(0.2))
    outer = made_recorder.enter()
    waiting()
    assert outer.own_seconds >= 0.2
    assert made_recorder.own_seconds < 0.1


def test_writing_lines_in_a_call_counts_once(made_recorder):
    flush = calls.ending_recording(made_recorder.flush)
    made_recorder.lines.append({"items": [0.5] * 100_000})
    begin = time.thread_time()
    flush()
    passed = time.thread_time() - begin
    assert 0.0 < made_recorder.own_seconds <= passed


def test_writing_lines_in_the_thread_counts(made_recorder, tmp_path):
    made_recorder.lines.append({"event": "get"})
    made_recorder.start_flushing()
    end = time.monotonic() + 20
    while time.monotonic() < end and '{"event":"get"}' not in read_events(tmp_path):
        time.sleep(0.05)
    made_recorder.end()
    assert made_recorder.own_seconds > 0.0


def test_a_pause_while_an_entry_or_a_reading_is_measured_is_not_counted(made_recorder, monkeypatch):
    """Else one pause would be counted for each call, and for each message."""
    enter, readings = made_recorder.enter, calls.readings

    def enter_late():
        time.sleep(0.002)
        return enter()

    def read_late():
        time.sleep(0.002)
        return readings()

    monkeypatch.setattr(made_recorder, "enter", enter_late)
    monkeypatch.setattr(calls, "readings", read_late)
    assert made_recorder.measure_entry() < 0.002
    assert calls.measure_reading() < 0.002


def test_each_call_and_each_reading_is_counted(made_recorder, put):
    made_recorder.message_seconds = 100.0
    assert made_recorder.entry_seconds > 0.0
    assert calls.measure_reading() > 0.0
    for _ in range(3):
        put()
    assert made_recorder.readings == 6
    assert made_recorder.next_number == 6  # calls, and their messages


@pytest.mark.parametrize("moment", [1, 2, 3, 4, 5, 6])
def test_a_program_goes_on_if_another_thread_ends_recording_at_any_time(
    made_recorder, put, monkeypatch, moment
):
    put()
    made_recorder.message_seconds = -1e9
    made_recorder.period = 64
    left = [moment]
    read_time = time.time

    def end_and_read_time():
        left[0] -= 1
        if left[0] == 0:
            calls.recorder = False
        return read_time()

    monkeypatch.setattr(calls.time, "time", end_and_read_time)
    assert put() == b"object"
    assert put() == b"object"


def test_time_in_which_another_program_runs_is_not_taken_from_the_budget_of_messages(
    made_recorder, put, monkeypatch
):
    def wait(event, value, called):
        time.sleep(0.05)

    monkeypatch.setattr(calls, "add_description", wait)
    made_recorder.message_seconds = 1.0
    put()
    assert made_recorder.message_seconds > 0.96


class Counted:
    """A function that counts its calls."""

    def __init__(self, function):
        self.function = function
        self.count = 0

    def __call__(self, *arguments):
        self.count += 1
        return self.function(*arguments)


def count_calls(monkeypatch, module, name) -> Counted:
    counted = Counted(getattr(module, name))
    monkeypatch.setattr(module, name, counted)
    return counted


@pytest.mark.parametrize(("is_driver", "searches"), [(True, 1), (False, 10)])
def test_a_message_that_is_left_out_costs_no_readings_and_one_search_for_its_line_or_none(
    made_recorder, put, monkeypatch, is_driver, searches
):
    """In a driver, a message is left out like the last one of the same call. In a worker, the task may be another."""

    def put_often(count):
        for _ in range(count):
            put()

    monkeypatch.setattr(calls, "slow_kinds", by_class.ByClass())
    made_recorder.is_driver = is_driver
    made_recorder.message_seconds = 1.0
    put_often(1)
    readings = count_calls(monkeypatch, calls, "readings")
    lines = count_calls(monkeypatch, calls.place, "known_frame")
    made_recorder.message_seconds = -1e9
    put_often(10)
    assert made_recorder.left_out_messages == 10
    assert readings.count == 0
    assert lines.count == searches
    made_recorder.message_seconds = 1.0
    put()
    assert readings.count == 2
    *_, last = written(made_recorder, "sent")
    assert last["left_out"] == 10


def put_over_the_budget(made_recorder, put, monkeypatch, between):
    """Leave out four messages of one call over the budget, call `between`, and send another one."""
    monkeypatch.setattr(calls, "slow_kinds", by_class.ByClass())
    for number in range(6):
        made_recorder.message_seconds = -1e9 if number else 1.0
        if number == 5:
            between()
        put()


def test_the_first_message_of_a_call_after_a_whole_window_is_written(
    made_recorder, put, monkeypatch
):
    def wait():
        for counter in made_recorder.message_counters.values():
            counter.last -= 2 * recorder.MESSAGE_WINDOW_SECONDS

    put_over_the_budget(made_recorder, put, monkeypatch, wait)
    assert [event.get("left_out", 0) for event in written(made_recorder, "sent")] == [0, 4]


def test_a_slow_message_of_a_known_call_is_not_left_out_like_the_others(
    made_recorder, put, monkeypatch
):
    judged = count_calls(monkeypatch, calls, "note_speed")

    def be_slow():
        judged.count = 0
        monkeypatch.setattr(recorder, "ALWAYS_SECONDS", 0.0)

    put_over_the_budget(made_recorder, put, monkeypatch, be_slow)
    assert judged.count == 1


def test_an_error_while_a_message_is_left_out_ends_recording_and_not_the_program(
    made_recorder, put, monkeypatch, capsys
):
    def fail():
        def raise_error(*_):
            raise ValueError("an unknown frame")

        monkeypatch.setattr(calls.place, "key_of_call", raise_error)

    put_over_the_budget(made_recorder, put, monkeypatch, fail)
    assert calls.recorder is False
    assert "recording ended" in capsys.readouterr().err


def test_messages_that_a_task_reads_over_the_budget_are_left_out_by_what_is_known_of_it(
    made_recorder, monkeypatch, put
):
    monkeypatch.setattr(calls.place, "running_line", lambda name: "")
    monkeypatch.setattr(calls, "slow_kinds", by_class.ByClass())
    judged = count_calls(monkeypatch, calls, "note_speed")
    read = calls.make_deserialise_wrapper(lambda *_: {"x": 1})
    for budget in [1.0] + [-1e9] * 5 + [1.0]:
        made_recorder.message_seconds = budget
        read(None, b"large" * 100, b"", Reference())
    assert judged.count == 2
    assert [event.get("left_out", 0) for event in written(made_recorder, "received")] == [0, 5]


def test_a_message_of_a_slow_type_has_readings_although_it_is_over_the_budget(
    made_recorder, put, monkeypatch
):
    monkeypatch.setattr(calls, "slow_kinds", by_class.ByClass())
    made_recorder.message_seconds = -1e9
    put()
    readings = count_calls(monkeypatch, calls, "readings")
    calls.note_speed(dict, 2 * calls.ALWAYS_SECONDS)
    put()
    assert readings.count == 2  # before it and after it; it was fast
    put()
    assert readings.count == 2


class Reference:
    """A reference to an object in the store."""

    def hex(self):
        return "f" * 56

    def task_id(self):
        return self

    def is_nil(self):
        return False


def test_messages_that_are_read_over_the_budget_are_left_out(made_recorder, monkeypatch, put):
    monkeypatch.setattr(calls.place, "running_line", lambda name: "")
    read = calls.make_deserialise_wrapper(lambda *_: {"x": 1})
    for budget in [1.0] + [0.0] * 5 + [1.0]:
        made_recorder.message_seconds = budget
        assert read(None, b"large" * 100, b"", Reference()) == {"x": 1}
    written = [event for event in made_recorder.lines if event["event"] == "received"]
    assert [event.get("left_out", 0) for event in written] == [0, 5]


def test_the_tasks_are_written_although_the_cluster_is_not_known(
    made_recorder, tmp_path, monkeypatch
):
    class Sampler:
        def stop(self):
            pass

    def fail():
        raise RuntimeError("another version of Ray")

    monkeypatch.setattr(calls, "memory_sampler", Sampler())
    monkeypatch.setattr(tasks, "wait_for_reports", lambda is_own_cluster: None)
    monkeypatch.setattr(tasks, "read_tasks", lambda: ([{"event": "task"}], 0))
    monkeypatch.setattr(tasks, "describe_cluster", fail)
    calls.write_tasks()
    assert '{"event":"task"}' in read_events(tmp_path)
    assert '"has_ended":true' in read_events(tmp_path)[-1]


@pytest.mark.parametrize("has_failed", [True, False])
def test_no_value_is_kept_after_an_error(made_recorder, monkeypatch, has_failed):
    def serialise(context, value):
        calls.parts.buffers = [value]
        if has_failed:
            raise TypeError("it has no pickle")
        return Result()

    def fail(*values):
        raise OSError("the disk is full")

    monkeypatch.setattr(made_recorder, "leaves_out_message", fail)
    for name in ("current_task", "current_name", "current_node"):
        monkeypatch.setattr(calls.ray_internals, name, lambda: "")
    wrapped = calls.make_serialise_wrapper(serialise)
    if has_failed:
        with pytest.raises(TypeError):
            wrapped(None, b"value")
    else:
        wrapped(None, b"value")
    assert bool(calls.recorder) == has_failed
    assert not calls.parts.buffers


@pytest.fixture
def only_short(made_recorder, put, monkeypatch):
    """Let the recorder write each message in short."""

    def describes_message(key, seconds, end):
        made_recorder.message_counters.setdefault(key, recorder.LineCounter())
        return False

    monkeypatch.setattr(recorder, "LEFT_OUT_SECONDS", 0.0)
    monkeypatch.setattr(made_recorder, "describes_message", describes_message)


def written(made_recorder, kind: str) -> list[dict]:
    return [event for event in made_recorder.lines if event["event"] == kind]


def serialise_array(context, value):
    calls.parts.buffers = [memoryview(value["x"]).cast("B")]
    return Result()


def test_a_short_message_has_its_content_and_few_arrays(made_recorder, only_short):
    """A process that passes it on is found by their addresses, and a repeat by its content."""
    serialise = calls.make_serialise_wrapper(serialise_array)
    array = np.arange(100_000.0)
    other = np.arange(1.0, 100_001.0)
    for value in (array, array, other):
        serialise(None, {"x": value})
    sent = written(made_recorder, "sent")
    assert [event["is_short"] for event in sent] == [True] * 3
    leaves = [[value.ctypes.data, value.nbytes] for value in (array, array, other)]
    assert [event["leaves"] for event in sent] == [[leaf] for leaf in leaves]
    contents = [event["content"] for event in sent]
    tokens = [event["token"] for event in sent]
    assert contents[0] == contents[1] != contents[2]
    assert tokens[0] == tokens[1] != tokens[2]
    assert not calls.parts.buffers


def test_a_short_message_that_was_read_has_its_few_arrays(made_recorder, only_short, monkeypatch):
    monkeypatch.setattr(calls.place, "running_line", lambda name: "")
    array = np.arange(100_000.0)
    many = [1] * (2 * identity.FEW_PARTS) + [array]
    for value in ({"x": array}, many):
        read = calls.make_deserialise_wrapper(lambda *_, made=value: made)
        read(None, b"large" * 100, b"", Reference())
    received = written(made_recorder, "received")
    assert [event["is_short"] for event in received] == [True, True]
    assert [event["leaves"] for event in received] == [[[array.ctypes.data, array.nbytes]], []]


def test_the_call_of_a_short_message_makes_no_debt(made_recorder, put, only_short):
    made_recorder.message_seconds = 0.0
    put()
    assert len(written(made_recorder, "put")) == 1
    assert made_recorder.message_seconds == 0.0


def test_few_parts_of_a_message_are_looked_at_however_deep_they_are(monkeypatch):
    looked_at = []
    children = identity.children

    def watch(part, most):
        items = children(part, most)
        looked_at.append(len(items))
        return items

    monkeypatch.setattr(identity, "children", watch)
    rows = [[[(1,)] * 1_000 for _ in range(17)] for _ in range(60)]
    for value in ({"rows": [{"id": number} for number in range(20_000)]}, rows):
        looked_at.clear()
        identity.find_leaves(value, identity.FEW_PARTS)
        assert sum(looked_at) == identity.FEW_PARTS
        looked_at.clear()
        identity.find_leaves(value)
        assert sum(looked_at) == identity.MAX_LOOKED_AT


def test_outer_arrays_are_found_beside_deep_lists():
    array = np.arange(100_000.0)
    deep = [[number] for number in range(10_000)]
    for value in ({"a": array, "deep": deep}, {"deep": deep, "a": array}):
        assert identity.find_leaves(value, identity.FEW_PARTS) == [
            [array.ctypes.data, array.nbytes]
        ]


def test_results_that_ray_stores_outside_of_tasks_have_no_position(made_recorder):
    outside = "f" * 40 + "01000000"
    assert [made_recorder.position_of_result(outside) for _ in range(3)] == [0, 0, 0]


def test_the_results_of_a_task_have_their_positions_also_if_they_are_left_out(made_recorder):
    tasks = ["a", "a", "a", "b", "a"]
    positions = [made_recorder.position_of_result(task) for task in tasks]
    assert positions == [1, 2, 3, 1, 1]
