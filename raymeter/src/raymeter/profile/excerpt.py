# SPDX-License-Identifier: Apache-2.0
"""Take the steps in the middle of a long program: some hundreds say as much as all, in a hundredth of the time."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import replace
from statistics import median_high
from typing import Protocol, TypeVar

from raymeter.profile.events import Sent, Store, Task
from raymeter.profile.program import Program, find_submissions, number_calls
from raymeter.profile.steps import Steps

MAX_EVENTS = 20_000  # calls, messages and tasks that are looked at
MIN_STEPS = 5  # that are kept, however many events they have


class Timed(Protocol):
    """An event with a start and an end."""

    start: float

    @property
    def end(self) -> float: ...


Event = TypeVar("Event", bound=Timed)


def take_excerpt(program: Program, steps: Steps) -> tuple[Program, Steps]:
    """Return a program with the events of some of its steps, and these steps; both as they are if it is short.

    It is short if its steps have at most MAX_EVENTS events, or if there are no more steps than are kept in any case.
    """
    events = count_events(program, steps)
    if events <= MAX_EVENTS:
        return program, steps
    events_per_step = events / steps.count
    fitting = int(MAX_EVENTS / events_per_step)
    count = max(MIN_STEPS, fitting)
    if count >= steps.count:
        return program, steps
    middle = step_of_tasks(program, steps)
    earliest = middle - count // 2
    earliest = max(0, earliest)
    last = steps.count - count
    first = min(earliest, last)
    times = steps.times[first : first + count]
    begin, _ = times[0]
    _, end = times[-1]
    margin = (end - begin) / count  # what the first step needs was sent before it
    excerpt = cut(program, begin - margin, end + margin)
    return excerpt, replace(steps, times=times)


def step_of_tasks(program: Program, steps: Steps) -> int:
    """Return the step in the middle of those whose tasks are known: Ray forgets tasks if they are many.

    It is the middle one of all steps if no task of any is known.
    """
    known = [steps.of(start_of(task)) for task in program.recording.tasks]
    inside = [number for number in known if number is not None]
    if not inside:
        return steps.count // 2
    return median_high(inside)


def count_events(program: Program, steps: Steps) -> int:
    """Return how many calls, messages and tasks belong to the steps."""
    recording = program.recording
    times = [start_of(task) for task in recording.tasks]
    for events in (recording.calls, recording.sent, recording.received):
        times += [event.start for event in events]
    inside = [time for time in times if steps.of(time) is not None]
    return len(inside)


def cut(program: Program, begin: float, end: float) -> Program:
    """Return a program with what happened, at least in part, between two times.

    At all times, it keeps the messages that tell of others like them, with the calls that sent them, and the tasks and
    calls that made actors. A message between the times keeps all its readers.
    """
    recording = program.recording
    messages = []
    sending = set()  # calls
    for message in program.messages:
        sent = message.sent
        is_inside = begin <= sent.start <= end
        if is_inside or tells_of_others(sent):
            messages.append(message)
            sending.add(id(message.call))
    calls = []
    for call in recording.calls:
        is_inside = call.start <= end and call.end >= begin
        if is_inside or call.kind == "actor" or id(call) in sending:
            calls.append(call)
    tasks = [task for task in program.tasks.values() if is_kept(task, begin, end)]
    part = replace(
        recording,
        calls=calls,
        sent=[message.sent for message in messages],
        received=overlapping(recording.received, begin, end),
        runs=overlapping(recording.runs, begin, end),
        tasks=tasks,
        stores=stores_around(recording.stores, begin, end),
    )
    return Program(
        recording=part,
        messages=messages,
        tasks={task.task: task for task in tasks},
        submissions=find_submissions(calls),
        calls=number_calls(calls),
    )


def tells_of_others(sent: Sent) -> bool:
    """Return whether something is known of a message that counts for others like it, too."""
    return bool(sent.fields or sent.alternatives or sent.unfit) or sent.is_same is not None


def overlapping(events: Iterable[Event], begin: float, end: float) -> list[Event]:
    """Return the events that happened between two times, at least in part."""
    return [event for event in events if event.start <= end and event.end >= begin]


def stores_around(stores: list[Store], begin: float, end: float) -> list[Store]:
    """Return the samples between two times, with one before and one after them: between those, so much was spilled.

    The speed of a copy was measured once, and holds for all of them.
    """
    if not stores:
        return []
    position = bisect_right(stores, begin, key=time_of) - 1
    first = max(0, position)
    last = bisect_left(stores, end, key=time_of)
    part = stores[first : last + 1]
    if part:
        copy_rate = max(store.copy_rate for store in stores)
        part[0] = replace(part[0], copy_rate=copy_rate)
    return part


def time_of(store: Store) -> float:
    return store.time


def start_of(task: Task) -> float:
    return task.submitted or task.running or 0.0


def is_kept(task: Task, begin: float, end: float) -> bool:
    """Return whether a task was submitted, waited or ran between two times, created an actor, or is the driver's."""
    if task.type in ("ACTOR_CREATION_TASK", "DRIVER_TASK"):
        return True
    start = start_of(task)
    ended = task.finished or task.failed
    stop = ended or start
    return start <= end and stop >= begin
