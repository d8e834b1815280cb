# SPDX-License-Identifier: Apache-2.0
"""Say which earlier task lets a normal task begin, if any free worker can run it.

Ray gives a task to some worker that is free. If it comes earlier, its own one may still be busy, and it runs in another
one that was free all the time. So it has to wait only until so many tasks have ended that a worker and a CPU are free.
"""

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raymeter.profile.events import Task
from raymeter.profile.program import Program
from raymeter.profile.starts import CREATION


@dataclass(frozen=True)
class Ran:
    """A normal task in its worker, with times in seconds."""

    name: str
    worker: str
    begin: float
    end: float
    ready: float  # from when on it needed only a worker; 0 if that is not known


def find_freeing(tasks: Iterable[Ran], at_once: int) -> dict[str, str]:
    """Return the task that has to end before each one; nothing has to before the first task of a worker.

    tasks: all of one pool of workers; at_once: how many of them have CPUs at the same time, at least 1. A worker is
    there from its first task to its last one. A task that has waited for its own worker begins after it.
    """
    in_order = sorted(tasks, key=begin_of)
    last_of_worker = {task.worker: task for task in in_order}
    before: dict[str, Ran] = {}  # by worker
    last: list[Ran] = []  # one for each worker that is there, in the order of their ends
    freeing: dict[str, str] = {}
    for task in in_order:
        own = before.get(task.worker)
        if own is not None:
            freeing[task.name] = take(last, own, task, at_once).name
        before[task.worker] = task
        if task is not last_of_worker[task.worker]:
            insort(last, task, key=end_of)
    return freeing


def take(last: list[Ran], own: Ran, task: Ran, at_once: int) -> Ran:
    """Return the task that has to end before another one, which takes the first free worker.

    last: the last task of each worker, in the order of their ends; the one of the worker that is taken is removed. own:
    the one before the task in its own worker, where it has waited if it was ready before the end of that.
    """
    has_waited = task.ready <= own.end
    if has_waited and own in last:
        last.remove(own)
        return own
    too_many = max(0, len(last) - at_once)  # of the workers: these have no CPUs
    freeing = last[too_many]
    last.pop(0)
    if has_waited or freeing.end > task.begin:
        return own
    return freeing


def most_at_once(program: Program, normal: Sequence[Task]) -> int:
    """Return how many normal tasks of a program have CPUs at the same time; 0 if that is not sure.

    It is sure for tasks that need the same, on one node. The CPUs of all actors are not free. How many CPUs a placement
    group has is not known.
    """
    kinds = {(task.node, task.cpus, task.runtime_env) for task in normal}
    clusters = program.recording.clusters
    has_resources = any(task.resources for task in normal)
    has_groups = any(map(takes_from_group, program.tasks.values()))
    if len(kinds) != 1 or len(clusters) != 1 or has_resources or has_groups:
        return 0
    cpus = normal[0].cpus
    of_actors = sum(task.cpus for task in program.tasks.values() if task.type == CREATION)
    free = clusters[0].cpus - of_actors
    return int(free / cpus) if cpus and free > 0 else 0


def takes_from_group(task: Task) -> bool:
    """Return whether a task or an actor takes what it needs from a placement group, such as CPU_group_0_ and an id."""
    return any("_group_" in name for name in task.resources)


def begin_of(task: Ran) -> float:
    return task.begin


def end_of(task: Ran) -> float:
    return task.end
