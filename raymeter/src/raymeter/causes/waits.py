"""What the causes about waiting share: when results were ready, and how many calls there were."""

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
            if run.kind == "generator":
                for item in items_of(run):
                    self.known[item.object] = item.end

    def of(self, reference: str) -> float | None:
        """Return the time at which an object was ready; None if Ray does not know it."""
        if reference in self.known:
            return self.known[reference]
        task = self.program.tasks.get(reference[:TASK_DIGITS])
        return end_of(task) if task is not None else None


def end_of(task: Task) -> float | None:
    """Return when the results of a task were stored."""
    if task.execute is None:
        return None
    _, end = task.execute
    return max(end, task.store[1]) if task.store else end


def group_by_lane(calls: Iterable[Call], steps: Steps) -> dict[Lane, list[Call]]:
    """Return the calls during the steps that one task makes at one line, in the order of time."""
    lanes: dict[Lane, list[Call]] = defaultdict(list)
    for call in calls:
        if call.line and steps.of(call.start) is not None:
            lanes[call.process, call.thread, call.by, call.line].append(call)
    return lanes


def group_by_line(calls: Iterable[Call], steps: Steps) -> dict[str, list[Call]]:
    """Return the calls during the steps by their line."""
    lines: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        if call.line and steps.of(call.start) is not None:
            lines[call.line].append(call)
    return lines


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
    gaps: list[Gap] = []
    for process in program.recording.processes:
        own = [task for task in program.tasks.values() if task.pid == process.pid]
        timed = [task for task in own if task.execute is not None]
        timed.sort(key=start_of)
        for earlier, later in pairwise(timed):
            gap = Gap(process.process, later.task, end_of(earlier) or 0.0, start_of(later))
            if was_waiting(later, gap):
                gaps.append(gap)
    gaps.sort(key=lambda gap: gap.start)
    return gaps


def start_of(task: Task) -> float:
    """Return when a task began to read its arguments; 0 if Ray does not know it."""
    first = task.deserialise or task.execute
    return first[0] if first else 0.0


def was_waiting(task: Task, gap: Gap) -> bool:
    """Return whether a task could have begun before the short gap in front of it."""
    since = task.waits_for_node or task.submitted
    if since is None or since > gap.start:
        return False
    return 0 < gap.seconds <= MAX_DISPATCH_SECONDS


class Counts:
    """How many calls there were, and how long they took, per call that was written: 1 without sampling."""

    def __init__(self, program: Program) -> None:
        counts: dict[tuple[str, str], int] = defaultdict(int)
        written: dict[tuple[str, str], int] = defaultdict(int)
        for process in program.recording.processes:
            for item in process.recorder.counted if process.recorder else []:
                counts[item.kind, item.line] += item.count
                written[item.kind, item.line] += item.written
        self.counts = counts
        self.written = written

    def factor(self, event: str, line: str) -> float:
        """Return how many calls of this kind a line made for each one that was written."""
        key = event, line
        return self.counts[key] / self.written[key] if self.written[key] else 1.0
