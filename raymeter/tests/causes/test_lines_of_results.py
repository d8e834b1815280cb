# SPDX-License-Identifier: Apache-2.0
"""A result has the line of the function that returned it, although Ray does not run it any more then."""

from made_programs import Builder
from raymeter.profile.events import Run

LINE = "/made/train.py:9"


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


def test_a_name_of_several_functions_does_not_say_which_one_has_returned_a_result():
    builder = Builder()
    process = builder.process_of("stage")
    builder.recording.runs = [
        Run(process=process, by="a", by_name="stage", line=LINE, start=1.0),
        Run(process=process, by="b", by_name="stage", line=f"{LINE}9", start=2.0),
    ]
    for task in ("a", "b", "c"):
        builder.send(None, 1.0, 0.1, process=process, by=task, by_name="stage")
    program = builder.program()
    lines = [message.sent.line for message in program.messages]
    assert lines == [LINE, f"{LINE}9", ""]


def test_a_result_of_a_worker_that_knows_several_functions_of_its_name_has_no_line():
    """One of the functions was always so short that it has no run, and may have returned the result."""
    builder = Builder()
    process = builder.process_of("load")
    builder.recording.runs = [Run(process=process, by="a", by_name="load", line=LINE, start=1.0)]
    for task in ("a", "b"):
        builder.send(None, 1.0, 0.1, process=process, by=task, by_name="load", has_equal_names=True)
    program = builder.program()
    assert [message.sent.line for message in program.messages] == [LINE, ""]
