"""Of many large messages, those that were written stand for those that were left out."""

import pytest
from made_programs import MIB, Builder
from raymeter.causes import calls
from raymeter.causes.savings import save_reading, save_sending, total
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
    builder.call("wait", 1 + COUNT / 100, 0.0, line="/made/a.py:9")
    return builder.program()


@pytest.mark.parametrize("period", [1, 5])
def test_count_and_work_are_those_of_all_messages(period: int) -> None:
    program = make_puts(period)
    (group,) = group_messages(program.messages)
    assert group.count == pytest.approx(COUNT, abs=period)
    assert group.seconds() == pytest.approx(COUNT * 0.005, rel=0.06)
    savings = []
    for message in program.messages:
        savings += save_sending(program, message) + save_reading(message)
    assert total(savings) == pytest.approx(COUNT * 0.0048, rel=0.06)


def test_a_step_without_messages_is_as_short_as_if_all_were_written() -> None:
    steps = Steps("all", [(1.0, 1.0 + COUNT / 100)], "node-1", 1, "/made/a.py:1")
    whole = without_data(make_puts(1), steps)
    sampled = without_data(make_puts(5), steps)
    assert whole.saved_seconds > 0.3
    assert sampled.saved_seconds == pytest.approx(whole.saved_seconds, rel=0.2)


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
