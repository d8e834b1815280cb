"""Compute for the time of each task of a stage, in the order of the schedule."""

import time
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import msgspec

from dataflow.errors import RunFailed
from dataflow.studies import Part


class Steps(msgspec.Struct, forbid_unknown_fields=True):
    """Timed steps of a pipeline, in order."""

    compute_seconds: list[float] = []  # of all tasks of a stage: the mean of the stages
    stage_seconds: list[
        float
    ] = []  # from the beginning of a stage's first task to the end of its last: the longest
    held_activations: dict[str, int] = {}  # stage -> largest number at the same time


# Of a step of a stage: seconds of all tasks, seconds from the beginning of the first to the end of the last one, and
# the largest number of activations held at the same time, in this step and those before.
StageStep = tuple[float, float, int]
Groups = Sequence[
    tuple[Mapping[str, StageStep | None], bool]
]  # by worker, and whether they are timed


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
            raise RunFailed(
                f"{self.endpoint.name} ran {task} before {expected}: this is another schedule"
            )
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
        return (
            sum(end - begin for begin, end in intervals),
            intervals[-1][1] - intervals[0][0],
            self.most_held,
        )


def collect_steps(plan: Any, groups: Groups, driver_seconds: Any) -> tuple[Steps, None]:
    """Return the timed steps, and the activations that stages have held at most in all steps."""
    measured = Steps()
    for values, is_timed in groups:
        stages = {name: step for name, step in values.items() if step}
        compute_seconds, stage_seconds, held = zip(*stages.values(), strict=True)
        if is_timed:
            measured.compute_seconds.append(fmean(compute_seconds))
            measured.stage_seconds.append(max(stage_seconds))
        measured.held_activations = dict(zip(stages, held, strict=True))
    return measured, None
