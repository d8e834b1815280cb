# SPDX-License-Identifier: Apache-2.0
"""Generators that make items faster than their reader takes them."""

import made_up
import pytest
from made_up import MB
from raymeter.causes import memory
from raymeter.findings import Finding
from raymeter.memory.lives import find_lives
from raymeter.memory.streams import Streams
from raymeter.profile.events import Call
from raymeter.profile.reader import Recording
from raymeter.profile.steps import Steps

WHOLE = Steps("the program", [(0.0, 10.0)])
LOOP = Steps("a loop", [(float(start), start + 1.0) for start in range(10)], line="train.py:8")
ITEMS = 100
STORE = 1_000 * MB


def stream(read_each: float, size: int = 2 * MB, items: int = ITEMS) -> Recording:
    """Return a generator that makes an item each 20 ms, and is read at another rate."""
    made = made_up.recording()
    for number in range(items):
        made_at = 0.1 + 0.02 * number
        read_at = max(made_at + 0.001, 0.1 + read_each * number)
        made_up.add_item(made, number, made_at, read_at, size)
    return made


def find(made: Recording, capacity: int = STORE, steps: Steps = WHOLE) -> list[Finding]:
    return memory.find_memory(made_up.with_store(made, capacity), steps, [])


def test_a_generator_that_is_far_ahead_is_said_although_the_store_has_room() -> None:
    # After 2 s, 100 items are made and 40 are taken: 60 wait, 12 % of the store. It is 60 MB more each second.
    [finding] = find(stream(read_each=0.05))
    assert (finding.cause, finding.line) == (memory.AHEAD, "train.py:7")
    assert finding.title == (
        "stream is 60 items ahead of its reader: 114 MiB wait in a store of 954 MiB, and 57.2 MiB more each second"
    )
    assert "_generator_backpressure_num_objects" in finding.change


def test_a_lead_that_grows_is_said_although_it_is_a_small_part_of_the_store() -> None:
    [finding] = find(stream(read_each=0.05), capacity=6_000 * MB)
    assert "60 items ahead" in finding.title and "more each second" in finding.title


@pytest.mark.parametrize(
    ("read_each", "size", "capacity"),
    [
        (0.02, 20 * MB, STORE),  # as fast as they are made
        (0.022, 2 * MB, STORE),  # a little slower: few wait
        (0.05, MB // 5, STORE),  # few bytes
        (0.05, 2 * MB, 60_000 * MB),  # in a very large store
    ],
)
def test_a_lead_that_does_not_matter_is_not_said(
    read_each: float, size: int, capacity: int
) -> None:
    assert find(stream(read_each, size), capacity) == []


def test_a_lead_that_is_large_at_once_does_not_grow() -> None:
    made = made_up.recording()
    for number in range(ITEMS):
        # 60 items are made at once, and the others when the reader has taken one.
        made_at = 0.01 if number < 60 else 0.1 * (number - 59)
        made_up.add_item(made, number, made_at, 0.05 + 0.1 * number, 2 * MB)
    [finding] = find(made)
    assert finding.title.endswith(
        "60 items ahead of its reader: 114 MiB wait in a store of 954 MiB"
    )


def test_items_that_nobody_reads_wait_with_the_others() -> None:
    made = stream(read_each=0.05)
    made.received = made.received[:40]
    [finding] = find(made)
    assert finding.title.startswith("stream is 59 items ahead of its reader")
    made.received = []
    assert find(made) == []


def test_items_that_are_taken_and_read_later_are_not_in_the_lead() -> None:
    made = stream(read_each=0.05)
    for number in range(ITEMS):
        taken = Call("next", made_up.DRIVER, number, 0.11 + 0.02 * number, 0.001, line="train.py:8")
        taken.objects = [made.received[number].object]
        made.calls.append(taken)
    assert find(made) == []


def test_an_item_whose_taking_is_not_recorded_was_taken_before_the_next_one() -> None:
    made = stream(read_each=0.05)
    takings = [call for call in made.calls if call.event == "next"]
    made.calls = [call for call in made.calls if call.event != "next"]
    assert find(made) == []  # the reader may hold all of them, as with `async for`
    for number in range(4, ITEMS, 5):
        takings[number].start = 0.11 + 0.02 * number  # as soon as it is made
        made.calls.append(takings[number])
    assert find(made) == []


def test_a_generator_whose_end_is_awaited_first_may_not_wait_for_its_reader() -> None:
    made = made_up.recording()
    for number in range(ITEMS):
        made_up.add_item(made, number, 0.1 + 0.02 * number, 5.0 + 0.01 * number, 2 * MB)
    assert find(made) == []
    for number in range(ITEMS):
        made.received[number].start -= 3.0  # read as they are made, a few behind
    for call in made.calls:
        if call.event == "next":
            call.start -= 3.0
    assert find(made) != []


def test_results_of_many_tasks_may_wait_as_long_as_they_leave_room() -> None:
    made = made_up.recording()
    for number in range(ITEMS):
        made_up.add_result(made, number, 0.02 * number, 0.05 * number + 0.1, 2 * MB)
    assert find(made) == []


def test_few_items_of_a_step_may_wait_until_its_end() -> None:
    made = stream(read_each=0.1, size=20 * MB, items=20)
    assert find(made, steps=LOOP) != []  # 2 items per step, of which 16 wait
    per_step = Steps("a loop", [(0.0, 1.0), (1.0, 2.0)], line="train.py:8")
    assert find(made, steps=per_step) == []  # 10 items per step: 16 are not more than three steps


def test_a_program_without_generators_has_no_lead() -> None:
    made = made_up.recording()
    made_up.add_result(made, 0, 1.0, 2.0, 2 * MB)
    program = made_up.with_store(made, STORE)
    assert Streams(program).find_lead(find_lives(program)).peak.lives == []
