"""Say how schedules of pipelines are shown: the share of the time in which stages wait, beside that of formulas."""

from statistics import fmean, median

import msgspec

from dataflow.analysis.result import Result
from dataflow.report import tables
from dataflow.report.sections import Group, Table, by_sizes
from dataflow.report.tables import Column, format_milliseconds
from dataflow.studies.pipeline import SCHEDULES, Schedule
from dataflow.studies.pipeline.actor import Steps


def steps_of(result: Result) -> list[Steps]:
    return [msgspec.convert(run.measured["pipeline"], Steps) for run in result.shown_runs]


def schedule_of(result: Result) -> tuple[Schedule, int, int]:
    """Return the schedule, the number of stages, and the micro-batches per step."""
    sizes = result.workload.sizes
    return (
        SCHEDULES[str(sizes["schedule"])],
        int(sizes["pipeline_stages"]),
        int(sizes["micro_batches"]),
    )


def bubbles(result: Result) -> tuple[float, float, float]:
    """Return the share of a step in which stages wait (mean of the runs' medians), that of the formula, the rest."""
    schedule, stages, batches = schedule_of(result)
    pairs = [
        zip(steps.compute_seconds, steps.stage_seconds, strict=True) for steps in steps_of(result)
    ]
    measured = fmean(
        median(1 - compute / stage for compute, stage in pairs_of_run) for pairs_of_run in pairs
    )
    expected = float(schedule.bubble(stages, batches))
    return measured, expected, measured - expected


def format_held(result: Result) -> str:
    """Return the largest number of activations that each stage held at the same time, in any run."""
    schedule, stages, batches = schedule_of(result)
    counts = [
        max(steps.held_activations[stage] for steps in steps_of(result))
        for stage in result.flow.actors
    ]
    expected = [schedule.held(stage, stages, batches) for stage in range(stages)]
    text = ", ".join(map(str, counts))
    return text if counts == expected else f"{text} (formula: {', '.join(map(str, expected))})"


COLUMNS = (
    Column("configuration", tables.marked_label),
    tables.READERS,
    Column("ms per step", tables.format_typical),
    Column("95 % interval", tables.format_interval, 4),
    Column(
        "ms per micro-batch", lambda r: format_milliseconds(r.typical_seconds / schedule_of(r)[2])
    ),
    Column("bubble, measured", lambda r: f"{bubbles(r)[0]:.1%}"),
    Column("bubble by the formula", lambda r: f"{bubbles(r)[1]:.1%}"),
    Column("difference in percentage points", lambda r: f"{100 * bubbles(r)[2]:+.1f}"),
    Column("largest number of activations that each stage held", format_held),
    Column(
        "messages between stages",
        lambda r: f"{sum(not edge.message.is_flat for edge in r.flow.edges)}",
        2,
    ),
    Column("CPU ms", lambda r: format_milliseconds(r.cpu_seconds_per_iteration), 3),
    tables.OVERHEAD,
)


def describe_differences(group: Group) -> str:
    """Return how far the bubbles are from the formulas."""
    points = sorted((100 * bubbles(result)[2], result.label) for result in group.done)
    (least, first), (most, last) = points[0], points[-1]
    return (f"The measured bubbles differ from the formulas by {least:+.1f} (`{first}`) to {most:+.1f} percentage "
            f"points (`{last}`).")  # fmt: skip


def title_of(result: Result) -> str:
    _, stages, batches = schedule_of(result)
    return f"Pipeline of {stages} stages, {batches} micro-batches, {result.workload.sizes['task_seconds']} per task"


SECTIONS = {
    "pipeline": Table(
        "pipeline", lambda group: COLUMNS, lambda group: sorted(
            group.done, key=lambda r: ([*SCHEDULES].index(str(r.workload.sizes["schedule"])), -r.typical_seconds)),
        title_of, describe_differences, group_by=by_sizes("schedule"),
    )
}  # fmt: skip
