# SPDX-License-Identifier: Apache-2.0
"""Say what fits into the cluster at the same time, so that no advice makes a program wait for ever, or fill its memory.

The CPUs, the GPUs and the memory of the cluster were recorded, and how many CPUs and GPUs each task takes. Of other
resources, only the names were: as much of them fits as was held at the same time. This also holds for GPUs if tasks
take a part of one: Ray puts two of num_gpus=0.5 onto one GPU, where each may take twice as long, which was not
measured. And it holds for tasks of one kind if others hold GPUs, because nothing tells on which nodes these are, or if
anything is in a placement group, because nothing tells how many GPUs this has.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raymeter.causes.at_once import Hold, most_at_once
from raymeter.causes.work_of_tasks import WorkOfTasks
from raymeter.profile.events import Task
from raymeter.profile.program import CLOCK_SECONDS, Program
from raymeter.profile.starts import CREATION, NORMAL, begin_of, end_of

GPU = "GPU"
MAX_MEMORY = 0.5  # of that of the cluster
# At the end of the names of its resources, which Ray gives in place of CPU, GPU and others.
PLACEMENT_GROUP = re.compile("_group_([0-9]+_)?[0-9a-f]{36}$")


@dataclass(frozen=True)
class Holder:
    """A task or an actor that takes a part of the cluster for itself; methods use what their actor has."""

    task: Task
    begin: float
    sure_end: float  # an actor lives at least until its last task has ended
    last_end: float  # and perhaps for ever, if its process has not said when it ended


class Capacity:
    """What the tasks and actors of a program hold, and what the cluster has.

    Nothing is known of a task without times, so it is not among the holders.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.work = WorkOfTasks(program)
        self.peaks = {run.by: run.peak_bytes for run in program.recording.runs}
        self.holders = self.find_holders()
        self.known: dict[tuple[str, str], int] = {}  # by the names of a task and of a resource

    def find_holders(self) -> list[Holder]:
        """Return all tasks and actors that take CPUs or other resources, and whose times are known.

        Methods are left out: they use what their actor has.
        """
        last_ends: dict[str, float] = defaultdict(float)  # by actor
        for task in self.program.tasks.values():
            end = end_of(task)
            last_ends[task.actor] = max(last_ends[task.actor], end)
        holders = []
        for task in self.program.tasks.values():
            begin = begin_of(task)
            is_holding = bool(task.cpus or task.resources)
            if not begin or not is_holding:  # begin: 0 if it is not known
                continue
            if task.type == CREATION:
                last_end = self.end_of_process(task)
                holders.append(Holder(task, begin, last_ends[task.actor], last_end))
            elif task.type == NORMAL:
                end = end_of(task)
                holders.append(Holder(task, begin, end, end))
        return holders

    def end_of_process(self, task: Task) -> float:
        """Return when the process of an actor ended; infinity if it was killed, or has not ended."""
        name = self.program.process_of(task)
        for process in self.program.recording.processes:
            cost = process.recorder
            if process.process == name and cost is not None and cost.has_ended:
                return cost.time
        return math.inf

    def most_at_once(self, name: str, resource: str) -> int:
        """Return how many tasks of a name may have a resource at the same time: at least one.

        As many have been seen to have it, or have place on the GPUs of the cluster.
        """
        key = name, resource
        if key not in self.known:
            tasks = holding(resource, self.holders)
            of_name = [holder for holder in tasks if holder.task.name == name]
            seen = most_together(of_name)
            has_groups = any(map(is_in_placement_group, self.holders))
            is_alone = len(of_name) == len(tasks) and not has_groups
            fitting = self.fit_on_gpus(of_name) if resource == GPU and is_alone else 0
            self.known[key] = max(1, seen, fitting)
        return self.known[key]

    def fit_on_gpus(self, holders: Sequence[Holder]) -> int:
        """Return how many tasks or actors like these, also more than these, fit on the GPUs of all nodes at once.

        The one that takes most GPUs counts; the result is 0 if that is no whole number, or if it takes none. If the
        program has used several clusters, one after the other, the one with the least place counts.
        """
        most_taken_gpus = max((holder.task.gpus for holder in holders), default=0.0)
        if not most_taken_gpus or not most_taken_gpus.is_integer():
            return 0
        places = []
        for cluster in self.program.recording.clusters:
            on_nodes = [int(gpus / most_taken_gpus) for gpus in cluster.gpus]
            places.append(sum(on_nodes))
        return min(places, default=0)

    def least_seconds(self, tasks: Iterable[Task]) -> float:
        """Return how many seconds tasks, with those that they submit, take at least with resources other than CPUs.

        That is 0 if they take none, or only methods of actors do.
        """
        parts = []
        for task in tasks:
            parts += self.work.tree(task)
        seconds: dict[str, float] = defaultdict(float)
        for part in parts:
            if part.type != NORMAL or not begin_of(part):
                continue
            held = end_of(part) - begin_of(part)  # also while it waits for others
            for resource in part.resources:
                at_once = self.most_at_once(part.name, resource)
                seconds[resource] += held / at_once
        return max(seconds.values(), default=0.0)

    def has_memory(self, tasks: Sequence[Task]) -> bool:
        """Return whether tasks at the same time fit into a part of the memory, MAX_MEMORY; True if this is not known.

        Of an actor, only the method with the largest peak counts. Of tasks, those with the largest peaks count: as many
        as have CPUs at the same time. A task whose peak was not measured counts as 0. Of several clusters, the one with
        most memory counts.
        """
        clusters = self.program.recording.clusters
        memory = max((cluster.memory for cluster in clusters), default=0.0)
        of_actors: dict[str, int] = defaultdict(int)
        of_tasks = []
        for task in tasks:
            peak = self.peaks.get(task.task, 0)
            if task.actor:
                of_actors[task.actor] = max(of_actors[task.actor], peak)
            else:
                of_tasks.append(peak)
        of_tasks.sort(reverse=True)
        slots = self.slots_of(tasks)
        needed = sum(of_actors.values()) + sum(of_tasks[:slots])
        return not memory or needed <= MAX_MEMORY * memory

    def slots_of(self, tasks: Iterable[Task]) -> int | None:
        """Return how many of these tasks have CPUs of Ray at the same time; None if all may."""
        least = min((task.cpus for task in tasks if not task.actor), default=0.0)
        return int(self.work.cpus / least) if least else None


def holding(resource: str, holders: Iterable[Holder]) -> list[Holder]:
    return [holder for holder in holders if resource in holder.task.resources]


def is_of_placement_group(name: str) -> bool:
    """Return whether a resource is a part of a placement group: CPU_group_0_ or bundle_group_, and the id."""
    return PLACEMENT_GROUP.search(name) is not None


def is_in_placement_group(holder: Holder) -> bool:
    """Return whether something takes what it needs from a placement group."""
    return any(map(is_of_placement_group, holder.task.resources))


def most_together(holders: Iterable[Holder]) -> int:
    """Return how many surely had their resources at one time, which is longer than by which clocks may differ."""
    sure = []
    for holder in holders:
        begin = holder.begin + CLOCK_SECONDS
        sure.append(Hold(begin, holder.sure_end))
    most = most_at_once(sure)
    return round(most)
