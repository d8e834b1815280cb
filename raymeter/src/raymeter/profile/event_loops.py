# SPDX-License-Identifier: Apache-2.0
"""Put right what Ray mixes up of the tasks of an event loop.

Methods of an async actor run at the same time in one thread. Ray may show the phases of one of them with another one,
or with none, and the recorder cannot always tell which of them has returned a message. The states of the tasks, and who
has read a message, are known for sure.
"""

from bisect import bisect_left
from collections import defaultdict
from dataclasses import replace

from raymeter.profile.events import Run, Sent, Task
from raymeter.profile.reader import Recording
from raymeter.profile.weights import leaves_out_messages
from raymeter.profile.workers import Workers

CLOCK_SECONDS = 0.001  # by which the clocks of two events may differ
MAX_AT_ONCE = 1_000  # methods of an async actor, by default of Ray


class EventLoops:
    """The actors of a recording that have coroutines among their methods."""

    def __init__(self, recording: Recording) -> None:
        self.tasks = {task.task: task for task in recording.tasks}
        self.workers = Workers(recording)
        self.has_left_out = leaves_out_messages(recording)
        self.runs: dict[str, Run] = {}
        self.lines: dict[str, str] = {}  # of methods
        self.actors: set[str] = set()
        for run in recording.runs:
            if run.has_event_loop and run.by in self.tasks:
                self.add_run(run)
        self.results: dict[str, list[Sent]] = defaultdict(list)  # by process
        for sent in recording.sent:
            if not sent.scope:
                of_process = self.results[sent.process]
                of_process.append(sent)
        self.read: set[tuple[str, int]] = set()  # task, and bytes of its result
        for received in recording.received:
            result = received.owner_task, received.bytes
            self.read.add(result)

    def add_run(self, run: Run) -> None:
        """Add a run of a method in an event loop."""
        task = self.tasks[run.by]
        self.runs[run.by] = run
        self.lines[task.name] = run.line
        self.actors.add(task.actor)

    def put_right(self) -> dict[str, Task]:
        """Return the tasks by id, with phases that fit their states; messages get the task that returned them."""
        by_actor: dict[str, list[Task]] = defaultdict(list)
        for task in self.tasks.values():
            if task.actor in self.actors and self.is_known(task):
                of_actor = by_actor[task.actor]
                of_actor.append(task)
        for tasks in by_actor.values():
            self.put_actor_right(tasks)
        return self.tasks

    def is_known(self, task: Task) -> bool:
        """Return whether it is known when a task ran."""
        has_ended = bool(task.running and task.finished)
        return has_ended or task.task in self.runs

    def put_actor_right(self, tasks: list[Task]) -> None:
        """Put the results and the phases of the tasks of one actor right."""
        tasks.sort(key=finish_of)
        results = self.put_results_right(tasks)
        for task in tasks:
            run = self.runs.get(task.task)
            result = results.get(task.task)
            if run is not None:
                self.tasks[task.task] = with_times_of_run(task, run, result)
            elif not has_right_phases(task):
                self.tasks[task.task] = with_times_of_states(task, result)

    def put_results_right(self, tasks: list[Task]) -> dict[str, Sent]:
        """Let each result belong to the task that returned it; return the first one of each task.

        tasks: those of one actor, in the order of their ends, at least one. A result that fits none of them stays as it
        was recorded.
        """
        first = tasks[0]
        process = self.workers.process_of(first)
        firsts: dict[str, Sent] = {}
        for sent in self.results[process]:
            task = self.find_unread(sent, first.actor) or self.find_sender(sent, tasks, firsts)
            if task is None:
                continue
            sent.by = task.task
            sent.by_name = task.name
            sent.line = self.lines.get(task.name, sent.line)
            firsts.setdefault(task.task, sent)
        return firsts

    def find_unread(self, sent: Sent, actor: str) -> Task | None:
        """Return the task of an actor that the recorder has named as the sender, if it ran then, and was not read.

        It may have been read, and that was left out. None if no message was left out.
        """
        task = self.tasks.get(sent.by)
        is_read = (sent.by, sent.bytes) in self.read
        if is_read or not self.has_left_out:
            return None
        if task is None or task.actor != actor:
            return None
        begin = begin_of(task) - CLOCK_SECONDS
        end = finish_of(task) + CLOCK_SECONDS
        if begin <= sent.start <= end:
            return task
        return None

    def find_sender(self, sent: Sent, tasks: list[Task], taken: dict[str, Sent]) -> Task | None:
        """Return the task that has returned a message: it ran then, and somebody has got as many bytes from it.

        Of several, that is the one that ended first, because an event loop stores one result after the other. `tasks`
        are in the order of their ends. One that already has another result (`taken`) counts only if there is no other.
        None if no task fits.
        """
        found: Task | None = None
        earliest = sent.start - CLOCK_SECONDS
        latest = sent.start + CLOCK_SECONDS
        first = bisect_left(tasks, earliest, key=finish_of)
        last = first + MAX_AT_ONCE
        for task in tasks[first:last]:
            result = task.task, sent.bytes
            if begin_of(task) > latest or result not in self.read:
                continue
            if task.task not in taken:
                return task
            found = found or task
        return found


def finish_of(task: Task) -> float:
    return task.finished or 0.0


def begin_of(task: Task) -> float:
    return task.running or 0.0


def has_right_phases(task: Task) -> bool:
    """Return whether the phases of a task follow each other, between its states."""
    last = begin_of(task)
    for phase in (task.deserialise, task.execute, task.store):
        if phase is None:
            return False
        start, end = phase
        earliest = last - CLOCK_SECONDS
        if start < earliest or end < start:
            return False
        last = end
    latest = finish_of(task) + CLOCK_SECONDS
    return last <= latest


def with_times_of_states(task: Task, result: Sent | None) -> Task:
    """Return a task that runs until its result is serialised; until its end if it has none that is large."""
    begin = begin_of(task)
    end = finish_of(task)
    executed = serialise_at(result, begin, end)
    read = end_of_reading(task, executed)
    reading = begin, read
    executing = read, executed
    storing = executed, end
    return replace(task, deserialise=reading, execute=executing, store=storing)


def serialise_at(result: Sent | None, begin: float, end: float) -> float:
    """Return when a result is serialised, between two times; the end if there is none."""
    if result is None:
        return end
    start = max(begin, result.start)
    return min(end, start)


def end_of_reading(task: Task, executed: float) -> float:
    """Return when a task has read its arguments; its begin if what Ray shows as this belongs to another task."""
    begin = begin_of(task)
    if task.deserialise is None:
        return begin
    start, stop = task.deserialise
    earliest = begin - CLOCK_SECONDS
    is_its_own = earliest <= start <= stop <= executed
    if not is_its_own:
        return begin
    return max(begin, stop)


def with_times_of_run(task: Task, run: Run, result: Sent | None) -> Task:
    """Return a task whose phases are those around a run of its function; then its result is serialised and stored."""
    running = task.running or run.start
    begin = min(run.start, running)
    finished = finish_of(task)
    end = max(run.end, finished)
    executed = run.end
    if result is not None:
        executed = serialise_at(result, run.end, end)
    reading = begin, run.start
    executing = run.start, executed
    storing = executed, end
    return replace(task, deserialise=reading, execute=executing, store=storing)
