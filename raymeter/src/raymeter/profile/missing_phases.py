# SPDX-License-Identifier: Apache-2.0
"""Take the states of a task for the time in which it was executed, where Ray has not recorded its phases.

A worker reports the phases of its tasks a moment after them. So they are missing for the last tasks of one that
`ray.kill` ends (seen in 2.60). The states are there, because the caller and the raylet report them, too.
"""

from collections.abc import Iterable

from raymeter.profile.events import Task

DRIVER = "DRIVER_TASK"


def complete_phases(tasks: Iterable[Task]) -> None:
    """Let each task that has ended without an error, and of which Ray has no time of execution, have one.

    It is from the end of reading the arguments to that of the task; from its start if the former is not known either.
    """
    for task in tasks:
        is_open = task.execute is None and task.type != DRIVER
        if is_open and task.running is not None and task.finished is not None:
            task.execute = execution_of_states(task, task.running, task.finished)


def execution_of_states(task: Task, begin: float, end: float) -> tuple[float, float]:
    """Return when a task was executed, if it began and ended at these times."""
    if task.deserialise is not None:
        _, read = task.deserialise
        begin = min(max(begin, read), end)
    return begin, end
