# SPDX-License-Identifier: Apache-2.0
"""Count the calls of a library's thread as calls of the thread whose tasks it waits for.

ray.util.multiprocessing.Pool, for example, has a thread that waits for the results of each map. The thread that has
called map waits for this one without a call of Ray.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence

from raymeter.profile.counted import TASK_DIGITS
from raymeter.profile.events import Call
from raymeter.profile.reader import Recording

LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python3\.\d+/")
WAITS = ("get", "wait")

Lane = tuple[str, int, str]  # process, thread and task


def is_users(line: str) -> bool:
    """Return whether a line is the user's. A thread of a library, such as one of Ray Data, has none."""
    return bool(line) and not LIBRARY.search(line)


def lane_of(call: Call) -> Lane:
    return call.process, call.thread, call.by


def join_helpers(recording: Recording) -> None:
    """Give the calls of threads that only wait for the tasks of one other thread to that one, with its line."""
    submissions = {call.task: call for call in recording.calls if call.event == "call"}
    by_lane: dict[Lane, list[Call]] = defaultdict(list)
    for call in recording.calls:
        lane = lane_of(call)
        by_lane[lane].append(call)
    threads: dict[tuple[str, int], int] = {}  # by process and number of a call
    for lane, calls in by_lane.items():
        owner = find_owner(lane, calls, submissions)
        if owner is None:
            continue
        own = by_lane[owner]
        move(calls, own, submissions)
        for call in calls:
            key = call.process, call.number
            threads[key] = call.thread
    if not threads:
        return
    recording.calls.sort(key=lambda call: call.start)
    for received in recording.received:
        key = received.process, received.scope
        received.thread = threads.get(key, received.thread)


def find_owner(lane: Lane, calls: Sequence[Call], submissions: dict[str, Call]) -> Lane | None:
    """Return the thread that has submitted all tasks for which these calls wait; None if several have, or none has.

    It is None, too, if one of the calls does anything else, or if the thread is in another process.
    """
    if not all(is_waiting(call) for call in calls):
        return None
    owners: set[Lane] = set()
    for call in calls:
        submitting = find_submissions(call, submissions)
        owners.update(lane_of(submission) for submission in submitting)
    if len(owners) != 1 or lane in owners:
        return None
    (owner,) = owners
    owner_process, _, _ = owner
    process, _, _ = lane
    if owner_process != process:
        return None
    return owner


def is_waiting(call: Call) -> bool:
    """Return whether a library waits in this call."""
    return call.event in WAITS and not is_users(call.line)


def find_submissions(call: Call, submissions: dict[str, Call]) -> list[Call]:
    """Return the calls that have submitted the tasks for which a call waits."""
    known = []
    for reference in call.objects:
        task = reference[:TASK_DIGITS]
        submission = submissions.get(task)
        if submission is not None:
            known.append(submission)
    return known


def move(calls: Sequence[Call], own: Sequence[Call], submissions: dict[str, Call]) -> None:
    """Put calls into another thread, after those of its own calls that begin before they end."""
    starts = [call.start for call in own]
    for call in calls:
        position = bisect_right(starts, call.end) - 1
        first_or_before = max(0, position)
        before = own[first_or_before]
        submitting = find_submissions(call, submissions)
        end = max(call.end, before.end)
        call.start = max(call.start, before.end)
        call.seconds = end - call.start
        first = submitting[0] if submitting else before
        call.line = first.line
        call.frames = first.frames
        call.entry = first.entry
        call.thread = before.thread
        call.by = before.by
        call.by_name = before.by_name
