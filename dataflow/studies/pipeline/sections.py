# SPDX-License-Identifier: Apache-2.0
"""Say how schedules of pipelines are shown: the share of the time in which stages wait, beside that of formulas."""

from statistics import fmean, median
from typing import NamedTuple

import msgspec

from dataflow.analysis.result import Result
from dataflow.report import tables
from dataflow.report.sections import Group, Table, by_sizes
from dataflow.report.tables import Column, format_milliseconds
from dataflow.studies.pipeline import SCHEDULES, Schedule
from dataflow.studies.pipeline.actor import Steps


def steps_of(result: Result) -> list[Steps]:
    """Return the timed steps of each run that counts."""
    measured = [run.measured["pipeline"] for run in result.shown_runs]
    return [msgspec.convert(values, Steps) for values in measured]


def schedule_of(result: Result) -> tuple[Schedule, int, int]:
    """Return the schedule, the number of stages, and the micro-batches per step."""
    sizes = result.workload.sizes
    schedule = SCHEDULES[str(sizes["schedule"])]
    stages = int(sizes["pipeline_stages"])
    batches = int(sizes["micro_batches"])
    return schedule, stages, batches


class Bubbles(NamedTuple):
    """Shares of a step in which stages wait."""

    measured: float  # mean of the runs' medians
    expected: float  # by the formula

    @property
    def points(self) -> float:
        """Return the difference in percentage points."""
        return 100 * (self.measured - self.expected)


def bubbles(result: Result) -> Bubbles:
    """Return the measured and the expected share of a step in which stages wait."""
    schedule, stages, batches = schedule_of(result)
    measured = fmean(measured_bubble(steps) for steps in steps_of(result))
    expected = float(schedule.bubble(stages, batches))
    return Bubbles(measured, expected)


def measured_bubble(steps: Steps) -> float:
    """Return the median share of a step in which stages wait, of one run."""
    pairs = zip(steps.compute_seconds, steps.stage_seconds, strict=True)
    return median(1 - compute / stage for compute, stage in pairs)


def format_held(result: Result) -> str:
    """Return the largest number of activations that each stage held at the same time, in any run."""
    schedule, stages, batches = schedule_of(result)
    of_runs = steps_of(result)
    counts = []
    for actor in result.flow.actors:
        most = max(steps.held_activations[actor] for steps in of_runs)
        counts.append(most)
    expected = [schedule.held(stage, stages, batches) for stage in range(stages)]
    text = ", ".join(map(str, counts))
    if counts == expected:
        return text
    formula = ", ".join(map(str, expected))
    return f"{text} (formula: {formula})"


def count_messages(result: Result) -> str:
    """Return the number of messages between stages per step."""
    between_stages = [edge for edge in result.flow.edges if not edge.message.is_flat]
    return str(len(between_stages))


def format_batch_time(result: Result) -> str:
    """Return the milliseconds of a step per micro-batch."""
    _, _, batches = schedule_of(result)
    return format_milliseconds(result.typical_seconds / batches)


COLUMNS = (
    Column("configuration", tables.marked_label),
    tables.READERS,
    Column("mean ms (p50, p95) per step", tables.format_with_tail),
    tables.SLOW_ITERATIONS,
    Column("95 % interval", tables.format_interval, rank=4),
    Column("ms per micro-batch", format_batch_time),
    Column("bubble, measured", lambda r: f"{bubbles(r).measured:.1%}"),
    Column("bubble by the formula", lambda r: f"{bubbles(r).expected:.1%}"),
    Column("difference in percentage points", lambda r: f"{bubbles(r).points:+.1f}"),
    Column("largest number of activations that each stage held", format_held),
    Column("messages between stages", count_messages, rank=2),
    Column("CPU ms", lambda r: format_milliseconds(r.cpu_seconds_per_iteration), rank=3),
    tables.OVERHEAD,
)


def describe_differences(group: Group) -> str:
    """Return how far the bubbles are from the formulas."""
    points = sorted((bubbles(result).points, result.label) for result in group.done)
    least, first = points[0]
    most, last = points[-1]
    lowest = f"{least:+.1f} (`{first}`)"
    highest = f"{most:+.1f} percentage points (`{last}`)"
    return f"The measured bubbles differ from the formulas by {lowest} to {highest}."


def title_of(result: Result) -> str:
    """Return the sizes that all results of a table have."""
    _, stages, batches = schedule_of(result)
    task_seconds = result.workload.sizes["task_seconds"]
    return f"Pipeline of {stages} stages, {batches} micro-batches, {task_seconds} per task"


def by_schedule(group: Group) -> list[Result]:
    """Return the results in the order of SCHEDULES, and the slowest first within a schedule."""
    names = list(SCHEDULES)

    def order(result: Result) -> tuple[int, float]:
        schedule = str(result.workload.sizes["schedule"])
        return names.index(schedule), -result.typical_seconds

    return sorted(group.done, key=order)


PIPELINE = Table(
    "pipeline",
    lambda group: COLUMNS,
    by_schedule,
    title_of,
    describe_differences,
    group_by=by_sizes("schedule"),
)
SECTIONS = {"pipeline": PIPELINE}
