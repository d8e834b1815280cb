# SPDX-License-Identifier: Apache-2.0
"""Find workers whose last lines are missing: Ray ended them before they had written them, or recording failed."""

from raymeter.profile.events import Process, Task
from raymeter.profile.reader import Recording
from raymeter.profile.workers import Workers

# A function that runs for 5 ms and more has a line (MIN_SECONDS in inside/runs.py). Ray counts more to it than that.
MIN_SECONDS = 0.01
MAX_NAMES = 3  # of processes in one sentence


def count_cut_workers(recording: Recording) -> int:
    """Return how many workers have ended before the last lines of their tasks were written.

    Ray knows each task, and when it ended. A worker is cut if such a task, which is long enough to have a line, ended
    after the last line of the worker, and has none. Lines of shorter tasks may be missing without a sign.
    """
    workers = Workers(recording)
    processes = {process.process: process for process in recording.processes}
    recorded = {run.by for run in recording.runs}
    cut = set()
    for task in recording.tasks:
        process = processes.get(workers.process_of(task))
        if process is not None and task.task not in recorded and is_after(task, process):
            cut.add(process.process)
    return len(cut)


def find_errors(recording: Recording) -> dict[str, str]:
    """Return the type of the error by which recording has ended, for each process in which it has."""
    errors = {}
    for process in recording.processes:
        if process.recorder is not None and process.recorder.error:
            errors[process.process] = process.recorder.error
    return errors


def say_errors(recording: Recording) -> str:
    """Return in which processes recording has ended by an error, and by which; "" for none."""
    errors = find_errors(recording)
    if not errors:
        return ""
    kinds = ", ".join(sorted(set(errors.values())))
    names = sorted(errors)[:MAX_NAMES]
    if len(errors) > MAX_NAMES:
        names.append(f"{len(errors) - MAX_NAMES} more")
    return f"recording ended by an error ({kinds}) in {', '.join(names)}"


def say_cut(recording: Recording) -> str:
    """Return why the last lines of the driver are missing, as far as it was seen: a signal is the usual reason.

    If the program has exited, the driver may be another process, which the program has started.
    """
    if recording.has_exited:
        return (
            "recording ended before the program did, as on a full disk, or if a process that the "
            "program has started is killed"
        )
    return "the program was killed"


def is_after(task: Task, process: Process) -> bool:
    """Return whether a task that must have a line ended after the last line that its worker has written."""
    cost = process.recorder
    if cost is not None and cost.error:
        return False  # it is named with its error
    end = task.finished or task.failed
    if cost is None or cost.has_ended or cost.left_out_events or end is None or not task.execute:
        return False
    start, executed = task.execute
    return end > cost.time and executed - start >= MIN_SECONDS
