# SPDX-License-Identifier: Apache-2.0
"""The same content is found in other messages, in parts of them and in other processes, and nothing else is."""

import pytest
from made_programs import MIB, Builder, make_loop
from raymeter.causes import repeated
from raymeter.causes.savings import total
from raymeter.profile.events import Received
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.units import format_times

LINE = "/made/train.py:28"
STEPS = Steps("made", [(step, step + 1.0) for step in range(4)], "node-1", 1, LINE)


def make_puts(contents: list[dict], places: list[str] | None = None, event: str = "put") -> Program:
    """Return a program that sends a message in each step, with these values."""
    builder = Builder()
    for step, values in enumerate(contents):
        place = places[step] if places else ""
        call = builder.call(
            event,
            step + 0.1,
            0.05,
            place=place,
            line=LINE,
            object=f"{step:056x}",
            task=f"{step:048x}",
        )
        builder.send(call, step + 0.1, 0.04, **values)
    return builder.program()


def find(program: Program):
    return repeated.find(program, STEPS)


def test_equal_contents_are_found_if_all_bytes_were_compared():
    contents = [{"content": 7}, {"content": 7, "is_same": True}, {"content": 7}, {"content": 8}]
    (finding,) = find(make_puts(contents))
    assert len(finding.messages) == 2
    assert finding.line == LINE


def test_content_that_is_equal_by_chance_in_one_of_many_steps_is_not_advised_to_be_kept():
    contents = [{"content": 7}, {"content": 7, "is_same": True}, {"content": 8}, {"content": 9}]
    assert not find(make_puts(contents))


@pytest.mark.parametrize("has_parts", [False, True])
def test_repeats_do_not_stand_for_left_out_messages_that_are_none(has_parts):
    # Each second message is a repeat, and all that were left out come after those.
    sames = [None, True, None, True, None, True, None, True]
    contents = []
    for number, same in enumerate(sames):
        left_out = 9 if same is None and number else 0
        content = 7 if same or not number else 100 + number
        values = {"content": content, "is_same": same}
        if has_parts:
            values = {"content": number, "parts": [(MIB, content, same)]}
        contents.append(values | {"left_out": left_out})
    program = make_puts(contents)
    for message in program.messages:
        message.sent.start /= 2
        message.call.start /= 2
    (finding,) = find(program)
    weights = sum(message.sent.weight for message in program.messages)
    assert weights == 8 + 27
    assert len(finding.messages) == 4
    saved = sum(saving.seconds for saving in finding.savings)
    assert saved == pytest.approx(weights / 2 * 0.0498, rel=0.01)


def test_short_messages_are_repeats_if_their_content_was_sent_before():
    """Else, of a content that changes in each step, only the first messages of the program would be repeats."""
    contents = []
    for step in range(30):
        for number in range(8):
            is_one_of_three = step == 0 and number < 3
            same = True if is_one_of_three and number else None
            is_short = number > 0 and not is_one_of_three
            contents.append({"content": 100 + step, "is_same": same, "is_short": is_short})
    program = make_puts(contents)
    steps = Steps("made", [(8.0 * step, 8.0 * step + 8) for step in range(30)], "node-1", 1, LINE)
    (finding,) = repeated.find(program, steps)
    assert "sent again 7 times per step" in finding.title
    assert finding.seconds == pytest.approx(7 * 0.0498, rel=0.01)


def test_reading_again_is_counted_in_the_steps_alone():
    """Most messages whose content is known are often those before the steps."""
    program = make_loop()
    for number, message in enumerate(program.messages):
        message.sent.content = 7 if number < 4 else 0
    line = program.messages[3:]
    reading = repeated.save_reading_again(program.messages, line[:1], line)
    each = line[0].received[0].seconds
    assert total(reading) == pytest.approx(3 * each)  # each of the three was read before


def test_contents_that_changed_in_place_are_never_the_same():
    contents = [{"content": 7, "is_same": is_same} for is_same in (None, True, False, None)]
    assert not find(make_puts(contents))


