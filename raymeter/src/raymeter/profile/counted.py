# SPDX-License-Identifier: Apache-2.0
"""Make the calls that were only counted again, from what Ray itself has recorded of their tasks.

Over its budget, the recorder writes few of the short calls of a line. Ray knows each task, with its parent and the
time at which it was submitted. The line and the thread are those of the call of the same function by the same parent
that was written next to it.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from statistics import median

from raymeter.profile.events import Call, CountedLine, Process, Task
from raymeter.profile.reader import Recording

Caller = tuple[str, str]  # name of a task, and its parent
Key = tuple[str, str, str]  # process, line, and what is called
TASK_DIGITS = 48  # of the id of an object, which begins with that of the task that made it
FIRST_RESULT = "01000000"  # the end of the id of the first object that a task returns
NEVER_SUBMITTED = ("DRIVER_TASK", "ACTOR_CREATION_TASK")


def restore_calls(recording: Recording) -> list[Call]:
    """Return the submissions that were not written, as far as Ray knows their tasks, in the order of time.

    A task is left out if no call of the same function by the same parent was written. Return [] if all were written.
    """
    seconds = unwritten_seconds(recording)
    if not seconds:
        return []
    tasks = {task.task: task for task in recording.tasks}
    written = written_by_caller(recording, tasks)
    submissions = [call for call in recording.calls if call.event == "call"]
    submitted = {call.task for call in submissions}
    restored: list[Call] = []
    unsubmitted = unsubmitted_by_caller(recording, submitted)
    for caller, left_out in unsubmitted.items():
        calls = written.get(caller, [])
        if not calls:
            continue
        again = restore(calls, left_out, seconds, tasks)
        restored += again
    separate(restored, recording.calls)
    restored.sort(key=start_of)
    for number, call in enumerate(restored, 1):
        call.number = -number  # those of written calls are positive
    return restored


def start_of(call: Call) -> float:
    return call.start


def unwritten_seconds(recording: Recording) -> dict[Key, float]:
    """Return how long the submissions of each line took in the mean that were only counted."""
    written: dict[Key, float] = defaultdict(float)
    for call in recording.calls:
        if call.event == "call":
            key = call.process, call.line, call.name
            written[key] += call.seconds
    seconds = {}
    for process in recording.processes:
        for item in sampled_lines(process):
            if item.kind == "call":
                key = process.process, item.line, item.name
                seconds[key] = mean_left_out(item, written[key])
    return seconds


def mean_left_out(item: CountedLine, written_seconds: float) -> float:
    """Return how long a call took in the mean that was only counted."""
    seconds = item.seconds - written_seconds
    count = item.count - item.written
    return max(0.0, seconds) / count


def written_by_caller(recording: Recording, tasks: dict[str, Task]) -> dict[Caller, list[Call]]:
    """Return the submissions that were written, by the name of their task and its parent, in the order of time."""
    written: dict[Caller, list[Call]] = defaultdict(list)
    for call in recording.calls:
        task = tasks.get(call.task)
        if call.event != "call" or task is None:
            continue
        caller = task.name, task.parent
        written[caller].append(call)
    return written


def unsubmitted_by_caller(recording: Recording, submitted: set[str]) -> dict[Caller, list[Task]]:
    """Return the tasks without a call that submits them, by their name and parent."""
    left_out: dict[Caller, list[Task]] = defaultdict(list)
    for task in recording.tasks:
        if task.task in submitted or task.type in NEVER_SUBMITTED:
            continue
        if task.submitted is not None:
            caller = task.name, task.parent
            left_out[caller].append(task)
    return left_out


def restore(
    written: list[Call], left_out: list[Task], seconds: dict[Key, float], tasks: dict[str, Task]
) -> list[Call]:
    """Return the calls that submitted these tasks, each like the last one that was written before it.

    written: calls of the same function, in the order of time, at least one; the first of them counts for tasks before
    it. `seconds` are those of `unwritten_seconds`: a task is left out if all calls of its line were written.
    """
    starts = [call.start for call in written]
    before = submitted_after(written, tasks)
    restored: list[Call] = []
    for task in left_out:
        submitted = task.submitted or 0.0
        position = bisect_right(starts, submitted) - 1
        last_before = max(0, position)
        like = written[last_before]
        key = like.process, like.line, like.name
        if key in seconds:
            start = submitted - before
            call = like_written(like, task, start, seconds[key])
            restored.append(call)
    return restored


def submitted_after(written: list[Call], tasks: dict[str, Task]) -> float:
    """Return how long after the start of its call Ray has recorded a task as submitted, in the median; 0 if unknown."""
    delays = []
    for call in written:
        submitted = tasks[call.task].submitted
        if submitted is not None:
            delay = submitted - call.start
            delays.append(max(0.0, delay))
    if not delays:
        return 0.0
    return median(delays)


def like_written(like: Call, task: Task, start: float, seconds: float) -> Call:
    """Return a call like a written one that submits another task. What it sent is not known, and left out."""
    return replace(
        like,
        start=start,
        seconds=seconds,
        task=task.task,
        messages=[],
        references=[],
        own_seconds=0.0,
        contained=0,
        is_restored=True,
    )


def separate(restored: list[Call], written: list[Call]) -> None:
    """Let no call that was made again overlap another one of its thread, because its times are not exact."""
    lanes: dict[tuple[str, int], list[Call]] = defaultdict(list)
    both = restored + written
    both.sort(key=start_of)
    for call in both:
        lane = call.process, call.thread
        lanes[lane].append(call)
    for calls in lanes.values():
        begin_after_written(calls)
        end_before_next(calls)


def begin_after_written(calls: list[Call]) -> None:
    """Move calls that were made again behind a written call in which they would begin."""
    last = 0.0
    for call in calls:
        if call.is_restored:
            call.start = max(call.start, last)
        else:
            last = max(last, call.end)


def end_before_next(calls: list[Call]) -> None:
    """End calls that were made again before the next call begins."""
    for call, following in pairwise(calls):
        if not call.is_restored:
            continue
        gap = following.start - call.start
        room = max(0.0, gap)
        call.seconds = min(call.seconds, room)


def sampled_lines(process: Process) -> list[CountedLine]:
    """Return the lines of a process of which some calls were not written."""
    cost = process.recorder
    if cost is None:
        return []
    return [item for item in cost.counted if item.count > item.written]


def complete_objects(recording: Recording) -> None:
    """Add the objects that calls of ray.get have waited for, and that were too many to be written.

    They are taken for the results of the same function as the last known object, of the tasks that were submitted last
    before the call. A call whose last written object is of no known task stays as it is.
    """
    tasks = {task.task: task for task in recording.tasks}
    by_caller: dict[Caller, list[Task]] = defaultdict(list)
    for task in recording.tasks:
        if task.submitted is not None:
            caller = task.name, task.parent
            by_caller[caller].append(task)
    for call in recording.calls:
        missing = call.count - len(call.objects)
        if call.event != "get" or missing <= 0:
            continue
        last = call.objects[-1] if call.objects else ""
        name = last[:TASK_DIGITS]
        known = tasks.get(name)
        if known is not None:
            caller = known.name, known.parent
            alike = by_caller[caller]
            call.objects += unlisted_objects(call, alike, missing)


def unlisted_objects(call: Call, tasks: list[Task], missing: int) -> list[str]:
    """Return the results of the tasks, in the order of their submission, that were submitted last before a call."""
    end = bisect_left(tasks, call.start, key=lambda task: task.submitted or 0.0)
    begin = end - call.count
    first = max(0, begin)
    last_tasks = tasks[first:end]
    listed = {item[:TASK_DIGITS] for item in call.objects}
    names = [task.task for task in last_tasks]
    others = [name for name in names if name not in listed]
    results = [name + FIRST_RESULT for name in others]
    return results[-missing:]
