# SPDX-License-Identifier: Apache-2.0
"""Tasks whose process was not recorded are named, with what was seen of the reason, and give no all-clear."""

import pytest
from made_programs import Builder
from raymeter.profile.events import Task
from raymeter.profile.unrecorded import find_unrecorded, say_unrecorded

UNKNOWN_PID = 4711
PARTS = {"env_vars": 5, "image_uri": 6}


def add_task(builder: Builder, number: int, pid: int, **values) -> None:
    start = float(number)
    phase = (start, start + 0.1)
    task = Task(f"{number:048x}", "work", "NORMAL_TASK", pid=pid, execute=phase, **values)
    builder.recording.tasks.append(task)


def make(**values) -> Builder:
    """Return a program with one recorded task, and one of an unknown process."""
    builder = Builder()
    pid = builder.pid_of(builder.process_of("work"))
    add_task(builder, 1, pid, node="a")
    add_task(builder, 2, UNKNOWN_PID, **{"node": "a", **values})
    return builder


@pytest.mark.parametrize(("values", "reason"), [
    ({"runtime_env": 7, "parts_of_env": PARTS}, "Only they have a runtime_env with env_vars, image_uri."),
    ({}, "Why is not known."),
    ({"node": "b", "runtime_env": 7}, "They ran on other nodes: copy the files"),
])  # fmt: skip
def test_a_task_of_an_unknown_process_is_named_with_what_was_seen(values, reason):
    text = say_unrecorded(make(**values).program())
    assert text.startswith("1 task (work) ran in processes that were not recorded:")
    assert reason in text


def test_a_runtime_env_is_no_reason_if_a_recorded_task_has_it():
    builder = make(runtime_env=7, parts_of_env=PARTS)
    builder.recording.tasks[0].runtime_env = 7
    assert "Why is not known." in say_unrecorded(builder.program())


def test_a_process_with_the_same_id_on_another_node_is_another_one():
    builder = Builder()
    for number, place in enumerate(("left", "right")):
        process = builder.process_of(place)
        add_task(builder, number, builder.pid_of(process), node=place)
        builder.receive(float(number), 0.01, place, node=place)
        recorded = builder.recording.processes[-1]
        recorded.host = place
    left, right = builder.recording.tasks
    assert find_unrecorded(builder.program()) == []
    right.pid = left.pid
    assert find_unrecorded(builder.program()) == [right]
    right.node = "third"  # no process is known to be there
    assert find_unrecorded(builder.program()) == [right]
    assert "They ran on other nodes: copy the files" in say_unrecorded(builder.program())


def test_a_task_is_not_named_if_one_of_two_processes_may_be_its_own():
    builder = Builder()
    for host in ("left", "right"):
        builder.process_of(host)
        recorded = builder.recording.processes[-1]
        recorded.host = host
        recorded.pid = 9
    add_task(builder, 1, 9, node="a")
    program = builder.program()
    assert program.process_of(builder.recording.tasks[0]) == ""
    assert find_unrecorded(program) == []


def test_recorded_tasks_and_those_that_never_ran_are_not_named():
    builder = make()
    last = builder.recording.tasks[-1]
    last.execute = None
    assert find_unrecorded(builder.program()) == []
    assert say_unrecorded(builder.program()) == ""
