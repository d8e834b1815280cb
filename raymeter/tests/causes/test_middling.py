"""Hundreds of messages of 100 KiB are many calls; a few, large ones, and those of long tasks are not."""

import pytest
from made_programs import Builder
from raymeter.causes import middling
from raymeter.profile.steps import Steps

LINE = "/made/train.py:28"
STEPS = Steps("made", [(step, step + 1.0) for step in range(3)], "node-1", 1, LINE)
KIB = 2**10


def find(
    count: int = 100,
    size: int = 128 * KIB,
    call: float = 0.0005,
    work: float = 0.0001,
    event: str = "call",
    period: int = 1,
):
    builder = Builder()
    for step in range(3):
        for number in range(0, count, period):
            start = step + number * 0.005
            task = f"{step:024x}{number:024x}"
            values = {"object": task} if event == "put" else {"task": task, "name": "Storage.write"}
            sending = builder.call(event, start, call, line=LINE, **values)
            builder.send(sending, start, 0.00002, bytes=size, left_out=period - 1)
            builder.task(task, "Storage.write", start + call, work)
    return middling.find(builder.program(), STEPS)


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


@pytest.mark.parametrize("values", [
    {"count": 20},
    {"size": 8 * 2**20, "call": 0.005},
    {"size": 900 * KIB},  # the bytes are most of it
    {"work": 0.05},
])  # fmt: skip
def test_few_large_and_long_ones_are_not(values):
    assert not find(**values)