def test_processes_that_put_equal_content_are_found_without_a_repeat_in_any_of_them():
    places = ["Loader.load"] * 4
    program = make_puts([{"content": 7, "whole": 9}] * 4, places)
    for number, (call, message) in enumerate(
        zip(program.recording.calls, program.messages, strict=True)
    ):
        call.process = message.sent.process = f"node-Loader-{number}"
    (finding,) = find(program)
    assert len(finding.messages) == 3


@pytest.mark.parametrize("whole", [0, 1])
def test_processes_whose_samples_only_are_equal_are_not_found(whole):
    contents = [{"content": 7, "whole": whole * (1 + number)} for number in range(4)]
    program = make_puts(contents)
    for number, (call, message) in enumerate(
        zip(program.recording.calls, program.messages, strict=True)
    ):
        call.process = message.sent.process = f"node-Loader-{number}"
    assert not find(program)


def make_parts(*sames, size: int = MIB * 3 // 4, sums: tuple = (5, 5, 5, 5)) -> list[dict]:
    return [
        {"content": number, "parts": [(size, total, same)]}
        for number, (same, total) in enumerate(zip(sames, sums, strict=True))
    ]


@pytest.mark.parametrize("event", ["put", "call"])
def test_weights_beside_a_step_number_are_found(event):
    (finding,) = find(make_puts(make_parts(None, None, True, True), event=event))
    assert len(finding.messages) == 3
    assert "768 KiB of the 1 MiB in each message" in finding.title
    (saving, *_) = finding.savings
    assert saving.seconds == pytest.approx(0.75 * 0.0498, rel=0.01)


@pytest.mark.parametrize("parts", [
    make_parts(None, None, None, None),  # not compared
    make_parts(None, None, True, False),  # changed in place where no sample is
    make_parts(None, None, True, True, sums=(5, 6, 7, 8)),
    make_parts(None, None, True, True, size=4096),  # a mask beside what differs
])  # fmt: skip
def test_parts_that_differ_or_are_small_are_not_found(parts):
    assert not find(make_puts(parts))


def test_equal_parts_inside_of_one_message_are_found():
    half = MIB // 2
    contents = [{"content": n, "parts": [(half, n, None), (half, n, True)]} for n in range(4)]
    (finding,) = find(make_puts(contents))
    assert len(finding.messages) == 4
    assert "512 KiB of the 1 MiB in each message" in finding.title
    assert "are equal to other parts of the same message" in finding.title
    assert "ray.put" not in finding.change


def test_equal_parts_that_every_message_has_were_sent_before():
    half = MIB // 2
    contents = [{"content": n, "parts": [(half, 7, True), (half, 7, True)]} for n in range(4)]
    (finding,) = find(make_puts(contents))
    assert "were sent before, and have not changed" in finding.title
    assert "ray.put" in finding.change


def make_server(is_same: list[bool | None], other: str = "Server.update") -> Program:
    """Return an actor that returns its array three times per step, and in between runs another method."""
    builder = Builder()
    process = builder.process_of("Server.get")
    for step in range(4):
        update = f"{step:016x}".rjust(48, "a")
        builder.task(update, other, step + 0.01, 0.05, actor="a")
        for number in range(3):
            task = f"{step:024x}{number:024x}"
            start = step + 0.1 + 0.1 * number
            builder.task(task, "Server.get", start, 0.09, actor="a")
            builder.send(
                None,
                start + 0.085,
                0.001,
                process=process,
                by=task,
                by_name="Server.get",
                content=7,
                token=1,
                is_same=is_same[3 * step + number],
            )
    return builder.program()


def test_results_are_the_same_until_another_method_of_the_actor_runs():
    changes_in_each_step = [
        None,
        True,
        True,
        False,
        True,
        None,
        False,
        None,
        None,
        None,
        None,
        None,
    ]
    (finding,) = find(make_server(changes_in_each_step))
    assert len(finding.messages) == 4 * 2
    assert "self.ref = ray.put(value)" in finding.change


def test_a_comparison_with_another_message_than_the_one_before_says_nothing():
    """Of a slow result, the first three are described, and then one per second, which was compared with those."""
    program = make_server([None, True, True] + [None] * 5 + [False] + [None] * 3)
    described = {0, 1, 2, 8}
    for number, message in enumerate(program.messages):
        message.sent.is_short = number not in described
    (finding,) = find(program)
    assert len(finding.messages) == 4 * 2


def test_a_method_that_changes_its_result_now_and_then_is_not_the_same():
    """The message between two described ones is short, and the method alone has run in between."""
    program = make_server([None, True, True, None, None, False] + [None] * 6)
    described = {0, 1, 2, 3, 5}
    for number, message in enumerate(program.messages):
        message.sent.is_short = number not in described
        message.sent.whole = int(number in described)
    assert not find(program)


def test_a_comparison_after_a_message_that_was_not_summed_says_nothing():
    program = make_server([None, True, True] + [None] * 5 + [False] + [None] * 3)
    summed = {0, 1, 2, 8}
    for number, message in enumerate(program.messages):
        message.sent.whole = int(number in summed)
    (finding,) = find(program)
    assert len(finding.messages) == 4 * 2


@pytest.mark.parametrize("is_same", [
    [None, True, False, None, True, None, None, None, None, None, None, None],  # the method changes it itself
    [None, None, None, False, None, None, False, None, None, None, None, None],  # never compared
])  # fmt: skip
def test_results_that_change_or_were_not_compared_are_not_the_same(is_same):
    assert not find(make_server(is_same))


def make_methods(readers: list[str], read_seconds: float = 0.2, kind: str = "method") -> Program:
    """Return a program that sends the same argument in each step, to a process of these."""
    program = make_puts(
        [{"content": 7, "is_same": True if step else None} for step in range(4)], event="call"
    )
    for step, (message, reader) in enumerate(zip(program.messages, readers, strict=True)):
        message.call.kind = kind
        received = Received(process=reader, start=step + 0.2, seconds=read_seconds)
        message.received.append(received)
    return program


def test_an_actor_that_reads_the_same_argument_again_can_keep_it():
    (finding,) = find(make_methods(["a", "b", "a", "b"]))
    reading = [saving for saving in finding.savings if saving.part == "deserialise"]
    assert [saving.process for saving in reading] == ["a", "b"]
    assert "constructor" in finding.change
    assert finding.price


@pytest.mark.parametrize(
    "values",
    [
        {"readers": ["a", "b", "c", "d"]},  # each reads it once
        {"readers": ["a"] * 4, "read_seconds": 0.0002},  # an array in the store
        {"readers": ["a"] * 4, "kind": "task"},  # a task keeps nothing
    ],
)
def test_reading_is_not_saved_where_nothing_can_be_kept(values):
    (finding,) = find(make_methods(**values))
    assert {saving.part for saving in finding.savings} == {"call"}
    assert "ray.put" in finding.change
    assert not finding.price


@pytest.mark.parametrize(("contents", "repeats"), [(2, 18), (8, 12), (9, 0), (10, 0)])
def test_contents_that_come_in_turns_are_repeats_only_if_they_are_few(contents, repeats):
    sums = [number % contents for number in range(20)]
    messages = [
        {"content": 1 + number, "is_same": True if place >= contents else None}
        for place, number in enumerate(sums)
    ]
    program = make_puts(messages)
    for message in program.messages:
        message.sent.start /= 5
        message.call.start /= 5
    findings = find(program)
    assert sum(len(finding.messages) for finding in findings) == repeats


@pytest.mark.parametrize(
    ("readers", "text"), [("ab", ", to 2 processes)"), ("aa", ", to one process)")]
)
def test_readers_are_counted_as_people_do(readers, text):
    program = make_methods([*readers, *readers], kind="task")
    steps = Steps("made", [(0.0, 4.0)], "node-1", 1, LINE)
    (finding,) = repeated.find(program, steps)
    assert text in finding.title


def test_how_often_content_is_sent_again_is_said_as_people_say_it():
    assert format_times(1.02) == "once"
    assert format_times(1.5) == "1.5 times"
    assert format_times(3) == "3 times"
