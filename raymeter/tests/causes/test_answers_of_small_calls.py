# SPDX-License-Identifier: Apache-2.0
"""Small calls whose answers are awaited one by one: a call that stands for others counts with its whole answer."""

import pytest
from made_programs import Builder
from raymeter.causes import calls
from raymeter.profile.events import Call
from raymeter.profile.steps import Steps
from raymeter.simulate.predict import SPREAD

STEPS = 4
CALLS = 200  # per step
WRITTEN = 2  # of them
CALL_SECONDS = 0.0005
GET_SECONDS = 0.002
RUNNING_SECONDS = 0.0008  # of the function
LINE = "/made/worker.py:34"


def make_program(between: float = 0.0, weight: float = CALLS / WRITTEN):
    """Return a worker that waits for the answer of each of 200 small calls per step, of which two were written."""
    builder = Builder()
    for step in range(STEPS):
        for number in range(WRITTEN):
            begin = step + 0.25 * number
            task = f"{step:024x}{number:024x}"
            call = builder.call(
                "call", begin, CALL_SECONDS, kind="method", task=task, name="Bar.update", actor="a", line=LINE,
            )  # fmt: skip
            call.weight = weight
            start = begin + CALL_SECONDS + between
            get = builder.call(
                "get", start, GET_SECONDS, objects=[f"{task}01000000"], count=1, line=LINE
            )
            get.weight = weight
            builder.task(task, "Bar.update", begin + 0.0006, RUNNING_SECONDS / 0.8, actor="a")
    return builder.program()


def find_saving(**values) -> float:
    """Return the seconds per step of the savings in the calling process."""
    program = make_program(**values)
    times = [(float(step), step + 0.6) for step in range(STEPS)]
    (finding,) = calls.find(program, Steps("a pass", times, "node-1", 1, ""))
    work = [saving.seconds for saving in finding.savings if saving.part in SPREAD]
    return sum(work) / STEPS


def test_a_call_that_stands_for_others_saves_its_whole_answer_without_the_function():
    share = 1 - 1 / calls.BATCH
    each = CALL_SECONDS + GET_SECONDS - RUNNING_SECONDS
    assert find_saving() == pytest.approx(share * CALLS * each, rel=0.02)


def test_calls_that_were_all_written_save_only_what_comes_after_the_result(monkeypatch):
    monkeypatch.setattr(calls, "MIN_CALLS", WRITTEN)
    each = CALL_SECONDS + GET_SECONDS - RUNNING_SECONDS
    assert find_saving(weight=1.0) < 0.6 * WRITTEN * each


@pytest.mark.parametrize(("values", "expected"), [
    ({"start": 1.0011}, True), ({"start": 1.02}, False), ({"start": 1.0011, "thread": 2}, False),
    ({"start": 1.0011, "by": "b"}, False), ({"start": 0.9}, False),
])  # fmt: skip
def test_an_answer_is_awaited_at_once_in_the_same_thread_of_the_same_task(values, expected):
    call = Call(event="call", process="p", thread=1, by="a", start=1.0, seconds=0.001)
    get = Call(**{"event": "get", "process": "p", "thread": 1, "by": "a"} | values)
    assert calls.follows_at_once(call, get) is expected
