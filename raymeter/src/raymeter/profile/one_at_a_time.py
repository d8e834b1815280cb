# SPDX-License-Identifier: Apache-2.0
"""Recognise a thread that submits one task, gets its result, and then submits the next one."""

from collections.abc import Iterable, Sequence

from raymeter.profile.counted import TASK_DIGITS
from raymeter.profile.events import Call

MIN_SHARE = 0.9  # of the tasks of a thread, whose results it gets before it submits another one
MAX_TASKS = 1.1  # of each pass, in the mean, if it has one


def is_one_at_a_time(calls: Sequence[Call]) -> bool:
    """Return whether a thread waits for each task that could run beside the others before it submits the next one."""
    submissions = [call for call in calls if call.event == "call" and call.kind != "actor"]
    if not submissions or not could_run_together(submissions):
        return False
    last = ""
    taken = 0
    for call in calls:
        if call.event == "call":
            last = call.task
        elif gets_only(call, last):
            taken += 1
    return taken >= MIN_SHARE * len(submissions)


def has_one_task_each(calls: Sequence[Call], passes: int) -> bool:
    """Return whether a thread does nothing else in each of its passes."""
    submissions = [call for call in calls if call.event == "call"]
    has_others = len(submissions) > MAX_TASKS * passes
    return not has_others and is_one_at_a_time(calls)


def could_run_together(submissions: Iterable[Call]) -> bool:
    """Return whether tasks are functions, or methods of several actors."""
    actors = [call.actor for call in submissions if call.kind == "method"]
    are_functions = not actors
    return are_functions or len(set(actors)) > 1


def gets_only(call: Call, task: str) -> bool:
    """Return whether a call waits for one result, that of this task."""
    if call.event != "get" or call.count != 1 or not call.objects:
        return False
    return call.objects[0][:TASK_DIGITS] == task
