# SPDX-License-Identifier: Apache-2.0
"""Split the time of a wait into what it was for: a worker to start, CPUs, other calls, or a function that ran."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate

from raymeter.profile.events import Call, Task
from raymeter.profile.program import TASK_DIGITS, Program
from raymeter.profile.starts import CREATION, METHOD, begin_of, end_of, find_starts

MAX_DEPTH = 20  # of tasks that wait for the result of another one
CLOCK_SECONDS = 0.001  # by which the clocks of two events may differ


class Reason(Enum):
    """What a wait is for."""

    WORKER = "a worker to start"
    ACTOR = "an actor to be created"
    CPUS = "CPUs"
    QUEUE = "other calls before it"
    RUNNING = "a function that runs"
    DATA = "arguments or results"
    UNKNOWN = "something that was not recorded"


@dataclass(frozen=True)
class Part:
    """A part of a wait, with the name of the task or method for which it was."""

    reason: Reason
    name: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return max(0.0, self.end - self.start)

    def within(self, begin: float, end: float) -> "Part":
        """Return what of this part is between two times."""
        start = max(begin, self.start)
        stop = min(end, self.end)
        return Part(self.reason, self.name, start, stop)


class Splitter:
    """Split the waits of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.starts = find_starts(program)
        self.creations: dict[str, Task] = {}  # by actor
        self.of_actor = defaultdict[str, list[Task]](list)
        for task in program.tasks.values():
            actor = task.actor
            if task.type == CREATION:
                self.creations[actor] = task
            elif task.type == METHOD:
                methods = self.of_actor[actor]
                methods.append(task)
        self.last_ends: dict[str, list[float]] = {}  # of each method and all that began before it
        for actor, methods in self.of_actor.items():
            methods.sort(key=begin_of)
            ends = map(end_of, methods)
            self.last_ends[actor] = list(accumulate(ends, max))

    def split(self, call: Call) -> list[Part]:
        """Return the parts of a wait, in the order of time; one part for Reason.UNKNOWN if no task of it is known."""
        task = self.last_task(call)
        if task is None:
            unknown = Part(Reason.UNKNOWN, "", call.start, call.end)
            return [unknown]
        return self.split_time(task, call.start, call.end, MAX_DEPTH)

    def last_task(self, call: Call) -> Task | None:
        """Return the task for which a call waited longest: of those that ended in time, the one that ended last.

        It is the first known one if none did, and None if none is known.
        """
        tasks = self.tasks_of(call.objects)
        latest = call.end + CLOCK_SECONDS
        ended = [task for task in tasks if 0 < end_of(task) <= latest]
        first = tasks[0] if tasks else None
        return max(ended, key=end_of, default=first)

    def split_time(self, task: Task, begin: float, end: float, depth: int) -> list[Part]:
        """Return for what a wait for a task was between two times. The rest of the time, at its end, is for data.

        depth: how many tasks it may follow that made the arguments of the next one. If this is used up, the time
        before the arguments were there is for data. A task of which Ray has no times gives one UNKNOWN part.
        """
        if not begin_of(task):
            unknown = Part(Reason.UNKNOWN, task.name, begin, end)
            return [unknown]
        before = self.before_start(task, begin, depth)
        after = after_start(task)
        parts = []
        time = begin
        for part in before + after:
            inside = part.within(time, end)
            if inside.seconds:
                parts.append(inside)
                time = inside.end
        if time < end:
            rest = Part(Reason.DATA, task.name, time, end)
            parts.append(rest)
        return parts

    def before_start(self, task: Task, begin: float, depth: int) -> list[Part]:
        """Return what a task waits for until it begins to read its arguments, in the order of time.

        Parts may begin before `begin`. If it waits for its arguments first, the parts of the task that made the last
        one come first; one part for data if that task is not known, or with a depth of 0.
        """
        is_method = task.type == METHOD
        parts = self.before_method(task) if is_method else self.before_function(task)
        needs = time_of_arguments(task)
        submitted = task.submitted or needs
        since = max(begin, submitted)
        if needs <= since + CLOCK_SECONDS:
            return parts
        producer = self.last_producer(task) if depth else None
        if producer is None:
            for_arguments = Part(Reason.DATA, task.name, submitted, needs)
            return [for_arguments, *parts]
        earlier = self.split_time(producer, since, needs, depth - 1)
        return earlier + parts

    def tasks_of(self, references: Iterable[str]) -> list[Task]:
        """Return the tasks that made these objects, as far as they are known."""
        found = []
        for reference in references:
            name = reference[:TASK_DIGITS]
            task = self.program.tasks.get(name)
            if task is not None:
                found.append(task)
        return found

    def last_producer(self, task: Task) -> Task | None:
        """Return the task whose result another one needs as an argument, the one that ended last; None if unknown."""
        submission = self.program.submissions.get(task.task)
        if submission is None:
            return None
        producers = self.tasks_of(submission.references)
        known = [producer for producer in producers if end_of(producer)]
        return max(known, key=end_of, default=None)

    def before_function(self, task: Task) -> list[Part]:
        """Return what a task that is no method waits for after its arguments are there.

        That is CPUs, and then the start of its worker (or the creation of its actor), or else other calls before it.
        """
        name = task.name
        needs = time_of_arguments(task)
        begin = begin_of(task)
        start = self.starts.get(task.task)
        if start is None:
            sent = task.sent_to_worker or needs
            for_cpus = Part(Reason.CPUS, name, needs, sent)
            queued = Part(Reason.QUEUE, name, sent, begin)
            return [for_cpus, queued]
        is_creation = task.type == CREATION
        reason = Reason.ACTOR if is_creation else Reason.WORKER
        there = executed_from(task)
        for_cpus = Part(Reason.CPUS, name, needs, start.begin)
        starting = Part(reason, name, start.begin, there)
        return [for_cpus, starting]

    def before_method(self, task: Task) -> list[Part]:
        """Return what a method waits for after its arguments are there: its actor, and then other calls of it.

        If no other one ran meanwhile, the time after the creation of the actor is for data.
        """
        name = task.name
        parts = []
        needs = time_of_arguments(task)
        creation = self.creations.get(task.actor)
        created = end_of(creation) if creation else 0.0
        if created > needs:
            there = executed_from(task) if self.is_first(task) else created
            creating = Part(Reason.ACTOR, name, needs, there)
            parts.append(creating)
        queued_from = max(needs, created)
        is_queued = self.has_others(task, queued_from)
        reason = Reason.QUEUE if is_queued else Reason.DATA
        begin = begin_of(task)
        queued = Part(reason, name, queued_from, begin)
        parts.append(queued)
        return parts

    def is_first(self, task: Task) -> bool:
        """Return whether no other method of the actor began before this one."""
        first = self.of_actor[task.actor][0]
        return first is task

    def has_others(self, task: Task, since: float) -> bool:
        """Return whether other methods of its actor ran while one was waiting."""
        begin = begin_of(task)
        methods = self.of_actor[task.actor]
        count = bisect_left(methods, begin, key=begin_of)
        if not count:
            return False
        last_ends = self.last_ends[task.actor]
        return last_ends[count - 1] > since


def time_of_arguments(task: Task) -> float:
    """Return when the arguments of a task were there."""
    return task.waits_for_node or task.submitted or 0.0


def executed_from(task: Task) -> float:
    """Return when the function of a task begins to run."""
    if task.execute is None:
        return begin_of(task)
    begin, _ = task.execute
    return begin


def after_start(task: Task) -> list[Part]:
    """Return what a task does from the reading of its arguments on."""
    if task.execute is None:
        return []
    begin, end = task.execute
    name = task.name
    reading_from = begin_of(task)
    reading = Part(Reason.DATA, name, reading_from, begin)
    running = Part(Reason.RUNNING, name, begin, end)
    return [reading, running]


def sum_parts(parts: Iterable[Part]) -> dict[tuple[Reason, str], float]:
    """Return the seconds of each reason and name."""
    seconds: dict[tuple[Reason, str], float] = defaultdict(float)
    for part in parts:
        key = part.reason, part.name
        seconds[key] += part.seconds
    return dict(seconds)
