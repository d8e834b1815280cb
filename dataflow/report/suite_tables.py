"""Say how the tables of the suite are shown, except those of a study."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

import msgspec

from dataflow.analysis.comparison import Pair, find_result, find_transports
from dataflow.analysis.result import UNCOUNTED, Result
from dataflow.analysis.statistics import percentile
from dataflow.catalogue.catalogue import BASELINE
from dataflow.report import tables
from dataflow.report.charts import LineChart, Series
from dataflow.report.cluster_tables import CLUSTER
from dataflow.report.groups import Group, Table, draw_dots, provenance, title_of
from dataflow.report.sentences import (
    PAIR_COLUMNS,
    SIMPLEST,
    describe_change,
    describe_fastest,
    format_speed_up,
    old_and_new,
)
from dataflow.report.soak_tables import SOAK
from dataflow.report.stage_tables import stage_tables
from dataflow.report.tables import Column, format_milliseconds, format_significant
from dataflow.units import format_bytes

SWEPT = {"payload": "bytes per iteration", "fields": "tensors per message (of equal bytes)", "actors": "actors",
         "batch_size": "samples per message", "in_flight": "iterations in flight"}  # fmt: skip


def configuration_columns(group: Group) -> Sequence[Column]:
    """Return the main columns, and how each configuration compares with the baselines and with the one it extends."""
    columns, transports = list(tables.MAIN_COLUMNS), find_transports(group.done)
    columns.insert(1, tables.READERS)
    if len(group.done) > 1:
        for baseline in [r for r in transports if r.name in (BASELINE, SIMPLEST)] or transports[:1]:
            columns.append(Column(f"speed-up over {baseline.label}", partial(format_speed_up, baseline=baseline), 1))
        header = "compared with the configuration that it extends"
        columns.append(Column(header, lambda result: describe_change(result, group.done), 8, is_text=True))
    return columns


def draw_configurations(group: Group) -> object:
    """Return the chart of the times. If a report has the tables "headline" and "configurations", the latter has it."""
    if group.results[0].table == "headline" and any(result.table == "configurations" for result in group.report):
        return None
    caption = "Line: 95 % interval of the time, from the medians of the runs."
    return draw_dots(group, "transports", f"Time per iteration: {title_of(group.done[0])}", caption=(caption,))


def pair_retained(group: Group) -> list[Pair]:
    """Return each configuration that was measured without and with --retain-memory."""
    pairs = []
    for result in group.done:
        flags = {name: value for name, value in result.configuration.flags.items() if name != "retain_memory"}
        plain = find_result(group.done, result.workload, msgspec.structs.replace(result.configuration, flags=flags))
        if plain and plain is not result:
            pairs.append(Pair(plain, result))
    return pairs


RETAINED = Table(
    "retain-memory",
    columns=lambda group: (
        Column("configuration", lambda pair: tables.short_label(pair.old)),
        *PAIR_COLUMNS,
        Column("first iteration ms", old_and_new(lambda r: format_milliseconds(median(r.first_seconds)))),
        Column("peak GiB", old_and_new(lambda result: f"{result.peak_memory_bytes / 2**30:.1f}")),
    ),
    rows=pair_retained,
    notes=lambda group: provenance([result for pair in pair_retained(group) for result in (pair.old, pair.new)]),
)
CONFIGURATIONS = Table(
    "results",
    columns=configuration_columns,
    rows=lambda group: tables.order_by_readers(group.results),
    sentence=lambda group: describe_fastest(group.results),
    chart=draw_configurations,
    before=(RETAINED,),
)
RETAINED_SIZES = Table(
    "retained-memory",
    columns=lambda group: (
        Column("bytes per iteration", lambda pair: format_bytes(pair.old.workload.bytes_per_iteration)),
        *PAIR_COLUMNS,
    ),
    rows=lambda group: sorted(pair_retained(group), key=lambda pair: pair.old.workload.bytes_per_iteration),
    title=lambda result: f"{result.flow.title}: one message per iteration, {result.transport.label}",
    group_by=lambda result: (),
)


def microbenchmark_columns(group: Group) -> Sequence[Column]:
    def speed_up(result: Result) -> str:
        name = "bytes" if result.configuration.transport == "bytes" else "refs"
        flags = {flag: value for flag, value in result.configuration.flags.items() if flag in tables.GROUP_FLAGS}
        references = msgspec.structs.replace(result.configuration, runtime="store", transport=name, flags=flags)
        return format_speed_up(result, find_result(group.done, result.workload, references))

    return (
        Column("configuration", tables.short_label),
        Column("bytes per message", lambda r: f"{r.workload.edges[0].bytes:,}"),
        tables.READERS,
        Column("µs per iteration", lambda r: f"{r.typical_seconds * 1e6:,.0f}"),
        Column("p95 µs", lambda r: f"{1e6 * p95:,.0f}" if (p95 := percentile(r.samples, 95)) else "-", 1),
        Column("µs per hop", lambda r: f"{r.typical_seconds / r.flow.path_length(max) * 1e6:,.0f}"),
        Column("speed-up over store refs or bytes", speed_up),
        Column("x pipe", lambda r: format_significant(r.multiple_of(r.pipe_seconds))),
        tables.OVERHEAD,
    )


MICROBENCHMARKS = Table(
    "microbenchmarks",
    columns=microbenchmark_columns,
    rows=lambda group: sorted(group.ordered, key=lambda result: result.workload.bytes_per_iteration),
    title=lambda result: result.flow.title,
    group_by=lambda result: (),
)


Points = dict[int, Result]  # the results of a configuration by the value of the size that is swept


def find_points(group: Group) -> list[tuple[str, Points]]:
    """Return the label and the results of each configuration that has a time, in groups of equal work."""
    by_label: dict[str, Points] = {}
    for result in group.results:
        if result.status in ("ok", *UNCOUNTED):
            swept, value = tables.swept_point(result)
            by_label.setdefault(tables.short_label(result, swept), {})[value] = result
    timed = [(label, points) for label, points in by_label.items() if timed_points(points)]
    order = list(tables.READER_GROUPS)
    return sorted(timed, key=lambda row: order.index(tables.readers_of(largest_point(row[1]))))


def timed_points(points: Points) -> Points:
    return {value: points[value] for value in sorted(points) if points[value].status == "ok"}


def largest_point(points: Points) -> Result:
    """Return the result with the largest value: the object store gives views of large messages only."""
    return [*timed_points(points).values()][-1]


def swept_values(group: Group) -> list[int]:
    return sorted({value for _, points in find_points(group) for value in points})


def format_largest_overhead(row: tuple[str, Points]) -> str:
    shares = [result.overhead_share for result in timed_points(row[1]).values() if result.overhead_share is not None]
    return tables.format_overhead(max(shares, default=None))


def sweep_columns(group: Group) -> Sequence[Column]:
    def time_at(value: int) -> Callable[[tuple[str, Points]], str]:
        return lambda row: tables.format_typical(row[1][value]) if value in row[1] else "-"

    is_bytes = tables.swept_point(group.done[0])[0] == "payload"
    return (
        Column("configuration", lambda row: row[0]),
        Column("readers get", lambda row: tables.READERS.cell(largest_point(row[1])), is_text=True),
        *(Column(format_bytes(value) if is_bytes else str(value), time_at(value)) for value in swept_values(group)),
        Column("largest overhead", format_largest_overhead),
    )


def sweep_title(result: Result) -> str:
    swept = tables.swept_point(result)[0]
    workload = result.flow.title if swept == "payload" else title_of(result)
    return f"Milliseconds per iteration by {SWEPT[swept]}: {workload}"


def draw_sweep(group: Group) -> LineChart:
    swept, values = tables.swept_point(group.done[0])[0], swept_values(group)
    lines = []
    for label, results in find_points(group):
        points = [(value, 1e3 * r.typical_seconds, 1e3 * min(r.run_seconds), 1e3 * max(r.run_seconds))
                  for value, r in timed_points(results).items()]  # fmt: skip
        lines.append(Series(label, points, is_view=not largest_point(results).readers_own_a_copy))
    memcpy = {value: [r.memcpy_seconds for r in group.done if tables.swept_point(r)[1] == value and r.memcpy_seconds]
              for value in values}  # fmt: skip
    if all(memcpy.values()):
        limit = [(x, 1e3 * median(memcpy[x]), 1e3 * min(memcpy[x]), 1e3 * max(memcpy[x])) for x in values]
        lines.append(Series("memcpy", limit, is_limit=True))
    caption = ("Dashed: readers get a view. Bands: fastest to slowest run.", *provenance(group.done))
    axes = (SWEPT[swept], "milliseconds per iteration")
    return LineChart(f"sweep_{swept}", sweep_title(group.done[0]), lines, *axes, swept == "payload", caption)


SWEEP = Table("sweeps", sweep_columns, find_points, sweep_title, chart=draw_sweep, group_by=lambda result: ())
TABLES = {  # in the order of a report
    "headline": replace(CONFIGURATIONS, name="headline"),
    "configurations": CONFIGURATIONS,
    "paired": CONFIGURATIONS,
    "stages": stage_tables("stages"),
    "cluster": CLUSTER,
    "cluster-stages": stage_tables("cluster-stages"),
    "soak": SOAK,
    "microbenchmarks": MICROBENCHMARKS,
    "retained-memory": RETAINED_SIZES,
    **dict.fromkeys(("sweep-payload", "sweep-fields", "sweep-batch-size", "sweep-actors"), SWEEP),
    "in-flight": replace(SWEEP, name="in-flight"),
}
