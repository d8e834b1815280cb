# SPDX-License-Identifier: Apache-2.0
"""What the causes about waiting share: when results were ready, and what Ray took between two tasks."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from raymeter.profile.events import Call, Task
from raymeter.profile.program import TASK_DIGITS, Program
from raymeter.profile.steps import Steps
from raymeter.simulate.graph import MAX_DISPATCH_SECONDS
from raymeter.simulate.items import items_of

Lane = tuple[str, int, str, str]  # process, thread, task and line


class ReadyTimes:
    """Say when the objects of a program were ready."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.known: dict[str, float] = {}
        for call in program.recording.calls:
            if call.event == "put":
                self.known[call.object] = call.end
        for run in program.recording.runs:
            if run.kind != "generator":
                continue
            for item in items_of(run):
                self.known[item.object] = item.end

    def of(self, reference: str) -> float | None:
        """Return the time at which an object was ready; None if Ray does not know it."""
        if reference in self.known:
            return self.known[reference]
        name = reference[:TASK_DIGITS]
        task = self.program.tasks.get(name)
        if task is None:
            return None
        return end_of(task)


def end_of(task: Task) -> float | None:
    """Return when the results of a task were stored."""
    if task.execute is None:
        return None
    _, end = task.execute
    if not task.store:
        return end
    _, stored = task.store
    return max(end, stored)


def group_by_lane(calls: Iterable[Call], steps: Steps) -> dict[Lane, list[Call]]:
    """Return the calls during the steps that one task makes at one line, in the order of time."""
    lanes: dict[Lane, list[Call]] = defaultdict(list)
    for call in with_line_in_steps(calls, steps):
        lane = call.process, call.thread, call.by, call.line
        lanes[lane].append(call)
    return lanes


def group_by_line(calls: Iterable[Call], steps: Steps) -> dict[str, list[Call]]:
    """Return the calls during the steps by their line."""
    lines: dict[str, list[Call]] = defaultdict(list)
    for call in with_line_in_steps(calls, steps):
        lines[call.line].append(call)
    return lines


def with_line_in_steps(calls: Iterable[Call], steps: Steps) -> list[Call]:
    """Return the calls during the steps whose line is known."""
    with_line = [call for call in calls if call.line]
    return [call for call in with_line if steps.of(call.start) is not None]


@dataclass(frozen=True)
class Gap:
    """The time between two tasks of a worker, the second of which had been submitted before it."""

    process: str
    task: str  # the second one
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


def find_gaps(program: Program) -> list[Gap]:
    """Return what Ray took to begin tasks that were waiting."""
    by_process: dict[str, list[Task]] = defaultdict(list)
    for task in program.tasks.values():
        process = program.process_of(task)
        by_process[process].append(task)
    gaps: list[Gap] = []
    for process, tasks in by_process.items():
        if process:
            gaps += gaps_between(tasks, process)
    gaps.sort(key=lambda gap: gap.start)
    return gaps


def gaps_between(tasks: list[Task], process: str) -> list[Gap]:
    """Return the gaps between the tasks of one process."""
    timed = [task for task in tasks if task.execute is not None]
    timed.sort(key=start_of)
    gaps: list[Gap] = []
    for earlier, later in pairwise(timed):
        start = end_of(earlier) or 0.0
        end = start_of(later)
        gap = Gap(process, later.task, start, end)
        if was_waiting(later, gap):
            gaps.append(gap)
    return gaps


def start_of(task: Task) -> float:
    """Return when a task began to read its arguments; 0 if Ray does not know it."""
    first = task.deserialise or task.execute
    if not first:
        return 0.0
    start, _ = first
    return start


def was_waiting(task: Task, gap: Gap) -> bool:
    """Return whether a task could have begun before the short gap in front of it."""
    since = task.waits_for_node or task.submitted
    if since is None or since > gap.start:
        return False
    return 0 < gap.seconds <= MAX_DISPATCH_SECONDS
