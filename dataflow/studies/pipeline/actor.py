# SPDX-License-Identifier: Apache-2.0
"""Compute for the time of each task of a stage, in the order of the schedule."""

import time
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import msgspec

from dataflow.errors import RunFailed
from dataflow.study import Part


class Steps(msgspec.Struct, forbid_unknown_fields=True):
    """Timed steps of a pipeline, in order."""

    compute_seconds: list[float] = []  # of all tasks of a stage: the mean of the stages
    # From the beginning of a stage's first task to the end of its last: the longest.
    stage_seconds: list[float] = []
    held_activations: dict[str, int] = {}  # stage -> largest number at the same time


class StageStep(NamedTuple):
    """A step of one stage."""

    compute_seconds: float  # of all tasks
    stage_seconds: float  # from the beginning of the first task to the end of the last one
    most_held: int  # activations at the same time, in this step and those before


Group = tuple[Mapping[str, StageStep | None], bool]  # by worker, and whether it is timed


class StagePart(Part):
    """Run the tasks of a stage."""

    name = "pipeline"

    def __init__(self, endpoint: Any) -> None:
        super().__init__(endpoint)
        self.schedule = [task.name for task in endpoint.tasks.values() if task.work]
        self.position = 0
        self.held = 0
        self.most_held = 0
        self.intervals: list[tuple[float, float]] = []  # begin and end of each task of this step

    def run(self, task: str, number: int) -> None:
        """Compute for the time of the task; raise RunFailed if another task of this actor must come first.

        A task without work, such as the last one of a stage, has no time.
        """
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
        end = time.perf_counter()
        self.intervals.append((begin, end))

    def end_group(self, number: int) -> StageStep | None:
        """Return the last step; None: this worker is no stage."""
        intervals = self.intervals
        self.intervals = []
        if not intervals:
            return None
        compute_seconds = sum(end - begin for begin, end in intervals)
        first_begin, _ = intervals[0]
        _, last_end = intervals[-1]
        stage_seconds = last_end - first_begin
        return StageStep(compute_seconds, stage_seconds, self.most_held)


def collect_steps(plan: Any, groups: Sequence[Group], driver_seconds: Any) -> tuple[Steps, None]:
    """Return the timed steps, and the activations that stages have held at most in all steps."""
    measured = Steps()
    for values, is_timed in groups:
        stages = {name: step for name, step in values.items() if step}
        steps = stages.values()
        if is_timed:
            compute_seconds = fmean(step.compute_seconds for step in steps)
            measured.compute_seconds.append(compute_seconds)
            stage_seconds = max(step.stage_seconds for step in steps)
            measured.stage_seconds.append(stage_seconds)
        measured.held_activations = {name: step.most_held for name, step in stages.items()}
    return measured, None
