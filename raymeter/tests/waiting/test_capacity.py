# SPDX-License-Identifier: Apache-2.0
"""No advice lets run, or keeps, at the same time what does not fit into the cluster."""

from pathlib import Path

import pytest
from made_programs import Builder
from raymeter.causes import independent_calls, new_actors, waiting
from raymeter.findings import Finding
from raymeter.profile.events import Call, Cluster, Run, Task
from raymeter.profile.program import Program
from test_starts import (
    ACTORS,
    GIB,
    STEPS,
    TWO_LINES,
    add_task,
    add_worker,
    make_actors,
    make_steps,
    make_two_lines,
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


@pytest.mark.parametrize(("gpus", "of_nodes", "count"), [
    (1.0, [2.0], 2),
    (1.0, [1.0], 0),
    (1.0, [1.0, 1.0], 2),
    (2.0, [4.0], 2),
    (2.0, [3.0, 1.0], 0),  # one actor finds none that are free together
    (0.5, [2.0], 2),
    (0.5, [1.0], 0),  # a part counts as a whole one
    (0.0, [8.0], 0),  # not known how many an actor takes
    (1.0, [], 0),  # not known how many there are
])  # fmt: skip
def test_actors_with_gpus_are_kept_if_the_nodes_have_enough(gpus, of_nodes, count, tmp_path):
    path = write_source(tmp_path, TWO_ACTORS.format(end="ray.kill(sampler)"))
    program = make_two_actors(path, 4.0, False, resources=["GPU"], gpus=gpus)
    program.recording.clusters[0].gpus = of_nodes
    assert len(new_actors.find(program, make_steps(f"{path}:2"))) == count


@pytest.mark.parametrize(("of_nodes", "count"), [([2.0], 0), ([3.0], 2)])
def test_actors_with_gpus_are_kept_only_beside_the_tasks_with_gpus(of_nodes, count, tmp_path):
    path = write_source(tmp_path, TWO_ACTORS.format(end="ray.kill(sampler)"))
    program = make_two_actors(path, 4.0, False, resources=["GPU"], gpus=1.0)
    program.recording.clusters[0].gpus = of_nodes
    add_task_to_each_step(program, 0.0, ["GPU"], gpus=1.0)
    assert len(new_actors.find(program, make_steps(f"{path}:2"))) == count


def add_task_to_each_step(
    program: Program, cpus: float, resources: list[str], gpus: float = 0.0
) -> None:
    """Add a task to each step, which begins when the actor of this step has done its work."""
    for step in range(STEPS):
        begin = 1.9 + step
        task = Task(f"{step:047x}a", "work", "NORMAL_TASK", cpus=cpus, resources=resources)
        task.gpus = gpus
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


def test_a_task_of_the_line_that_makes_an_actor_is_no_actor_that_is_kept(tmp_path):
    path = write_source(tmp_path, ACTORS.format(argument=""))
    program = make_actors(path)
    program.recording.clusters.append(Cluster(2.0))
    for task in program.tasks.values():
        if task.type == "ACTOR_CREATION_TASK":
            task.cpus = 1.0
    add_task_to_each_step(program, 2.0, [])
    for task in program.tasks.values():
        if task.type == "NORMAL_TASK":
            call = Call(kind="task", task=task.task, line=f"{path}:3", start=task.execute[0])
            program.recording.calls.append(call)
    assert not new_actors.find(program, make_steps(f"{path}:3"))


def test_the_price_of_kept_actors_names_what_they_hold(tmp_path):
    path = write_source(tmp_path, TWO_ACTORS.format(end=""))
    program = make_two_actors(path, 4.0, together=True, cpus=1.0, resources=["GPU"])
    first, _ = new_actors.find(program, make_steps(f"{path}:2"))
    assert "keep their state, their memory, 1 of 4 CPUs and their GPU" in first.price


def make_serial(path: Path, at_once: int = 0, peak_bytes: int = 2**20, **values) -> Program:
    """Return a loop in whose steps four tasks run one after the other, and then some at the same time.

    The first four are those of the loop; the others have the same name, and hold the same.
    """
    builder = Builder()
    builder.recording.clusters.append(Cluster(16.0, 8 * GIB))
    builder.recording.processes[0].cores = 16
    process = builder.process_of("infer")
    for step in range(STEPS):
        for number in range(4 + at_once):
            name = f"{step:024x}{number:024x}"
            begin = 1.0 + step + 0.2 * min(number, 4)
            builder.call(
                "call", begin, 0.001, kind="task", task=name, name="infer", line=f"{path}:4"
            )
            pid = builder.pid_of(process)
            task = Task(
                name, "infer", "NORMAL_TASK", pid=pid, submitted=begin, cpus=1.0, **values
            )  # fmt: skip
            add_task(builder, task, begin + 0.002, begin + 0.19)
            run = Run(by=name, cpu_seconds=0.01, peak_bytes=peak_bytes)
            builder.recording.runs.append(run)
            if number < 4:
                objects = [f"{name}01000000"]
                builder.call("get", begin + 0.001, 0.19, objects=objects, count=1, line=f"{path}:4")
    return builder.program()


def find_serial(folder: Path, **values) -> list[Finding]:
    path = write_source(folder, SERIAL)
    return waiting.find(make_serial(path, **values), make_steps(f"{path}:2"))


@pytest.mark.parametrize(("at_once", "share"), [(1, 0.0), (2, 0.5), (4, 0.75)])
def test_tasks_with_a_gpu_save_what_as_many_gpus_as_were_seen_allow(at_once, share, tmp_path):
    found = find_serial(tmp_path, at_once=at_once, resources=["GPU"])
    saved = sum(finding.seconds for finding in found)
    assert saved == pytest.approx(share * 4 * 0.188, abs=0.01)


@pytest.mark.parametrize(("gpus", "of_nodes", "share"), [
    (1.0, [4.0], 0.75),
    (1.0, [1.0], 0.0),
    (1.0, [1.0, 1.0], 0.5),
    (2.0, [3.0, 2.0], 0.5),  # the third GPU of a node is of no use
    (0.5, [4.0], 0.0),  # Ray puts them onto one GPU
    (1.5, [4.0], 0.0),
    (0.0, [4.0], 0.0),  # not known
])  # fmt: skip
def test_tasks_with_whole_gpus_save_what_the_gpus_of_the_nodes_allow(
    gpus, of_nodes, share, tmp_path
):
    path = write_source(tmp_path, SERIAL)
    program = make_serial(path, resources=["GPU"], gpus=gpus)
    program.recording.clusters[0].gpus = of_nodes
    found = waiting.find(program, make_steps(f"{path}:2"))
    saved = sum(finding.seconds for finding in found)
    assert saved == pytest.approx(share * 4 * 0.188, abs=0.01)


def test_gpus_that_others_hold_are_not_free(tmp_path):
    path = write_source(tmp_path, SERIAL)
    program = make_serial(path, resources=["GPU"], gpus=1.0)
    program.recording.clusters[0].gpus = [4.0]
    other = Task("9" * 48, "other", "NORMAL_TASK", resources=["GPU"], gpus=1.0, submitted=1.0)
    other.execute = (1.0, 5.0)
    other.finished = 5.0
    program.tasks[other.task] = other
    assert not waiting.find(program, make_steps(f"{path}:2"))


@pytest.mark.parametrize(("gib", "count"), [(0.9, 1), (1.1, 0), (6, 0)])
def test_tasks_whose_memory_does_not_fit_stay_one_after_the_other(gib, count, tmp_path):
    assert len(find_serial(tmp_path, peak_bytes=int(gib * GIB))) == count


def test_only_tasks_that_have_cpus_at_the_same_time_need_their_memory_then(tmp_path):
    path = write_source(tmp_path, SERIAL)
    program = make_serial(path, peak_bytes=int(1.5 * GIB))
    program.recording.clusters[0].cpus = 2.0
    assert waiting.find(program, make_steps(f"{path}:2"))


@pytest.mark.parametrize(("gib", "count"), [(1, 1), (3, 0)])
def test_two_lines_whose_tasks_do_not_fit_into_memory_are_not_named(gib, count, tmp_path):
    text = TWO_LINES.format(train="batch.sum()", between="count = 1", argument="batch")
    path = write_source(tmp_path, text)
    program = make_two_lines(path)
    program.recording.clusters.append(Cluster(8.0, 8 * GIB))
    for run in program.recording.runs:
        run.peak_bytes = gib * GIB
    assert len(independent_calls.find(program, make_steps(f"{path}:13"))) == count


def names_in_group(number: int) -> list[str]:
    """Return the names of what an actor with a CPU and a GPU takes in the first bundle of a placement group."""
    group = f"{number:034x}01"
    kinds = ("CPU", "GPU", "bundle")
    return [f"{kind}_group_{place}{group}" for kind in kinds for place in ("", "0_")]


def use_groups(program: Program, names: list[str], group_of_step: bool) -> None:
    """Let the actors of these names run in one placement group, or in one for each step."""
    for task in program.tasks.values():
        if task.type == "ACTOR_CREATION_TASK" and task.name in names:
            number = int(task.submitted) if group_of_step else 1
            task.resources = names_in_group(number)
            task.cpus = 0.0
            task.gpus = 0.0


@pytest.mark.parametrize(("together", "cpus", "count"), [
    (True, 0.0, 2),
    (True, 1.0, 0),  # the CPUs of the group are not known, so these may not be enough
    (False, 0.0, 0),  # the bundle may have place for one of them
])  # fmt: skip
@pytest.mark.parametrize("group_of_step", [True, False])
def test_actors_of_a_placement_group_are_kept_if_all_were_there_at_one_time_and_nothing_else(
    together, cpus, count, group_of_step, tmp_path
):
    path = write_source(tmp_path, TWO_ACTORS.format(end=""))
    program = make_two_actors(path, 4.0, together)
    use_groups(program, ["Sampler", "Trainer"], group_of_step)
    if cpus:
        add_task_to_each_step(program, cpus, [])
    found = new_actors.find(program, make_steps(f"{path}:2"))
    assert len(found) == count
    if found:
        assert "keep their state, their memory and their placement group" in found[0].price


@pytest.mark.parametrize(("together", "count"), [(True, 2), (False, 0)])
def test_actors_of_two_placement_groups_are_kept_only_if_both_groups_were_there_at_one_time(
    together, count, tmp_path
):
    """A group that is removed before the next one is made may have had the same GPU."""
    path = write_source(tmp_path, TWO_ACTORS.format(end=""))
    program = make_two_actors(path, 4.0, together)
    use_groups(program, ["Sampler"], group_of_step=True)
    for task in program.tasks.values():
        if task.type == "ACTOR_CREATION_TASK" and task.name == "Trainer":
            task.resources = names_in_group(100 + int(task.submitted))
    assert len(new_actors.find(program, make_steps(f"{path}:2"))) == count


@pytest.mark.parametrize(("together", "count"), [(True, 2), (False, 0)])
def test_an_actor_beside_a_placement_group_is_kept_only_if_both_were_there_at_one_time(
    together, count, tmp_path
):
    path = write_source(tmp_path, TWO_ACTORS.format(end=""))
    program = make_two_actors(path, 4.0, together, resources=["GPU"], gpus=1.0)
    program.recording.clusters[0].gpus = [1.0]
    use_groups(program, ["Sampler"], group_of_step=True)
    assert len(new_actors.find(program, make_steps(f"{path}:2"))) == count


def add_group(program: Program) -> None:
    """Add a task that runs in a placement group all the time: what the group has is not known."""
    names = names_in_group(7)
    task = Task("8" * 48, "Trainer", "NORMAL_TASK", resources=names, submitted=1.0)
    task.execute = (1.0, 9.0)
    task.finished = 9.0
    program.tasks[task.task] = task


@pytest.mark.parametrize(("values", "count"), [
    ({"resources": ["GPU"], "gpus": 1.0}, 0),  # the group may have the other GPUs
    ({"cpus": 1.0}, 0),
    ({}, 2),  # the actors hold nothing
])  # fmt: skip
def test_actors_are_not_kept_beside_a_placement_group_if_they_hold_something(
    values, count, tmp_path
):
    path = write_source(tmp_path, TWO_ACTORS.format(end="ray.kill(sampler)"))
    program = make_two_actors(path, 4.0, False, **values)
    program.recording.clusters[0].gpus = [4.0]
    assert len(new_actors.find(program, make_steps(f"{path}:2"))) == 2
    program = make_two_actors(path, 4.0, False, **values)
    program.recording.clusters[0].gpus = [4.0]
    add_group(program)
    assert len(new_actors.find(program, make_steps(f"{path}:2"))) == count


def test_gpus_that_a_placement_group_has_are_not_free(tmp_path):
    path = write_source(tmp_path, SERIAL)
    program = make_serial(path, resources=["GPU"], gpus=1.0)
    program.recording.clusters[0].gpus = [4.0]
    add_group(program)
    assert not waiting.find(program, make_steps(f"{path}:2"))


def test_a_resource_of_a_user_is_no_placement_group(tmp_path):
    path = write_source(tmp_path, TWO_ACTORS.format(end=""))
    program = make_two_actors(path, 4.0, together=False, resources=["node_group_a"])
    assert not new_actors.find(program, make_steps(f"{path}:2"))
