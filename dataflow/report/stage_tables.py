# SPDX-License-Identifier: Apache-2.0
"""Say how traced iterations are shown: their time by cause and by stage."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from dataflow.analysis import stages
from dataflow.analysis.result import Result
from dataflow.analysis.stages import iteration_seconds
from dataflow.catalogue.catalogue import BASELINE, SIMPLEST
from dataflow.records.schema import Run
from dataflow.report.charts import Chart, Mark
from dataflow.report.provenance import provenance
from dataflow.report.result_charts import memcpy_lines
from dataflow.report.sections import Group, Table, title_of
from dataflow.report.tables import (
    Column,
    format_milliseconds,
    format_significant,
    label_without_layout,
)
from dataflow.units import MICROSECOND, MILLISECOND

# The chart of causes has these configurations. Their readers own a copy.
CHARTED = {
    BASELINE,
    f"{BASELINE} --retain-memory",
    SIMPLEST,
    f"{SIMPLEST} --retain-memory",
    "graph shm",
    "graph shm --retain-memory",
}
Attribute = Callable[[Run], Mapping[str, float]]  # returns seconds by name


def part_columns(group: Group, attribute: Attribute, order: Sequence[str]) -> Sequence[Column]:
    """Return a column for each name in `order` that has a time; raise RecordError for a contradictory trace."""
    for result in group.done:
        stages.check_trace(result)
    parts = {result: stages.mean_over_runs(attribute, result.shown_runs) for result in group.done}

    def format_part(result: Result, name: str) -> str:
        seconds = parts[result].get(name)
        return format_milliseconds(
            None if seconds and stages.is_within_clock_error(result, seconds) else seconds
        )

    names_with_time: set[str] = set()
    for seconds_by_name in parts.values():
        names_with_time |= seconds_by_name.keys()
    names = [name for name in order if name in names_with_time]
    return (
        Column("configuration", label_without_layout),
        Column(
            "mean of the middle half, ms",
            lambda r: format_milliseconds(fmean(map(iteration_seconds, r.shown_runs))),
        ),
        *(Column(name, partial(format_part, name=name)) for name in names),
    )


def describe_method(group: Group) -> Sequence[str]:
    """Return how the time was attributed, what a page fault costs, and how much of an iteration is explained."""
    explained = {}
    faults = []
    for result in group.done:
        shares = [stages.attribute(run)[1] for run in result.shown_runs]
        explained[label_without_layout(result)] = fmean(shares)
        faults += [stages.fault_seconds(run) / MICROSECOND for run in result.shown_runs]
    worst = max(explained, key=lambda name: abs(1 - explained[name]))
    return (
        "All times: mean of the middle half of the iterations of each run, then of the runs (docs/results.md).",
        f"Page faults: their number in each stage, times {min(faults):.2g} to {max(faults):.2g} µs per page fault. "
        "Each run measures this time: (cold copy - warm copy) / page faults of the cold copy.",
        f"The stages add up to {explained[worst]:.1%} of an iteration for {worst}, and to nearly 100 % for the others.",
    )


def draw_causes(group: Group) -> Chart | None:
    """Return the times of the configurations of CHARTED, divided by cause, the slowest first; None without any.

    Configurations with kept memory are left out if pages have a newer time without a trace.
    """
    charted = [result for result in group.done if result.name in CHARTED]
    shown = [result for result in charted if not group.has_newer_gain(result)]
    bars = [make_bar(result) for result in shown]
    if not bars:
        return None
    bars.sort(key=lambda bar: -sum(bar.values))
    slowest = bars[0]
    cause, milliseconds = max(slowest.segments.items(), key=lambda item: item[1])
    share = (
        f"About {milliseconds / sum(slowest.values):.0%} of the time of {slowest.name} is {cause}"
    )
    return Chart(
        "causes",
        f"{share}: {title_of(shown[0])}",
        {"": bars},
        "milliseconds per iteration",
        memcpy_lines(shown),
        (
            "Means of the middle half of traced iterations (docs/results.md).",
            *provenance(group.done),
        ),
        stages.CAUSES,
    )


def make_bar(result: Result) -> Mark:
    """Return the milliseconds of each cause of one configuration, as segments of a bar."""
    causes = stages.mean_over_runs(stages.attribute_to_causes, result.shown_runs)
    segments = {cause: seconds / MILLISECOND for cause, seconds in causes.items()}
    total = sum(segments.values())
    name = label_without_layout(result)
    label = f"{format_significant(total)} ms"
    return Mark(name, label, segments=segments)


def stage_tables(name: str, chart: Callable[[Group], Any] = lambda group: None) -> Table:
    """Return two tables: by stage, which is too wide for pages, so no page has its name, and by cause, with a chart."""
    by_stage = Table(
        f"{name}-by-stage",
        stage_columns,
        lambda group: group.done,
        lambda result: f"Milliseconds by stage: {title_of(result)}",
    )
    return Table(
        name,
        cause_columns,
        by_stage.rows,
        chart=chart,
        title=lambda result: f"Milliseconds by cause: {title_of(result)}",
        notes=describe_method,
        before=[by_stage],
    )


def stage_columns(group: Group) -> Sequence[Column]:
    return part_columns(group, lambda run: stages.attribute(run)[0], [*stages.STAGES])


def cause_columns(group: Group) -> Sequence[Column]:
    return part_columns(group, stages.attribute_to_causes, stages.CAUSES)
