# SPDX-License-Identifier: Apache-2.0
"""Say how much of a task is computing, how long it has a CPU of Ray, and which of its work gets shorter.

The tasks that a task submits count as a part of it. While it waits for them, Ray gives its CPU to others.
"""

from collections import defaultdict
from collections.abc import Sequence

from raymeter.findings import Saving
from raymeter.profile.events import Call, Run, Task
from raymeter.profile.program import Phase, Program
from raymeter.simulate.nesting import outermost

WAITS = ("get", "wait", "next")


class WorkOfTasks:
    """The work of each task of a program, with that of the tasks that it submits."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.runs: dict[str, Run] = {run.by: run for run in program.recording.runs}
        self.waits: dict[str, list[Call]] = defaultdict(list)  # by the task that waits
        self.children: dict[str, list[Task]] = defaultdict(list)
        for call in program.recording.calls:
            if call.event in WAITS:
                self.waits[call.by].append(call)
        for task in program.tasks.values():
            self.children[task.parent].append(task)

    @property
    def cores(self) -> int:
        """Return the number of cores of all machines on which the program was recorded."""
        by_host: dict[str, int] = {}
        for process in self.program.recording.processes:
            by_host[process.host] = process.cores
        return sum(by_host.values())

    @property
    def cpus(self) -> float:
        """Return how many CPUs Ray has for tasks: as many as there are cores, if the recording does not say it."""
        clusters = self.program.recording.clusters
        return max((cluster.cpus for cluster in clusters), default=self.cores)

    def busy(self, task: Task) -> list[Phase]:
        """Return the times in which a task runs and does not wait for others; [] if Ray does not know when it ran."""
        if task.execute is None:
            return []
        start, end = task.execute
        phases: list[Phase] = []
        for call in outermost(self.waits[task.task]):
            if call.start > start:
                phases.append((start, call.start))
            start = max(start, call.end)
        if end > start:
            phases.append((start, end))
        return phases

    def tree(self, task: Task) -> list[Task]:
        """Return a task, with those that it has submitted, and those that these have submitted."""
        found = [task]
        for known in found:  # grows
            found += self.children[known.task]
        return found

    def computing_seconds(self, task: Task) -> float:
        """Return how long a task uses a core. A short one, of which that was not measured, does all the time."""
        seconds = 0.0
        for part in self.tree(task):
            run = self.runs.get(part.task)
            seconds += run.cpu_seconds if run else total_seconds(self.busy(part))
        return seconds

    def cpu_seconds(self, task: Task) -> float:
        """Return for how many seconds a task has a CPU of Ray, times the number of these."""
        seconds = 0.0
        for part in self.tree(task):
            seconds += self.cpus_of(part) * total_seconds(self.busy(part))
        return seconds

    def cpus_of(self, task: Task) -> float:
        """Return how many CPUs a task needs to run. An actor keeps its own for all of its methods."""
        if task.actor:
            return 0.0
        return task.cpus if self.program.recording.clusters else 1.0

    def shorten(self, task: Task, share: float) -> list[Saving]:
        """Return the savings if all work of a task takes so much less."""
        savings = []
        for part in self.tree(task):
            process = self.program.process_of(part)
            for start, end in self.busy(part):
                seconds = share * (end - start)
                savings.append(Saving(process, 0, (start + end) / 2, seconds, "execute"))
        return savings


def total_seconds(phases: Sequence[Phase]) -> float:
    return sum(end - start for start, end in phases)
