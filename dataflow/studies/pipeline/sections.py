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
    return SCHEDULES[str(sizes["schedule"])], int(sizes["pipeline_stages"]), int(sizes["micro_batches"])


def expected_bubble(result: Result) -> float:
    schedule, stages, batches = schedule_of(result)
    return float(schedule.bubble(stages, batches))


def measured_bubble(result: Result) -> float:
    """Return the share of a step in which stages wait: the mean of the runs' medians."""
    pairs = [zip(steps.compute_seconds, steps.stage_seconds, strict=True) for steps in steps_of(result)]
    return fmean(median(1 - compute / stage for compute, stage in pairs_of_run) for pairs_of_run in pairs)


def difference(result: Result) -> float:
    """Return the measured bubble less that of the formula, in percentage points."""
    return 100 * (measured_bubble(result) - expected_bubble(result))


def format_held(result: Result) -> str:
    """Return the largest number of activations that each stage held at the same time, in any run."""
    schedule, stages, batches = schedule_of(result)
    counts = [max(steps.held_activations[stage] for steps in steps_of(result)) for stage in result.flow.actors]
    expected = [schedule.held(stage, stages, batches) for stage in range(stages)]
    text = ", ".join(map(str, counts))
    return text if counts == expected else f"{text} (formula: {', '.join(map(str, expected))})"


COLUMNS = (
    Column("configuration", tables.marked_label),
    tables.READERS,
    Column("ms per step", tables.format_typical),
    Column("95 % interval", tables.format_interval, 4),
    Column("ms per micro-batch", lambda r: format_milliseconds(r.typical_seconds / schedule_of(r)[2])),
    Column("bubble, measured", lambda r: f"{measured_bubble(r):.1%}"),
    Column("bubble by the formula", lambda r: f"{expected_bubble(r):.1%}"),
    Column("difference in percentage points", lambda r: f"{difference(r):+.1f}"),
    Column("largest number of activations that each stage held", format_held),
    Column("messages between stages", lambda r: f"{sum(not edge.message.is_flat for edge in r.flow.edges)}", 2),
    Column("CPU ms", lambda r: format_milliseconds(r.cpu_seconds_per_iteration), 3),
    tables.OVERHEAD,
)


def by_schedule(group: Group) -> list[Result]:
    order = list(SCHEDULES)
    return sorted(group.done, key=lambda r: (order.index(str(r.workload.sizes["schedule"])), -r.typical_seconds))


def describe_differences(group: Group) -> str:
    """Return how far the bubbles are from the formulas."""
    least, most = (choose(by_schedule(group), key=difference) for choose in (min, max))
    ends = f"{difference(least):+.1f} (`{least.label}`) to {difference(most):+.1f} percentage points (`{most.label}`)"
    return f"The measured bubbles differ from the formulas by {ends}."


def title_of(result: Result) -> str:
    _, stages, batches = schedule_of(result)
    return f"Pipeline of {stages} stages, {batches} micro-batches, {result.workload.sizes['task_seconds']} per task"


SECTIONS = {
    "pipeline": Table(
        "pipeline", lambda group: COLUMNS, by_schedule, title_of, describe_differences, group_by=by_sizes("schedule")
    )
}
