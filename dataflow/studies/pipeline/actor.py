"""Compute for the time of each task of a stage, in the order of the schedule."""

import time
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import msgspec

from dataflow.errors import RunFailed
from dataflow.studies import Collector, Part


class Steps(msgspec.Struct, forbid_unknown_fields=True):
    """Timed steps of a pipeline, in order."""

    compute_seconds: list[float] = []  # of all tasks of a stage: the mean of the stages
    stage_seconds: list[float] = []  # from the beginning of a stage's first task to the end of its last: the longest
    held_activations: dict[str, int] = {}  # stage -> largest number at the same time


# Of a step of a stage: seconds of all tasks, seconds from the beginning of the first to the end of the last one, and
# the largest number of activations held at the same time, in this step and those before.
StageStep = tuple[float, float, int]


class StagePart(Part):
    name = "pipeline"

    def __init__(self, endpoint: Any) -> None:
        super().__init__(endpoint)
        self.schedule = [task.name for task in endpoint.tasks.values() if task.work]
        self.position, self.held, self.most_held = 0, 0, 0
        self.intervals: list[tuple[float, float]] = []  # begin and end of each task of this step

    def run(self, task: str, number: int) -> None:
        """Compute for the time of the task; raise RunFailed if another task of this actor must come first."""
        work = self.endpoint.tasks[task].work
        if work is None:
            return
        expected = self.schedule[self.position]
        if task != expected:
            raise RunFailed(f"{self.endpoint.name} ran {task} before {expected}: this is another schedule")
        self.position = (self.position + 1) % len(self.schedule)
        self.held += work.held_change
        self.most_held = max(self.held, self.most_held)
        begin = time.perf_counter()
        self.endpoint.compute(work.seconds)
        self.intervals.append((begin, time.perf_counter()))

    def end_group(self, number: int) -> StageStep | None:
        """Return the last step; None: this worker is no stage."""
        intervals, self.intervals = self.intervals, []
        if not intervals:
            return None
        return sum(end - begin for begin, end in intervals), intervals[-1][1] - intervals[0][0], self.most_held


class StepCollector(Collector):
    def __init__(self, plan: Any) -> None:
        super().__init__(plan)
        self.measured = Steps()

    def add(self, values: Mapping[str, StageStep | None], is_timed: bool) -> Mapping[str, int]:
        stages = {name: step for name, step in values.items() if step}
        compute_seconds, stage_seconds, held = zip(*stages.values(), strict=True)
        if is_timed:
            self.measured.compute_seconds.append(fmean(compute_seconds))
            self.measured.stage_seconds.append(max(stage_seconds))
        self.measured.held_activations = dict(zip(stages, held, strict=True))
        return {}
