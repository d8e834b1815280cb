"""Build the tables and charts of pipeline schedules: the share of the time in which stages wait, and how they work."""

from collections.abc import Sequence
from statistics import fmean, median

from dataflow.analysis.result import Result
from dataflow.report import tables
from dataflow.report.charts import Interval, TimelineChart
from dataflow.report.tables import Column, Section, format_milliseconds, make_table
from dataflow.studies.pipeline.actor import steps_of
from dataflow.studies.pipeline.flow import BACKWARD, FORWARD, SCHEDULES, WEIGHTS, Schedule

KINDS = {FORWARD: "forward", BACKWARD: "backward", WEIGHTS: "gradients of the weights"}


def schedule_of(result: Result) -> Schedule:
    return SCHEDULES[str(result.workload.sizes["schedule"])]


def expected_bubble(result: Result) -> float:
    sizes = result.workload.sizes
    return float(schedule_of(result).bubble(int(sizes["stages"]), int(sizes["micro_batches"])))


def measured_bubble(result: Result) -> float:
    """Return the share of a step in which stages wait: the mean of the runs' medians."""
    shares = []
    for run in result.shown_runs:
        steps = steps_of(run)
        if steps:
            pairs = zip(steps.compute_seconds, steps.stage_seconds, strict=True)
            shares.append(median(1 - compute / stage for compute, stage in pairs))
    return fmean(shares)


def difference(result: Result) -> float:
    """Return the measured bubble less that of the formula, in percentage points."""
    return 100 * (measured_bubble(result) - expected_bubble(result))


def held_activations(result: Result) -> list[int]:
    """Return the largest number of activations that each stage held at the same time, in any run."""
    steps = [*filter(None, map(steps_of, result.shown_runs))]
    return [max(step.held_activations[stage] for step in steps) for stage in result.flow.actors]


def format_held(result: Result) -> str:
    sizes, counts = result.workload.sizes, held_activations(result)
    stages, batches = int(sizes["stages"]), int(sizes["micro_batches"])
    expected = [schedule_of(result).held(stage, stages, batches) for stage in range(stages)]
    text = ", ".join(map(str, counts))
    return text if counts == expected else f"{text} (formula: {', '.join(map(str, expected))})"


COLUMNS = (
    Column("configuration", tables.marked_label),
    tables.READERS,
    Column("ms per step", lambda r: format_milliseconds(r.typical_seconds)),
    Column("95 % interval", tables.format_interval, 4),
    Column(
        "ms per micro-batch", lambda r: format_milliseconds(r.typical_seconds / int(r.workload.sizes["micro_batches"]))
    ),
    Column("bubble, measured", lambda r: f"{measured_bubble(r):.1%}"),
    Column("bubble by the formula", lambda r: f"{expected_bubble(r):.1%}"),
    Column("difference in percentage points", lambda r: f"{difference(r):+.1f}"),
    Column("largest number of activations that each stage held", format_held),
    Column("messages between stages", lambda r: f"{sum(not edge.message.is_flat for edge in r.flow.edges)}", 2),
    Column("CPU ms", lambda r: format_milliseconds(r.cpu_seconds_per_iteration), 3),
    tables.OVERHEAD,
)


def build_pipeline(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    """Return the schedules over each transport, and how far their bubbles are from the formulas."""
    order = list(SCHEDULES)
    done = sorted(done, key=lambda r: (order.index(str(r.workload.sizes["schedule"])), -r.typical_seconds))
    least, most = (choose(done, key=difference) for choose in (min, max))
    sentence = (
        f"The measured bubbles differ from the formulas by {difference(least):+.1f} (`{least.label}`) to "
        f"{difference(most):+.1f} percentage points (`{most.label}`)."
    )
    return [Section("pipeline", title_of(done[0]), sentence, make_table(done, COLUMNS))]


def title_of(result: Result) -> str:
    sizes = result.workload.sizes
    return (f"Pipeline of {sizes['stages']} stages, {sizes['micro_batches']} micro-batches, {sizes['task_seconds']} "
            "per task")  # fmt: skip


def build_timeline(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    """Return a chart of when each stage worked in the last step of a traced run, with a panel per schedule."""
    order = list(SCHEDULES)
    panels = {}
    for result in sorted(done, key=lambda r: order.index(str(r.workload.sizes["schedule"]))):
        title = f"{result.label}: bubble {measured_bubble(result):.1%}, by the formula {expected_bubble(result):.1%}"
        panels[title] = {stage: stage_intervals(result, stage) for stage in result.flow.actors}
    caption = ("The last step of a traced run. Numbers: micro-batches.",)
    title, x_label = f"When stages compute: {title_of(done[0])}", "milliseconds from the beginning of the step"
    chart = TimelineChart("pipeline_timeline", title, panels, tuple(KINDS.values()), x_label, caption)
    return [Section("pipeline-timeline", title_of(done[0]), chart=chart)]


def stage_intervals(result: Result, stage: str) -> list[Interval]:
    """Return when a stage ran each task of its schedule in the last traced step. Actors verify that order."""
    run, sizes = result.traced_runs[0], result.workload.sizes
    number, stages, batches = result.flow.actors.index(stage), int(sizes["stages"]), int(sizes["micro_batches"])
    order = schedule_of(result).order(number, stages, batches)
    step, begin = len(run.iterations_us) - 1, run.iterations_us[-1][0]
    spans = sorted(span[5:7] for span in run.spans if span[0] == stage and span[2] == "compute" and span[4] == step)
    return [
        Interval((start - begin) / 1e3, (end - begin) / 1e3, KINDS[kind], str(batch + 1))
        for (kind, batch, _), (start, end) in zip(order, spans, strict=True)
    ]
