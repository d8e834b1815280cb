# SPDX-License-Identifier: Apache-2.0
"""Hundreds of messages of 100 KiB are many calls; a few, large ones, and those of long tasks are not."""

import pytest
from made_programs import Builder
from raymeter.causes import middling
from raymeter.findings import Finding
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.simulate.graph import build
from raymeter.simulate.predict import simulate

LINE = "/made/train.py:28"
STEPS = Steps("made", [(step, step + 1.0) for step in range(3)], "node-1", 1, LINE)
KIB = 2**10


def make_program(
    count: int = 100,
    size: int = 128 * KIB,
    call: float = 0.0005,
    work: float = 0.0001,
    event: str = "call",
    period: int = 1,
) -> Program:
    builder = Builder()
    for step in range(3):
        for number in range(0, count, period):
            start = step + number * 0.005
            task = f"{step:024x}{number:024x}"
            values = {"object": task} if event == "put" else {"task": task, "name": "Storage.write"}
            sending = builder.call(event, start, call, line=LINE, **values)
            builder.send(sending, start, 0.00002, bytes=size, left_out=period - 1)
            builder.task(task, "Storage.write", start + call, work)
    return builder.program()


def find(**values) -> list[Finding]:
    return middling.find(make_program(**values), STEPS)


@pytest.mark.parametrize("event", ["call", "put"])
def test_many_messages_of_100_kib_are_many_calls(event):
    (finding,) = find(event=event)
    assert finding.cause == "many small calls"
    assert finding.line == LINE
    calls = [saving.seconds for saving in finding.savings if saving.part == "call"]
    assert sum(calls) / 3 == pytest.approx(0.98 * 100 * (0.0005 - 0.00002 - 128 * KIB / 2e9))


def test_messages_that_were_left_out_count():
    (all_of_them,) = find()
    (some,) = find(period=10)
    assert some.seconds == pytest.approx(all_of_them.seconds, rel=0.05)
    assert all(saving.is_spread for saving in some.savings[:-3])


def step_with_batches(period: int) -> float:
    """Return how long a step with a batch in place of 50 puts would take, if one put of so many was written."""
    program = make_program(event="put", period=period)
    (finding,) = middling.find(program, STEPS)
    return simulate(build(program), STEPS, finding)


def test_puts_that_were_left_out_are_taken_from_the_step():
    saved = 1 - step_with_batches(1)
    assert saved > 0.03
    assert 1 - step_with_batches(10) == pytest.approx(saved, rel=0.1)


@pytest.mark.parametrize("values", [
    {"count": 20},
    {"size": 8 * 2**20, "call": 0.005},
    {"size": 900 * KIB},  # the bytes are most of it
    {"work": 0.05},
])  # fmt: skip
def test_few_large_and_long_ones_are_not(values):
    assert not find(**values)
