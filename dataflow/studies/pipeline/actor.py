"""Compute for the time of each task of a stage, in the order of the schedule."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import msgspec

from dataflow.errors import RunFailed
from dataflow.records.schema import Run
from dataflow.studies import Collector, Part


class Steps(msgspec.Struct, forbid_unknown_fields=True):
    """Timed steps of a pipeline, in order."""

    compute_seconds: list[float] = []  # of all tasks of a stage: the mean of the stages
    stage_seconds: list[float] = []  # from the beginning of a stage's first task to the end of its last: the longest
    held_activations: dict[str, int] = {}  # stage -> largest number at the same time


def steps_of(run: Run) -> Steps | None:
    return msgspec.convert(run.measured["pipeline"], Steps) if "pipeline" in run.measured else None


@dataclass
class StageTimes:
    """The work of a stage in one step, in seconds of the clock that all processes of a machine share."""

    compute_begin: float = 0.0  # of the first task that has a compute time
    compute_end: float = 0.0  # of the last one
    compute_seconds: float = 0.0  # of all
    held_activations: int = 0  # the largest number at the same time


class StagePart(Part):
    name = "pipeline"

    def __init__(self, endpoint: Any) -> None:
        super().__init__(endpoint)
        self.schedule = [task for task in endpoint.tasks.values() if task.seconds is not None]
        self.position, self.held_activations = 0, 0
        self.times = StageTimes()

    def run(self, task: str, number: int) -> None:
        """Compute for the time of the task; raise RunFailed if another task of this actor must come first."""
        this, times = self.endpoint.tasks[task], self.times
        if this.seconds is None:
            return
        expected = self.schedule[self.position]
        if this is not expected:
            raise RunFailed(f"{self.endpoint.name} ran {task} before {expected.name}: this is another schedule")
        self.position = (self.position + 1) % len(self.schedule)
        self.held_activations += max(this.holds, 0)
        times.held_activations = max(times.held_activations, self.held_activations)
        begin = time.perf_counter()
        self.endpoint.compute(this.seconds)
        times.compute_begin, times.compute_end = times.compute_begin or begin, time.perf_counter()
        times.compute_seconds += times.compute_end - begin
        self.held_activations += min(this.holds, 0)

    def end_group(self, number: int) -> StageTimes:
        times, self.times = self.times, StageTimes()
        return times


class StepCollector(Collector):
    def __init__(self, plan: Any) -> None:
        super().__init__(plan)
        self.steps = Steps()

    def add(self, values: Mapping[str, StageTimes], is_timed: bool) -> Mapping[str, int]:
        stages, steps = {name: stage for name, stage in values.items() if stage.compute_end}, self.steps
        if is_timed:
            steps.compute_seconds.append(fmean(stage.compute_seconds for stage in stages.values()))
            steps.stage_seconds.append(max(stage.compute_end - stage.compute_begin for stage in stages.values()))
        for name, stage in stages.items():
            steps.held_activations[name] = max(stage.held_activations, steps.held_activations.get(name, 0))
        return {}

    def result(self, driver_seconds: Callable[[str, float], float]) -> tuple[Steps, str | None]:
        return self.steps, None
