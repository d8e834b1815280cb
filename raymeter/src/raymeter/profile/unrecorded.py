# SPDX-License-Identifier: Apache-2.0
"""Find tasks that Ray knows, and whose process has recorded nothing.

What such a task reads, returns and does is not in the profile. So nothing follows from its absence.
"""

from collections.abc import Sequence

from raymeter.profile.events import Task
from raymeter.profile.reader import Recording

DRIVER = "DRIVER_TASK"
MAX_NAMES = 3
HELP = "To record them, install raymeter where they run."


def find_unrecorded(recording: Recording) -> list[Task]:
    """Return the tasks that have run in a process of which there is no file, if Ray knows its process id."""
    known = {process.pid for process in recording.processes}
    executed = [task for task in recording.tasks if task.execute and task.type != DRIVER]
    return [task for task in executed if task.pid and task.pid not in known]


def say_unrecorded(recording: Recording) -> str:
    """Return in one line which tasks were not recorded, why, as far as it was seen, and what to do; "" for none."""
    tasks = find_unrecorded(recording)
    if not tasks:
        return ""
    names = sorted({task.name for task in tasks})
    listed = ", ".join(names[:MAX_NAMES])
    if len(names) > MAX_NAMES:
        listed += f" and {len(names) - MAX_NAMES} more"
    count = len(tasks)
    text = f"{count:,} tasks" if count > 1 else "1 task"
    text += f" ({listed}) ran in processes that were not recorded: what was read, returned and done there is missing."
    return f"{text} {say_reason(recording, tasks)}"


def say_reason(recording: Recording, tasks: Sequence[Task]) -> str:
    """Return what all of these tasks have in common, and no recorded one has, and what to do."""
    missing = {task.task for task in tasks}
    recorded = [task for task in recording.tasks if task.task not in missing and task.execute]
    nodes = {task.node for task in recorded}
    if nodes and not any(task.node in nodes for task in tasks):
        return "They ran on other nodes: copy the files of their folders into this one."
    environments = {task.runtime_env for task in recorded}
    if all(task.runtime_env and task.runtime_env not in environments for task in tasks):
        parts = sorted({part for task in tasks for part in task.parts_of_env})
        return f"Only they have a runtime_env with {', '.join(parts)}. {HELP}"
    return f"Why is not known. {HELP}"
