# SPDX-License-Identifier: Apache-2.0
"""A normal task waits for any free worker, and not for the one in which it happened to run."""

import pytest
from made_programs import Builder
from raymeter.findings import Finding, Saving
from raymeter.profile.events import Cluster, Task
from raymeter.profile.steps import Steps
from raymeter.simulate.free_workers import Ran, find_freeing, most_at_once
from raymeter.simulate.graph import build
from raymeter.simulate.predict import explains, simulate

STEPS = 6
STEP_SECONDS = 0.5
SEND_SECONDS = 0.12
LINE = "/made/train.py:{}"


def add_task(builder: Builder, name: str, worker: int, times: tuple[float, float], call) -> None:
    """Add a call that submits a task, and the task: `times` are its start and end, `call` is (start, seconds)."""
    start, seconds = call
    builder.call("call", start, seconds, kind="task", task=name, name="work", line=LINE.format(3))
    process = builder.process_of("work", worker)
    submitted = start + seconds - 0.0005
    task = Task(name, "work", "NORMAL_TASK", pid=builder.pid_of(process), submitted=submitted)
    task.cpus = 1.0
    task.execute = times
    task.finished = times[1]
    builder.recording.tasks.append(task)


def predict_step(workers: tuple[int, int, int], cpus: float) -> float:
    """Return the length of a step if it sends nothing any more.

    A step submits a task of 100 ms, sends data for 120 ms with the next one of 100 ms, and gets both results. The last
    one takes 20 ms. workers: in which they run.
    """
    builder = Builder()
    builder.recording.clusters.append(Cluster(cpus))
    times = []
    savings = []
    for step in range(STEPS):
        begin = 1.0 + STEP_SECONDS * step
        first, second, third = (f"{step:040x}{number:08x}" for number in range(3))
        add_task(builder, first, workers[0], (begin + 0.002, begin + 0.102), (begin, 0.001))
        sending = (begin + 0.002, SEND_SECONDS)
        add_task(builder, second, workers[1], (begin + 0.125, begin + 0.225), sending)
        objects = [f"{first}01000000", f"{second}01000000"]
        builder.call("get", begin + 0.123, 0.103, objects=objects, count=2, line=LINE.format(5))
        add_task(builder, third, workers[2], (begin + 0.231, begin + 0.25), (begin + 0.2265, 0.001))
        objects = [f"{third}01000000"]
        builder.call("get", begin + 0.228, 0.023, objects=objects, count=1, line=LINE.format(7))
        times.append((begin, begin + STEP_SECONDS))
        savings.append(Saving("node-1", 1, begin + 0.06, SEND_SECONDS, "call"))
    program = builder.program()
    steps = Steps("made", times, "node-1", 1, LINE.format(3))
    graph = build(program)
    assert explains(graph, steps)
    finding = Finding("sent", "sent", LINE.format(3), "send it once", SEND_SECONDS, savings=savings)
    return simulate(graph, steps, finding)


@pytest.mark.parametrize("workers", [(0, 0, 1), (0, 1, 1)])
def test_a_task_that_comes_earlier_runs_in_a_worker_that_is_free(workers):
    assert predict_step(workers, cpus=2.0) == pytest.approx(STEP_SECONDS - SEND_SECONDS, abs=0.005)


@pytest.mark.parametrize(("workers", "cpus"), [((0, 0, 1), 1.0), ((0, 0, 0), 2.0)])
def test_a_task_that_comes_earlier_waits_without_a_free_cpu_or_worker(workers, cpus):
    assert predict_step(workers, cpus) == pytest.approx(STEP_SECONDS - 0.02, abs=0.005)


def ran(name: str, worker: str, begin: float, end: float, ready: float = -1.0) -> Ran:
    """Return a task that has waited for no worker, unless another time is given from which on it was ready."""
    return Ran(name, worker, begin, end, begin if ready < 0 else ready)


WORKERS = [ran("a", "1", 0, 10), ran("b", "2", 1, 90), ran("x", "1", 300, 301), ran("y", "2", 300, 301)]  # fmt: skip


@pytest.mark.parametrize(("others", "at_once", "freeing"), [
    # d runs in the worker of c, or in the one that a has left free
    ([ran("c", "1", 20, 30), ran("d", "1", 40, 50)], 2, {"c": "a", "d": "c"}),
    # c has one of two workers, so d needs the end of b, although it ran in the worker of c
    ([ran("c", "1", 20, 100), ran("d", "1", 110, 120)], 2, {"c": "a", "d": "b"}),
    # only one of the two workers has a CPU
    ([ran("c", "1", 100, 110), ran("d", "1", 120, 130)], 1, {"c": "b", "d": "c"}),
    # d has waited for c
    ([ran("c", "1", 20, 100), ran("d", "1", 101, 110, ready=50)], 2, {"c": "a", "d": "c"}),
])  # fmt: skip
def test_a_task_begins_when_so_many_have_ended_that_one_of_the_workers_is_free(
    others, at_once, freeing
):
    found = find_freeing([*WORKERS, *others], at_once)
    assert {name: found[name] for name in freeing} == freeing
    assert "a" not in found
    assert "b" not in found


def test_a_worker_that_runs_nothing_any_more_may_have_ended():
    tasks = [ran("a", "1", 0, 10), ran("b", "2", 1, 5), ran("c", "1", 20, 30)]
    assert find_freeing(tasks, at_once=2) == {"c": "a"}
    tasks.append(ran("d", "2", 40, 50))
    assert find_freeing(tasks, at_once=2)["c"] == "b"


def test_how_many_run_at_once_is_not_known_beside_a_placement_group() -> None:
    builder = Builder()
    builder.recording.clusters.append(Cluster(4.0))
    add_task(builder, "a" * 48, 1, (1.0, 2.0), (0.9, 0.001))
    tasks = builder.recording.tasks
    assert most_at_once(builder.program(), tasks) == 4
    actor = Task("b" * 48, "Holder.__init__", "ACTOR_CREATION_TASK", submitted=0.5)
    actor.resources = [f"CPU_group_0_{'c' * 36}"]
    program = builder.program()
    program.tasks[actor.task] = actor
    assert most_at_once(program, tasks) == 0
