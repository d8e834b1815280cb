# SPDX-License-Identifier: Apache-2.0
"""Small calls whose answers are awaited one by one: a call that stands for others counts with its whole answer."""

import pytest
from made_programs import Builder
from raymeter.causes import calls
from raymeter.profile.steps import Steps

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
    work = [saving.seconds for saving in finding.savings if saving.part == "work"]
    return sum(work) / STEPS


def test_a_call_that_stands_for_others_saves_its_whole_answer_without_the_function():
    share = 1 - 1 / 25
    each = CALL_SECONDS + GET_SECONDS - RUNNING_SECONDS
    assert find_saving() == pytest.approx(share * CALLS * each, rel=0.02)


@pytest.mark.parametrize("values", [{"between": 0.01}, {"weight": 1.0}])
def test_a_later_get_and_calls_that_were_all_written_save_what_comes_after_the_result(values, monkeypatch):
    monkeypatch.setattr(calls, "MIN_CALLS", WRITTEN)
    assert find_saving(**values) < 0.8 * values.get("weight", CALLS / WRITTEN) * WRITTEN * GET_SECONDS
