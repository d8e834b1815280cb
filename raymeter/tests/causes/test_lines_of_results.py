# SPDX-License-Identifier: Apache-2.0
"""A result has the line of the function that returned it, although Ray does not run it any more then."""

from collections import namedtuple

from made_programs import Builder
from raymeter.inside import ray_internals
from raymeter.profile.events import Run

LINE = "/made/train.py:9"
Info = namedtuple("Info", ["function", "function_name"])


def test_a_result_without_a_line_has_that_of_its_task_or_of_one_of_the_same_name():
    builder = Builder()
    process = builder.process_of("expand")
    runs = [Run(process=process, by="a", by_name="expand", line=LINE, start=1.0)]
    builder.recording.runs = [*runs, Run(process=process, by="c", by_name="other", line=f"{LINE}9")]
    for task, name in (("a", "expand"), ("b", "expand"), ("c", "other"), ("d", "unknown")):
        builder.send(None, 1.0, 0.1, process=process, by=task, by_name=name)
    known = builder.send(
        None, 1.0, 0.1, process=process, by="a", by_name="expand", line="/made/a.py:1"
    )
    program = builder.program()
    lines = [message.sent.line for message in program.messages]
    assert lines == [LINE, LINE, f"{LINE}9", "", known.line]


def test_a_function_is_found_with_or_without_its_module():
    expand = Info(1, "__main__.expand")
    other = Info(2, "other.expand")
    named = ray_internals.function_named
    assert named("expand", [expand]) == 1
    assert named("__main__.expand", [Info(1, "expand")]) == 1
    assert named("other.expand", [expand, other]) == 2
    assert named("expand", [expand, other]) is None  # which of them is not known
    assert named("", [Info(1, "")]) is None
    assert named("expand", [{}]) is None
