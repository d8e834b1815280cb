# SPDX-License-Identifier: Apache-2.0
"""Of many large messages, those that were written stand for those that were left out."""

import pytest
from made_programs import MIB, Builder
from raymeter.causes import calls
from raymeter.causes.savings import save_reading, save_sending, total
from raymeter.causes.spilling import save_full_store
from raymeter.profile.events import LeftOut
from raymeter.profile.groups import group_messages
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.simulate.without_data import without_data

COUNT = 100


def make_puts(period: int) -> Program:
    """Return a driver that puts 100 values, of which one of so many is written, and reads them."""
    builder = Builder()
    for number in range(0, COUNT, period):
        start = 1 + number / 100
        left_out = period - 1 if number else 0
        call = builder.call("put", start, 0.004, line="/made/a.py:1", object=f"{number}")
        builder.send(call, start + 0.001, 0.002, bytes=MIB, left_out=left_out)
        builder.receive(start + 0.005, 0.001, "", object=f"{number}", left_out=left_out)
    cost = builder.recording.processes[0].recorder
    for kind in ("sent", "received"):
        cost.last_left_out.append(LeftOut(kind, type="dict", count=period - 1))
    builder.call("wait", 1 + COUNT / 100, 0.0, line="/made/a.py:9")
    return builder.program()


@pytest.mark.parametrize("period", [1, 5])
def test_count_and_work_are_those_of_all_messages(period: int) -> None:
    program = make_puts(period)
    (group,) = group_messages(program.messages)
    assert group.count == COUNT
    assert group.seconds() == pytest.approx(COUNT * 0.005)
    savings = []
    for message in program.messages:
        savings += save_sending(program, message) + save_reading(message)
    assert total(savings) == pytest.approx(COUNT * 0.0048)


STEPS = 5
STEP_SECONDS = 0.302
LINE = "/made/a.py:1"


def make_loop(send_period: int, read_period: int) -> Program:
    """Return a driver that puts 40 values per step, which a task reads; of them, one of so many is written.

    A value that was left out has no call. A put takes 4 ms of 5, reading all of them 40 ms of the 100 of the task.
    """
    builder = Builder()
    process = builder.process_of("Trainer.train")
    for step in range(STEPS):
        begin = 1 + STEP_SECONDS * step
        task = f"{step:048x}"
        for number in range(40):
            start = begin + number / 200
            name = f"{step:028x}{number:028x}"
            if number % send_period == 0:
                call = builder.call("put", start, 0.004, line=LINE, object=name)
                builder.send(call, start + 0.001, 0.002, bytes=MIB, left_out=send_period - 1)
            if number % read_period == 0:
                read_at = begin + 0.201 + number / 1000
                builder.receive(
                    read_at, 0.001, "Trainer.train", object=name, by=task, left_out=read_period - 1
                )
        builder.call(
            "call", begin + 0.2, 0.001, task=task, name="Trainer.train", line="/made/a.py:8"
        )
        builder.task(task, "Trainer.train", begin + 0.201, 0.1, actor="a")
        made = builder.recording.tasks[-1]
        made.deserialise = (begin + 0.201, begin + 0.241)
        made.execute = (begin + 0.241, begin + 0.291)
        waiting = STEP_SECONDS - 0.2011
        builder.call(
            "get",
            begin + 0.2011,
            waiting,
            objects=[f"{task}01000000"],
            count=1,
            line="/made/a.py:9",
        )
    builder.recording.received.sort(key=lambda received: received.start)
    for known in builder.recording.processes:
        left_out = send_period > 1 if known.role == "driver" else read_period > 1
        known.recorder.left_out_messages = 100 * left_out
    assert process == "node-Trainer-0"
    return builder.program()


@pytest.mark.parametrize(("send_period", "read_period"), [(5, 5), (8, 4), (1, 5), (5, 1)])
def test_a_step_without_messages_is_as_short_as_if_all_were_written(
    send_period: int, read_period: int
) -> None:
    starts = [1 + STEP_SECONDS * step for step in range(STEPS)]
    times = [(start, start + STEP_SECONDS) for start in starts]
    steps = Steps("a pass", times, "node-1", 1, LINE)
    whole = without_data(make_loop(1, 1), steps)
    some = without_data(make_loop(send_period, read_period), steps)
    assert not whole.is_upper_limit and not some.is_upper_limit
    assert whole.saved_seconds == pytest.approx(40 * (0.0038 + 0.001), rel=0.1)
    assert some.saved_seconds == pytest.approx(whole.saved_seconds, rel=0.1)


@pytest.mark.parametrize("left_out", [0, 1])
def test_slow_calls_without_their_messages_are_no_small_calls(left_out: int) -> None:
    builder = Builder()
    for number in range(200):
        start = 1 + number / 100
        builder.call(
            "put", start, 0.004, line="/made/a.py:1", object=f"{number}", left_out_messages=left_out
        )
    steps = Steps("all", [(1.0, 3.0)], "node-1", 1, "/made/a.py:1")
    assert bool(calls.find(builder.program(), steps)) == (not left_out)


@pytest.mark.parametrize(("left_out", "weight"), [(5, 10), (0, 5)])
def test_readers_of_known_messages_stand_for_those_of_messages_that_were_left_out(
    left_out: int, weight: int
) -> None:
    builder = Builder()
    for number in range(10):
        start = 1 + number / 100
        if number % 2 == 0:
            call = builder.call("put", start, 0.004, object=f"{number}")
            builder.send(call, start, 0.002)
        builder.receive(start + 0.005, 0.001, "Trainer.train", object=f"{number}")
    builder.recording.processes[0].recorder.left_out_messages = left_out
    program = builder.program()
    weights = [received.weight for message in program.messages for received in message.received]
    assert sum(weights) == pytest.approx(weight)
    if left_out:
        in_all = sum(received.weight for received in program.recording.received)
        assert in_all == pytest.approx(10)


def test_a_slow_call_has_waited_for_room_although_its_message_was_left_out() -> None:
    builder = Builder()
    for number in range(10):
        call = builder.call("put", 1 + number / 10, 0.005, line=LINE, object=f"{number}")
        builder.send(call, 1 + number / 10, 0.002, left_out=4)
    builder.call("put", 3.0, 2.0, line=LINE, object="last", left_out_messages=1)
    steps = Steps("all", [(1.0, 5.0)], "node-1", 1, LINE)
    (saving,) = save_full_store(builder.program(), steps)
    assert saving.seconds == pytest.approx(2.0 - 0.005)


def test_results_that_were_left_out_have_waited_for_room_too() -> None:
    builder = Builder()
    process = builder.process_of("Server.get")
    for number in range(10):
        task = f"{number:048x}"
        start = 1 + number / 10
        seconds = 0.05 if number == 5 else 0.01
        builder.task(task, "Server.get", start, 0.01)
        builder.recording.tasks[-1].store = (start + 0.009, start + 0.009 + seconds)
        builder.send(
            None, start + 0.01, 0.001, by=task, by_name="Server.get", process=process, left_out=4
        )
    steps = Steps("all", [(1.0, 3.0)], "node-1", 1, LINE)
    (saving,) = save_full_store(builder.program(), steps)
    assert saving.is_spread
    assert saving.seconds == pytest.approx(5 * 0.04)
