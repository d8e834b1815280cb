# SPDX-License-Identifier: Apache-2.0
"""Loops that sleep between two calls of ray.wait: when they are named, and what they would save."""

import os
from pathlib import Path

import pytest
from made_programs import Builder
from raymeter.causes import polls
from raymeter.profile.program import Program
from raymeter.profile.sleeps import find_sleep
from raymeter.profile.steps import Steps
from raymeter.simulate.predict import predict

STEPS = 4
TASK_SECONDS = 0.03
SLEEP_SECONDS = 0.1
POLLS = """
while pending:
    ready, pending = ray.wait(pending, timeout=0)
    if not ready:
        time.sleep(0.1)
"""
WAITS = """
while pending:
    ready, pending = ray.wait(pending, timeout=0.1)
    train_a_little()
"""
OF_UNKNOWN_LENGTH = POLLS.replace("0.1", "self.interval")
LIMITED_RATE = """
while pending:
    time.sleep(0.1)
    ready, pending = ray.wait(pending)
"""
AFTER_ERRORS = """
while pending:
    ready, pending = ray.wait(pending, timeout=0.1)
    try:
        send(ready)
    except ConnectionError:
        time.sleep(0.1)
"""
ASYNC = """
async def collect(pending):
    while pending:
        ready, pending = ray.wait(pending, timeout=0)
        await asyncio.sleep(0.1)
"""


def write_source(folder: Path, text: str) -> str:
    """Write a program that is older than the recording of one; return the line of its ray.wait."""
    path = folder / "program.py"
    path.write_text(text)
    os.utime(path, (0, 0))
    lines = text.splitlines()
    number = next(number for number, line in enumerate(lines, 1) if "ray.wait" in line)
    return f"{path}:{number}"


def make_polls(line: str) -> Program:
    """Return a driver that asks for a result right after it has submitted the task, and 100 ms later."""
    builder = Builder()
    for step in range(STEPS):
        name = f"{step:048x}"
        begin = step * 0.11
        builder.call("call", begin, 0.001, kind="task", task=name, name="work", line="/made/a.py:1")
        builder.task(name, "work", begin + 0.002, TASK_SECONDS)
        builder.call("wait", begin + 0.002, 0.001, objects=[], count=1, ready=0, line=line)
        asked = begin + 0.003 + SLEEP_SECONDS
        objects = [f"{name}01000000"]
        builder.call("wait", asked, 0.001, objects=objects, count=1, ready=1, line=line)
    return builder.program()


def make_steps(program: Program) -> Steps:
    starts = [call.start for call in program.recording.calls if call.event == "call"]
    times = [(start, start + 0.105) for start in starts]
    return Steps("a pass", times, "node-1", 1, "/made/a.py:1")


def test_a_loop_that_sleeps_while_a_result_is_ready_would_save_the_rest_of_the_sleep(tmp_path):
    line = write_source(tmp_path, POLLS)
    program = make_polls(line)
    steps = make_steps(program)
    (finding,) = polls.find(program, steps)
    assert finding.cause == polls.CAUSE
    assert finding.line == f"{tmp_path}/program.py:5"
    assert finding.other_lines == [line]
    (advice,) = predict(program, steps, [finding])
    assert not advice.finding.is_limit
    # The task ends 32 ms after the begin of a step, which takes 104 ms.
    assert advice.prediction.saved_seconds == pytest.approx(0.071, abs=0.003)


def test_a_sleep_of_unknown_length_gives_an_upper_limit(tmp_path):
    program = make_polls(write_source(tmp_path, OF_UNKNOWN_LENGTH))
    (finding,) = polls.find(program, make_steps(program))
    assert finding.is_limit
    assert finding.price == polls.UNKNOWN


def test_a_loop_that_works_between_two_waits_is_not_named(tmp_path):
    program = make_polls(write_source(tmp_path, WAITS))
    assert not polls.find(program, make_steps(program))


@pytest.mark.parametrize("text", [LIMITED_RATE, AFTER_ERRORS])
def test_a_sleep_with_another_reason_is_not_named(tmp_path, text):
    program = make_polls(write_source(tmp_path, text))
    assert not polls.find(program, make_steps(program))


def test_time_that_is_shorter_than_the_sleep_is_no_sleep(tmp_path):
    program = make_polls(write_source(tmp_path, POLLS.replace("0.1", "5.0")))
    assert not polls.find(program, make_steps(program))


def test_an_awaited_sleep_is_known_as_one(tmp_path):
    sleep = find_sleep(write_source(tmp_path, ASYNC), 1.0)
    assert sleep is not None
    assert sleep.is_awaited
    assert sleep.seconds == SLEEP_SECONDS
    change = polls.describe_change(sleep)
    assert "asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)" in change
    assert (
        "asyncio.ensure_future(ref)" in change
    )  # asyncio.wait takes no references since Python 3.11
