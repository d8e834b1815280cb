"""Say how sweeps are shown: the times of each configuration by the value of the size that is swept."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import median

from dataflow.analysis.result import UNCOUNTED, Result
from dataflow.report import tables
from dataflow.report.charts import LineChart, Series
from dataflow.report.groups import Group, Table, provenance, title_of
from dataflow.report.tables import Column
from dataflow.units import format_bytes

SWEPT = {"iteration_bytes": "bytes per iteration", "fields": "tensors per message (of equal bytes)", "actors": "actors",
         "batch_size": "samples per message", "in_flight": "iterations in flight"}  # fmt: skip
Points = dict[int, Result]  # the results of a configuration, in ascending order of the swept value


def swept_size(result: Result) -> str:
    """Return the size that the table of a sweep varies."""
    return result.table.removeprefix("sweep-").replace("-", "_")


def find_points(group: Group) -> list[Points]:
    """Return the results of each configuration that has a time, in groups of equal work."""
    swept, by_label = swept_size(group.done[0]), dict[str, Points]()
    for result in group.results:
        if result.status in ("ok", *UNCOUNTED):
            value = result.in_flight if swept == "in_flight" else int(result.workload.sizes[swept])
            by_label.setdefault(tables.short_label(result, swept), {})[value] = result
    rows = [dict(sorted(points.items())) for points in by_label.values() if timed_points(points)]
    order = list(tables.READER_GROUPS)
    return sorted(rows, key=lambda points: order.index(tables.readers_of(largest_point(points))))


def timed_points(points: Points) -> Points:
    return {value: result for value, result in points.items() if result.status == "ok"}


def largest_point(points: Points) -> Result:
    """Return the timed result with the largest value: the object store gives views of large messages only."""
    return max(timed_points(points).items())[1]


def format_largest_overhead(points: Points) -> str:
    shares = [result.overhead_share for result in points.values() if result.status == "ok" and result.overhead_share]
    return tables.format_overhead(max(shares, default=None))


def sweep_columns(group: Group) -> Sequence[Column]:
    def time_at(value: int) -> Callable[[Points], str]:
        return lambda points: tables.TIME.cell(points[value]) if value in points else "-"

    swept = swept_size(group.done[0])
    header = format_bytes if swept == "iteration_bytes" else str
    values = sorted({value for points in find_points(group) for value in points})
    return (
        Column("configuration", lambda points: tables.short_label(largest_point(points), swept)),
        Column("readers get", lambda points: tables.READERS.cell(largest_point(points)), is_text=True),
        *(Column(header(value), time_at(value)) for value in values),
        Column("largest overhead", format_largest_overhead),
    )


def sweep_title(result: Result) -> str:
    swept = swept_size(result)
    workload = result.flow.title if swept == "iteration_bytes" else title_of(result)
    return f"Milliseconds per iteration by {SWEPT[swept]}: {workload}"


def make_point(value: int, center: float, seconds: Sequence[float]) -> tuple[float, float, float, float]:
    """Return x, y, low and high in milliseconds."""
    return value, 1e3 * center, 1e3 * min(seconds), 1e3 * max(seconds)


def draw_sweep(group: Group) -> LineChart:
    swept, memcpy, lines = swept_size(group.done[0]), defaultdict[int, list[float]](list), []
    for results in find_points(group):
        largest, timed = largest_point(results), timed_points(results)
        points = [make_point(value, result.typical_seconds, result.run_seconds) for value, result in timed.items()]
        lines.append(Series(tables.short_label(largest, swept), points, is_view=not largest.readers_own_a_copy))
        for value, result in timed.items():
            memcpy[value] += [result.memcpy_seconds] if result.memcpy_seconds else []
    limit = [make_point(value, median(seconds), seconds) for value, seconds in sorted(memcpy.items()) if seconds]
    if limit:
        lines.append(Series("memcpy", limit, is_limit=True))
    caption = ("Dashed: readers get a view. Bands: fastest to slowest run.", *provenance(group.done))
    return LineChart(f"sweep_{swept}", sweep_title(group.done[0]), {"": lines}, SWEPT[swept], {}, caption,
                     "milliseconds per iteration", swept == "iteration_bytes")  # fmt: skip


SWEEP = Table("sweeps", sweep_columns, find_points, sweep_title, chart=draw_sweep, group_by=lambda result: ())
