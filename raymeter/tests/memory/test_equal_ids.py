# SPDX-License-Identifier: Apache-2.0
"""Two nodes may have processes with equal ids: each keeps its own objects, and has its own memory."""

import made_up
from made_up import MB, OBJECT, TASK
from raymeter.causes.memory import find_memory
from raymeter.memory.places import ObjectLines
from raymeter.memory.processes import Sample
from raymeter.memory.references import find_kept_views, holders_at_peak
from raymeter.profile.events import Call, Process, Received, Reference, Sent, Task
from raymeter.profile.program import Program
from raymeter.profile.reader import Recording
from raymeter.profile.steps import Steps
from raymeter.report import memory

PID = 7
LEFT, RIGHT = "left-7", "right-7"
STEPS = Steps("a loop", [(float(start), start + 1.0) for start in range(20)], line="train.py:5")
OBJECTS = 5
KEPT = "PINNED_IN_MEMORY"


def two_nodes(made: Recording) -> Recording:
    """Add a driver on the left node, and a worker with the same id on the right one.

    The driver sends arguments of 10 MB and keeps views of results of 20 MB. The worker keeps views of them, too, and
    has arguments of the same size from another line.
    """
    made.processes = [
        Process(process=LEFT, pid=PID, host="left", role="driver", ray="2.60.0"),
        Process(process=RIGHT, pid=PID, host="right", role="worker", ray="2.60.0"),
    ]
    made.tasks.append(Task(TASK.format(900), "Replay.add", "ACTOR_TASK", finished=1.1))
    for number in range(OBJECTS):
        name = OBJECT.format(number, 1)
        for process, task, line in (
            (LEFT, "", "main.py:4"),
            (RIGHT, TASK.format(900), "replay.py:31"),
        ):
            received = Received(process, object=name, by=task, node=node_of(process), start=1.0)
            received.by_name = "Replay.add" if task else ""
            received.line = line
            made.received.append(received)
            made.references.append(Reference(6.0, PID, name, 20 * MB, KEPT, node=node_of(process)))
    for process, line in ((LEFT, "main.py:9"), (RIGHT, "replay.py:40")):
        made.calls.append(Call("call", process, 1, line=line, task=f"sent by {process}"))
        made.sent.append(Sent(process, 1, 1, node=node_of(process), bytes=10 * MB))
    return made


def node_of(process: str) -> str:
    return f"node of {process}"


def make_program() -> Program:
    return made_up.with_store(two_nodes(made_up.recording()), 600 * MB)


def test_each_process_keeps_what_it_has_read_itself() -> None:
    views = {kept.name: kept for kept in find_kept_views(make_program())}
    assert views.keys() == {"", "Replay.add"}
    assert {reference.node for reference in views[""].objects} == {node_of(LEFT)}
    assert {reference.node for reference in views["Replay.add"].objects} == {node_of(RIGHT)}


def test_objects_of_one_process_are_counted_without_those_of_the_other() -> None:
    made = two_nodes(made_up.recording())
    for received in made.received:
        received.by, received.by_name, received.line = (
            TASK.format(900),
            "Replay.add",
            "replay.py:31",
        )
    [views] = find_kept_views(made_up.with_store(made, 600 * MB))
    assert len(views.objects) == 2 * OBJECTS
    assert views.most_of_a_process == OBJECTS


def test_holders_have_the_line_and_the_host_of_their_process() -> None:
    program = make_program()
    assert {holder.process for holder in holders_at_peak(program)} == {LEFT, RIGHT}
    text = " ".join(" ".join(memory.describe_holders(program)).split())
    assert "5 objects, driver 7 on left: a value that still uses its bytes, main.py:4" in text
    assert "5 objects, worker 7 on right: a value that still uses its bytes, replay.py:31" in text


def test_an_argument_has_the_line_of_its_own_sender() -> None:
    lines = ObjectLines(make_program())
    for process, line in ((LEFT, "main.py:9"), (RIGHT, "replay.py:40")):
        reference = Reference(6.0, PID, "other", 10 * MB, node=node_of(process))
        assert lines.line_of(reference) == line


def grow(process: str) -> list[Sample]:
    return [
        Sample(float(second), PID, "raylet", 0, (100 + 30 * second) * MB, process)
        for second in range(20)
    ]


def test_a_process_of_this_machine_with_the_id_of_a_recorded_one_elsewhere_is_not_it() -> None:
    program = make_program()
    titles = [finding.title for finding in find_memory(program, STEPS, grow("here-7"))]
    assert not any("grows" in title for title in titles)
    titles = [finding.title for finding in find_memory(program, STEPS, grow(LEFT))]
    assert any(title.startswith("the driver grows by") for title in titles)


def test_the_memory_of_a_process_with_the_id_of_the_driver_is_its_own() -> None:
    recording = two_nodes(made_up.recording())
    text = "\n".join(memory.describe_processes(recording, [*grow(LEFT)[:1], *grow("here-7")]))
    assert text.startswith("Memory of all processes on left: at most")
    assert "driver (7)" in text
    assert "raylet (7)" in text
