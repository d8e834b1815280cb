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

from raymeter.profile.events import Call, CountedLine, Task
from raymeter.profile.reader import Recording

Caller = tuple[str, str]  # name of a task, and its parent
Key = tuple[str, str, str]  # process, line, and what is called
TASK_DIGITS = 48  # of the id of an object, which begins with that of the task that made it
FIRST_RESULT = "01000000"  # the end of the id of the first object that a task returns
NEVER_SUBMITTED = ("DRIVER_TASK", "ACTOR_CREATION_TASK")


def restore_calls(recording: Recording) -> list[Call]:
    """Return the submissions that were not written, as far as Ray knows their tasks, in the order of time."""
    seconds = unwritten_seconds(recording)
    if not seconds:
        return []
    tasks = {task.task: task for task in recording.tasks}
    written = written_by_caller(recording, tasks)
    restored: list[Call] = []
    submitted = {call.task for call in recording.calls if call.event == "call"}
    for caller, left_out in unsubmitted_by_caller(recording, submitted).items():
        calls = written.get(caller, [])
        if calls:
            restored += restore(calls, left_out, seconds, tasks)
    separate(restored, recording.calls)
    restored.sort(key=lambda call: call.start)
    for number, call in enumerate(restored, 1):
        call.number = -number
    return restored


def unwritten_seconds(recording: Recording) -> dict[Key, float]:
    """Return how long the submissions of each line took in the mean that were only counted."""
    written: dict[Key, float] = defaultdict(float)
    for call in recording.calls:
        if call.event == "call":
            written[call.process, call.line, call.name] += call.seconds
    seconds = {}
    for process in recording.processes:
        counted = process.recorder.counted if process.recorder else []
        for item in counted:
            left_out = item.count - item.written
            if item.kind == "call" and left_out > 0:
                key = process.process, item.line, item.name
                seconds[key] = mean_left_out(item, written[key])
    return seconds


def mean_left_out(item: CountedLine, written_seconds: float) -> float:
    """Return how long a call took in the mean that was only counted."""
    left_out = max(0.0, item.seconds - written_seconds)
    return left_out / (item.count - item.written)


def written_by_caller(recording: Recording, tasks: dict[str, Task]) -> dict[Caller, list[Call]]:
    """Return the submissions that were written, by the name of their task and its parent, in the order of time."""
    written: dict[Caller, list[Call]] = defaultdict(list)
    for call in recording.calls:
        task = tasks.get(call.task)
        if call.event == "call" and task is not None:
            written[task.name, task.parent].append(call)
    return written


def unsubmitted_by_caller(recording: Recording, submitted: set[str]) -> dict[Caller, list[Task]]:
    """Return the tasks without a call that submits them, by their name and parent."""
    left_out: dict[Caller, list[Task]] = defaultdict(list)
    for task in recording.tasks:
        if task.task in submitted or task.type in NEVER_SUBMITTED or task.submitted is None:
            continue
        left_out[task.name, task.parent].append(task)
    return left_out


def restore(
    written: list[Call], left_out: list[Task], seconds: dict[Key, float], tasks: dict[str, Task]
) -> list[Call]:
    """Return the calls that submitted these tasks, each like the last one that was written before it."""
    starts = [call.start for call in written]
    before = submitted_after(written, tasks)
    restored: list[Call] = []
    for task in left_out:
        submitted = task.submitted or 0.0
        position = bisect_right(starts, submitted) - 1
        like = written[max(0, position)]
        key = like.process, like.line, like.name
        if key in seconds:
            call = like_written(like, task, submitted - before, seconds[key])
            restored.append(call)
    return restored


def submitted_after(written: list[Call], tasks: dict[str, Task]) -> float:
    """Return how long after the start of its call Ray has recorded a task as submitted."""
    delays = []
    for call in written:
        submitted = tasks[call.task].submitted
        if submitted is not None:
            delays.append(max(0.0, submitted - call.start))
    return median(delays) if delays else 0.0


def like_written(like: Call, task: Task, start: float, seconds: float) -> Call:
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
    for call in sorted([*restored, *written], key=lambda call: call.start):
        lanes[call.process, call.thread].append(call)
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
        if call.is_restored:
            room = max(0.0, following.start - call.start)
            call.seconds = min(call.seconds, room)


def complete_objects(recording: Recording) -> None:
    """Add the objects that calls of ray.get have waited for, and that were too many to be written.

    They are taken for the results of the same function that were submitted last before the call.
    """
    tasks = {task.task: task for task in recording.tasks}
    by_caller: dict[Caller, list[Task]] = defaultdict(list)
    for task in recording.tasks:
        if task.submitted is not None:
            by_caller[task.name, task.parent].append(task)
    for call in recording.calls:
        missing = call.count - len(call.objects)
        if call.event != "get" or missing <= 0 or not call.objects:
            continue
        last = call.objects[-1]
        known = tasks.get(last[:TASK_DIGITS])
        if known is not None:
            alike = by_caller[known.name, known.parent]
            call.objects += unlisted_objects(call, alike, missing)


def unlisted_objects(call: Call, tasks: list[Task], missing: int) -> list[str]:
    """Return the results of the tasks, in the order of their submission, that were submitted last before a call."""
    end = bisect_left(tasks, call.start, key=lambda task: task.submitted or 0.0)
    first = max(0, end - call.count)
    listed = {item[:TASK_DIGITS] for item in call.objects}
    results = [task.task + FIRST_RESULT for task in tasks[first:end] if task.task not in listed]
    return results[-missing:]
