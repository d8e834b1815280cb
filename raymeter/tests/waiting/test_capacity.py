"""No advice lets run, or keeps, at the same time what does not fit into the cluster."""

from pathlib import Path

import pytest
from made_programs import Builder
from raymeter.causes import new_actors
from raymeter.profile.events import Cluster, Task
from raymeter.profile.program import Program
from test_starts import (
    ACTORS,
    STEPS,
    add_task,
    add_worker,
    make_actors,
    make_steps,
    write_source,
)

TWO_ACTORS = """
for step in range(6):
    sampler = Sampler.remote()
    data = ray.get(sampler.run.remote())
    {end}
    trainer = Trainer.remote()
    ray.get(trainer.run.remote(data))
"""
SERIAL = """
for step in range(6):
    for batch in batches:
        results.append(ray.get(infer.remote(batch)))
"""


def add_actor(builder: Builder, line: str, names: tuple[int, str], times: list[float], **values):
    """Add an actor that is made, does one task, and is killed: `times` are those of its task."""
    number, name = names
    begin, end = times
    actor = f"{number:032x}"
    creation = f"{'f' * 16}{actor}"
    method = f"{number:016x}{actor}"
    made_at = begin - 0.3
    builder.call(
        "call", made_at, 0.001, kind="actor", task=creation, actor=actor, name=name, line=line
    )
    worker = add_worker(builder, made_at + 0.1)
    made = Task(
        creation, name, "ACTOR_CREATION_TASK", actor=actor, pid=worker.pid, submitted=made_at, **values
    )  # fmt: skip
    add_task(builder, made, begin - 0.1, begin - 0.05)
    builder.call(
        "call", made_at + 0.01, 0.001, kind="method", task=method, actor=actor, name=name, line=line
    )
    task = Task(method, name, "ACTOR_TASK", actor=actor, pid=worker.pid, submitted=made_at + 0.01)
    add_task(builder, task, begin, end)


def make_two_actors(path: Path, all_cpus: float, together: bool, **values) -> Program:
    """Return a loop that makes a Sampler and a Trainer in each step, one after the other or at the same time."""
    builder = Builder()
    builder.recording.clusters.append(Cluster(all_cpus))
    for step in range(STEPS):
        begin = 1.35 + step
        later = begin + (0.05 if together else 0.45)
        sampler = (2 * step, "Sampler")
        trainer = (2 * step + 1, "Trainer")
        add_actor(builder, f"{path}:3", sampler, [begin, begin + 0.1], **values)
        add_actor(builder, f"{path}:6", trainer, [later, later + 0.1], **values)
    return builder.program()


@pytest.mark.parametrize(("all_cpus", "together", "values", "count"), [
    (4.0, False, {}, 2),
    (4.0, False, {"resources": ["GPU"]}, 0),  # there may be only one
    (4.0, True, {"resources": ["GPU"]}, 2),  # both have had one at the same time
    (4.0, False, {"resources": ["memory"]}, 0),
    (4.0, False, {"cpus": 2.0}, 2),
    (3.0, False, {"cpus": 2.0}, 0),
])  # fmt: skip
def test_actors_are_kept_only_if_all_of_them_fit(all_cpus, together, values, count, tmp_path):
    path = write_source(tmp_path, TWO_ACTORS.format(end="ray.kill(sampler)"))
    program = make_two_actors(path, all_cpus, together, **values)
    assert len(new_actors.find(program, make_steps(f"{path}:2"))) == count


def add_task_to_each_step(program: Program, cpus: float, resources: list[str]) -> None:
    """Add a task to each step, which begins when the actor of this step has done its work."""
    for step in range(STEPS):
        begin = 1.9 + step
        task = Task(f"{step:047x}a", "work", "NORMAL_TASK", cpus=cpus, resources=resources)
        task.execute = (begin, begin + 0.05)
        task.finished = begin + 0.05
        program.tasks[task.task] = task


@pytest.mark.parametrize(("cpus", "resources", "count"), [
    (1.0, [], 1), (2.0, [], 0), (0.0, ["GPU"], 0), (1.0, ["disk"], 1),
])  # fmt: skip
def test_actors_are_kept_only_beside_the_tasks_of_a_step(cpus, resources, count, tmp_path):
    path = write_source(tmp_path, ACTORS.format(argument=""))
    program = make_actors(path)
    program.recording.clusters.append(Cluster(2.0))
    for task in program.tasks.values():
        if task.type == "ACTOR_CREATION_TASK":
            task.cpus = 1.0
            task.resources = ["GPU"]
    add_task_to_each_step(program, cpus, resources)
    assert len(new_actors.find(program, make_steps(f"{path}:3"))) == count


def test_the_price_of_kept_actors_names_what_they_hold(tmp_path):
    path = write_source(tmp_path, TWO_ACTORS.format(end=""))
    program = make_two_actors(path, 4.0, together=True, cpus=1.0, resources=["GPU"])
    first, _ = new_actors.find(program, make_steps(f"{path}:2"))
    assert "keep their state, their memory, 1 of 4 CPUs and their GPU" in first.price
