"""Say how traced iterations are shown: their time by cause and by stage."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from dataflow.analysis import stages
from dataflow.analysis.comparison import find_transports
from dataflow.analysis.result import Result, with_shared_references
from dataflow.catalogue.catalogue import BASELINE, SIMPLEST
from dataflow.records.schema import Run
from dataflow.report.charts import Chart
from dataflow.report.sections import Group, Table, make_mark, memcpy_lines, provenance, title_of
from dataflow.report.tables import Column, format_milliseconds, label_without_layout

# The chart of causes has these configurations. Their readers own a copy.
HEADLINE = [f"{name}{flag}" for name in (BASELINE, SIMPLEST, "graph shm") for flag in ("", " --retain-memory")]
Attribute = Callable[[Run], Mapping[str, float]]  # returns seconds by name


def headline_results(results: Sequence[Result]) -> list[Result]:
    """Return the results of the largest workload of the table "headline", or of "configurations" if it has no times."""
    has_headline = any(result.table == "headline" and result.status == "ok" for result in results)
    return with_shared_references(largest_of(results, "headline" if has_headline else "configurations"))


def largest_of(results: Sequence[Result], table: str) -> list[Result]:
    chosen = [result for result in results if result.table == table]
    largest = max((r.workload for r in chosen), key=lambda workload: workload.bytes_per_iteration, default=None)
    return [result for result in chosen if result.workload == largest]


def part_columns(group: Group, attribute: Attribute, order: Sequence[str]) -> Sequence[Column]:
    """Return a column for each name in `order` that has a time; raise RecordError for a contradictory trace."""
    for result in group.done:
        stages.check_trace(result)
    parts = {result: stages.mean_over_runs(attribute, result.shown_runs) for result in group.done}

    def format_part(result: Result, name: str) -> str:
        seconds = parts[result].get(name)
        return format_milliseconds(None if seconds and stages.is_within_clock_error(result, seconds) else seconds)

    def format_mean(result: Result) -> str:
        return format_milliseconds(fmean(map(stages.iteration_seconds, result.shown_runs)))

    names = [name for name in order if any(name in seconds for seconds in parts.values())]
    return (
        Column("configuration", label_without_layout),
        Column("mean ms per iteration", format_mean),
        *(Column(name, partial(format_part, name=name)) for name in names),
    )


def describe_method(group: Group) -> Sequence[str]:
    """Return how the time was attributed, what a page fault costs, and how much of an iteration is explained."""
    explained = {label_without_layout(r): fmean(stages.attribute(run)[1] for run in r.shown_runs) for r in group.done}
    worst = max(explained, key=lambda name: abs(1 - explained[name]))
    faults = [stages.fault_seconds(run) * 1e6 for result in group.done for run in result.shown_runs]
    return (
        "Mean of the middle half of the iterations of each run, then of the runs (docs/results.md).",
        f"Page faults: their number in each stage, times {min(faults):.2g} to {max(faults):.2g} µs per page fault. "
        "Each run measures this time: (cold copy - warm copy) / page faults of the cold copy.",
        f"The stages add up to {explained[worst]:.1%} of an iteration for {worst}, and to nearly 100 % for the others.",
    )


def draw_headline(group: Group) -> Chart | None:
    """Return the times without tracing, divided like the traced iterations, slowest first; None if there are none."""
    causes = {r.label: stages.mean_over_runs(stages.attribute_to_causes, r.shown_runs) for r in group.done}
    untraced = [result for result in headline_results(group.report) if result.workload == group.done[0].workload]
    shown = [result for result in find_transports(untraced) if result.name in HEADLINE and result.label in causes]
    if not shown:
        return None
    bars = []
    for result in sorted(shown, key=lambda result: -result.typical_seconds):
        scale = 1e3 * result.typical_seconds / sum(causes[result.label].values())
        segments = {cause: scale * seconds for cause, seconds in causes[result.label].items()}
        bars.append(make_mark(result, result.label, segments))
    slowest = bars[0]
    cause, milliseconds = max(slowest.segments.items(), key=lambda item: item[1])
    title = f"About {milliseconds / slowest.value:.0%} of the time of {slowest.name} is {cause}."
    caption = f"{title_of(shown[0])}. Times and 95 % intervals (lines) without tracing."
    traces = f"Causes: estimated from traced iterations (docs/results.md). {provenance(group.done)[-1]}"
    return Chart(
        "headline", title, {"": bars}, "milliseconds per iteration", memcpy_lines(shown),
        (caption, *provenance(shown), traces), stages.CAUSES,
    )  # fmt: skip


def stage_tables(name: str, chart: Callable[[Group], Any] = lambda group: None) -> Table:
    """Return two tables: by stage, which is too wide for pages, and by cause, with a chart."""

    def make(part: str, attribute: Attribute, order: Sequence[str], **more: Any) -> Table:
        columns, title = partial(part_columns, attribute=attribute, order=order), f"Milliseconds by {part}: "
        return Table(name, columns, lambda group: group.done, lambda r: title + title_of(r), **more)

    by_stage = make("stage", lambda run: stages.attribute(run)[0], [*stages.STAGES], is_on_pages=False)
    by_cause = partial(make, "cause", stages.attribute_to_causes, stages.CAUSES, chart=chart)
    return by_cause(notes=describe_method, before=[by_stage])
