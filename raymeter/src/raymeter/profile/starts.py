# SPDX-License-Identifier: Apache-2.0
"""Find the tasks for which a worker had to start, or an actor had to be created.

A worker begins to record when it gets its first task, whether Ray had started it ahead or not. What its first task
waited for is the start of a worker, in which the runtime environment is made, too.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from raymeter.profile.events import Call, Received, Task
from raymeter.profile.program import Phase, Program

NORMAL = "NORMAL_TASK"
CREATION = "ACTOR_CREATION_TASK"
METHOD = "ACTOR_TASK"
WAITS = ("get", "wait")
WARM_SECONDS = 0.002  # from asking for a worker that is there until it begins


@dataclass(frozen=True)
class Start:
    """The time from which on a task could run, until its worker (or its new actor) begins with it."""

    task: Task
    process: str
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return max(0.0, self.end - self.begin)

    @property
    def lost_seconds(self) -> float:
        """Return what is saved if the worker is there already."""
        return max(0.0, self.seconds - WARM_SECONDS)


def begin_of(task: Task) -> float:
    """Return when a task begins to read its arguments; 0 if Ray does not know it."""
    if task.execute is None:
        return 0.0
    begin, _ = task.deserialise or task.execute
    return begin


def end_of(task: Task) -> float:
    """Return when a task has ended; 0 if Ray does not know it."""
    return task.finished or task.failed or 0.0


def find_starts(program: Program) -> dict[str, Start]:
    """Return the starts of workers and the creations of actors, by their task.

    A normal task is here if it is the first one of a process that began to record after the task could run. Tasks of
    which Ray does not know when they began are left out.
    """
    firsts = find_first_tasks(program)
    begins = {process.process: process.start for process in program.recording.processes}
    starts = {}
    for task in program.tasks.values():
        begin = begin_of(task)
        if not begin or task.type not in (CREATION, NORMAL):
            continue
        since = task.waits_for_node or task.submitted or begin
        process = program.process_of(task)
        is_first = firsts.get(process) is task
        if task.type == CREATION:
            starts[task.task] = Start(task, process, since, begin)
        elif is_first and begins[process] > since:
            free = time_of_free_cpus(program, task, since)
            starts[task.task] = Start(task, process, free, begin)
    return starts


def find_first_tasks(program: Program) -> dict[str, Task]:
    """Return the first task of each process."""
    firsts: dict[str, Task] = {}
    timed = [task for task in program.tasks.values() if begin_of(task)]
    for task in sorted(timed, key=begin_of):
        process = program.process_of(task)
        if process:
            firsts.setdefault(process, task)
    return firsts


def time_of_free_cpus(program: Program, task: Task, since: float) -> float:
    """Return when Ray had the CPUs that a task needs. What it waits until then is no start of a worker.

    It is `since` if the CPUs of the cluster are not known, or if they never are enough, and never after the task began.
    """
    cpus = max((cluster.cpus for cluster in program.recording.clusters), default=0.0)
    if not cpus:
        return since
    begin = begin_of(task)
    running = running_between(program, since, begin)
    others = [other for other in running if other is not task]
    ends = map(end_of, others)
    later = [end for end in ends if end >= since]
    for time in sorted([since, *later]):
        taken = [other.cpus for other in others if is_running(other, time)]
        needed = sum(taken) + task.cpus
        if needed <= cpus:
            return min(time, begin)
    return since


def running_between(program: Program, begin: float, end: float) -> list[Task]:
    """Return the normal tasks that have had CPUs of Ray at some time between two times."""
    normal = [task for task in program.tasks.values() if task.type == NORMAL]
    return [task for task in normal if has_run(task, begin, end)]


def has_run(task: Task, begin: float, end: float) -> bool:
    sent = task.sent_to_worker
    if sent is None or sent > end:
        return False
    return end_of(task) >= begin


def is_running(task: Task, time: float) -> bool:
    """Return whether a task has its CPUs at a time."""
    sent = task.sent_to_worker
    if sent is None or sent > time:
        return False
    return end_of(task) > time


def find_first_methods(program: Program) -> dict[str, Task]:
    """Return the first method of each actor, by the actor."""
    firsts: dict[str, Task] = {}
    methods = [task for task in program.tasks.values() if task.type == METHOD]
    for task in sorted(methods, key=begin_of):
        if begin_of(task):
            firsts.setdefault(task.actor, task)
    return firsts


class Starting:
    """Say how long a thread has waited while workers started, which is no work of the program."""

    def __init__(self, program: Program) -> None:
        phases = [(start.begin, start.end) for start in find_starts(program).values()]
        self.phases = join_phases(phases)
        self.begins = [begin for begin, _ in self.phases]

    def waited(self, calls: Sequence[Call], until: float) -> float:
        """Return for how long these calls have waited before a time while at least one worker started.

        calls: those of a thread, in the order of their starts.
        """
        seconds = 0.0
        for call in calls:
            if call.start >= until:
                break
            if call.event in WAITS:
                end = min(call.end, until)
                seconds += self.seconds_between(call.start, end)
        return seconds

    def seconds_between(self, begin: float, end: float) -> float:
        """Return for how long workers started between two times."""
        seconds = 0.0
        before = bisect_right(self.begins, begin) - 1
        for number in range(max(0, before), len(self.phases)):
            start, ready = self.phases[number]
            if start >= end:
                break
            first = max(start, begin)
            last = min(ready, end)
            seconds += max(0.0, last - first)
        return seconds


def join_phases(phases: list[Phase]) -> list[Phase]:
    """Return phases that do not overlap, and cover the same time."""
    joined: list[Phase] = []
    covered = 0.0  # the time until which all is covered
    for begin, end in sorted(phases):
        first = max(begin, covered)
        if end > first:
            joined.append((first, end))
            covered = end
    return joined


class WarmReading:
    """Say how long tasks read their arguments in a worker that has run others before it."""

    def __init__(self, program: Program) -> None:
        self.received: dict[str, list[Received]] = defaultdict(list)
        self.by_bytes: dict[int, float] = {}
        for item in program.recording.received:
            of_task = self.received[item.by]
            of_task.append(item)
            size = item.bytes
            known = self.by_bytes.get(size, item.seconds)
            self.by_bytes[size] = min(known, item.seconds)

    def lost_seconds(self, task: Task) -> float:
        """Return what reading arguments took longer: a new worker imports modules then, and fetches code.

        Each argument may take what the fastest reading of as many bytes took. 0 if Ray does not know the reading.
        """
        if task.deserialise is None:
            return 0.0
        begin, end = task.deserialise
        messages = self.received.get(task.task, [])
        kept = sum(self.by_bytes[item.bytes] for item in messages)
        return max(0.0, end - begin - kept - WARM_SECONDS)
