# SPDX-License-Identifier: Apache-2.0
"""Find tasks that Ray knows, and whose process has recorded nothing.

What such a task reads, returns and does is not in the profile. So nothing follows from its absence.
"""

from collections.abc import Sequence

from raymeter.profile.events import Task
from raymeter.profile.program import Program
from raymeter.profile.reader import Recording

DRIVER = "DRIVER_TASK"
MAX_NAMES = 3
HELP = "To record them, install raymeter where they run."


def find_unrecorded(program: Program) -> list[Task]:
    """Return the tasks that have run in a process of which there is no file, if Ray knows its process id.

    Another process on another node may have the same id.
    """
    unrecorded = []
    for task in program.recording.tasks:
        has_run = bool(task.execute and task.pid) and task.type != DRIVER
        if has_run and not program.workers.may_be_at(task.node, task.pid):
            unrecorded.append(task)
    return unrecorded


def say_unrecorded(program: Program) -> str:
    """Return in one line which tasks were not recorded, why, as far as it was seen, and what to do; "" for none."""
    tasks = find_unrecorded(program)
    if not tasks:
        return ""
    names = sorted({task.name for task in tasks})
    listed = ", ".join(names[:MAX_NAMES])
    more = len(names) - MAX_NAMES
    if more > 0:
        listed += f" and {more} more"
    count = len(tasks)
    text = f"{count:,} tasks" if count > 1 else "1 task"
    text += f" ({listed}) ran in processes that were not recorded: what was read, returned and done there is missing."
    return f"{text} {say_reason(program.recording, tasks)}"


def say_reason(recording: Recording, tasks: Sequence[Task]) -> str:
    """Return what all of these tasks have in common, and no recorded one has, and what to do."""
    missing = {task.task for task in tasks}
    recorded = [task for task in recording.tasks if task.task not in missing and task.execute]
    nodes = {task.node for task in recorded}
    if nodes and not any(task.node in nodes for task in tasks):
        return "They ran on other nodes: copy the files of their folders into this one."
    environments = {task.runtime_env for task in recorded}
    if all(task.runtime_env and task.runtime_env not in environments for task in tasks):
        parts: set[str] = set()
        for task in tasks:
            parts.update(task.parts_of_env)
        listed = ", ".join(sorted(parts))
        return f"Only they have a runtime_env with {listed}. {HELP}"
    return f"Why is not known. {HELP}"
