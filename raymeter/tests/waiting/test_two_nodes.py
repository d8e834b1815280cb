# SPDX-License-Identifier: Apache-2.0
"""Two nodes may have processes with equal ids: work belongs to the one on the node on which its task ran."""

from collections import Counter

from made_programs import Builder
from raymeter.causes import calls
from raymeter.causes.waits import find_gaps
from raymeter.profile.events import Process, Run, Task
from raymeter.profile.program import Program, find_actors, find_stores
from raymeter.profile.steps import Steps
from raymeter.report.timeline import name_processes, spans_of_tasks
from raymeter.simulate.graph import build

STEPS = 4
TASKS = 200  # per step, on two nodes in turns
LEFT = "node-left-0"
RIGHT = "node-right-0"
PID = 7


def make_two_nodes() -> Program:
    """Return a driver with a worker on each of two other nodes; all of them have the same process id."""
    builder = Builder()
    recording = builder.recording
    for step in range(STEPS):
        for number in range(TASKS):
            task = f"{step:024x}{number:024x}"
            start = step + number / 1000
            place = "left" if number % 2 == 0 else "right"
            values = {"task": task, "name": "work", "line": "/made/a.py:1"}
            builder.call("call", start, 0.0004, kind="method", **values)
            builder.task(task, place, start + 0.0005, 0.0015, actor=f"actor-{place}")
            node = f"node of {place}"
            recording.tasks[-1].node = node
            recording.tasks[-1].submitted = start - 0.0005  # it waits for its worker
            recording.runs.append(Run(builder.process_of(place), "function", task))
    for task in recording.tasks:
        task.pid = PID
    for process in recording.processes:
        process.host = f"host of {process.process}"
        process.pid = PID
    return builder.program()


def test_the_work_of_the_graph_is_on_both_nodes():
    graph = build(make_two_nodes())
    edges = [edge for point in graph.points for edge in point.edges]
    stores = Counter(edge.process for edge in edges if edge.part == "store")
    assert stores == {LEFT: STEPS * TASKS / 2, RIGHT: STEPS * TASKS / 2}


def test_what_fewer_calls_save_is_on_both_nodes():
    times = [(float(step), step + 1.0) for step in range(STEPS)]
    steps = Steps("a pass", times, "node-1", 1, "/made/a.py:1")
    (finding,) = calls.find(make_two_nodes(), steps)
    reading = Counter(saving.process for saving in finding.savings if saving.part == "deserialise")
    assert reading == {LEFT: STEPS * TASKS / 2, RIGHT: STEPS * TASKS / 2}


def test_results_actors_and_gaps_belong_to_the_node_of_their_task():
    program = make_two_nodes()
    assert find_stores(program).keys() == {LEFT, RIGHT}
    assert find_actors(program) == {LEFT: "actor-left", RIGHT: "actor-right"}
    for gap in find_gaps(program):
        assert gap.process == program.process_of(program.tasks[gap.task])
    assert {gap.process for gap in find_gaps(program)} == {LEFT, RIGHT}


def test_the_chart_shows_each_task_in_its_process():
    program = make_two_nodes()
    assert name_processes(program) == {"node-1": "driver", LEFT: "left", RIGHT: "right"}
    tasks = Counter(span.process for span in spans_of_tasks(program) if span.kind == "task")
    assert tasks == {LEFT: STEPS * TASKS / 2, RIGHT: STEPS * TASKS / 2}


def test_an_event_of_an_earlier_attempt_on_another_node_changes_nothing():
    builder = Builder()
    program = make_two_nodes()
    first = next(iter(program.tasks))
    program.recording.runs.insert(0, Run(RIGHT, "function", first))
    again = Program(program.recording, [], program.tasks, {}, {})
    assert again.process_of(program.tasks[first]) == LEFT
    assert builder.program().process_of(Task(pid=1)) == "node-1"


def test_a_task_of_a_process_that_was_not_recorded_has_none():
    program = make_two_nodes()
    assert program.process_of(Task(pid=PID, node="unknown")) == ""
    assert program.process_of(Task(pid=PID + 1, node="node of left")) == ""
    alone = Process("elsewhere", pid=PID + 2, host="elsewhere")
    program.recording.processes.append(alone)
    again = Program(program.recording, [], program.tasks, {}, {})
    assert again.process_of(Task(pid=PID + 2, node="unknown")) == "elsewhere"
