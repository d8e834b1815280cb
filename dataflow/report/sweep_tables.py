"""Say how sweeps are shown: the times of each configuration by the value of the size that is swept."""

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


def swept_point(result: Result) -> tuple[str, int]:
    """Return the size that the table of a sweep varies, and its value."""
    size = result.table.removeprefix("sweep-").replace("-", "_")
    return size, result.in_flight if size == "in_flight" else int(result.workload.sizes[size])


def find_points(group: Group) -> list[tuple[str, Points]]:
    """Return the label and the results of each configuration that has a time, in groups of equal work."""
    by_label: dict[str, Points] = {}
    for result in sorted(group.results, key=lambda result: swept_point(result)[1]):
        if result.status in ("ok", *UNCOUNTED):
            swept, value = swept_point(result)
            by_label.setdefault(tables.short_label(result, swept), {})[value] = result
    order = list(tables.READER_GROUPS)
    rows = [(label, points) for label, points in by_label.items() if timed_points(points)]
    return sorted(rows, key=lambda row: order.index(tables.readers_of(largest_point(row[1]))))


def timed_points(points: Points) -> Points:
    return {value: result for value, result in points.items() if result.status == "ok"}


def largest_point(points: Points) -> Result:
    """Return the timed result with the largest value: the object store gives views of large messages only."""
    return [*timed_points(points).values()][-1]


def format_largest_overhead(row: tuple[str, Points]) -> str:
    shares = [result.overhead_share for result in timed_points(row[1]).values() if result.overhead_share is not None]
    return tables.format_overhead(max(shares, default=None))


def sweep_columns(group: Group) -> Sequence[Column]:
    def time_at(value: int) -> Callable[[tuple[str, Points]], str]:
        return lambda row: tables.TIME.cell(row[1][value]) if value in row[1] else "-"

    is_bytes = swept_point(group.done[0])[0] == "iteration_bytes"
    values = sorted({value for _, points in find_points(group) for value in points})
    return (
        Column("configuration", lambda row: row[0]),
        Column("readers get", lambda row: tables.READERS.cell(largest_point(row[1])), is_text=True),
        *(Column(format_bytes(value) if is_bytes else str(value), time_at(value)) for value in values),
        Column("largest overhead", format_largest_overhead),
    )


def sweep_title(result: Result) -> str:
    swept = swept_point(result)[0]
    workload = result.flow.title if swept == "iteration_bytes" else title_of(result)
    return f"Milliseconds per iteration by {SWEPT[swept]}: {workload}"


def make_point(value: int, center: float, seconds: Sequence[float]) -> tuple[float, float, float, float]:
    """Return x, y, low and high in milliseconds."""
    return value, 1e3 * center, 1e3 * min(seconds), 1e3 * max(seconds)


def draw_sweep(group: Group) -> LineChart:
    swept, memcpy = swept_point(group.done[0])[0], dict[int, list[float]]()
    lines = []
    for label, results in find_points(group):
        points = [make_point(value, r.typical_seconds, r.run_seconds) for value, r in timed_points(results).items()]
        lines.append(Series(label, points, is_view=not largest_point(results).readers_own_a_copy))
        for value, result in timed_points(results).items():
            if result.memcpy_seconds:
                memcpy.setdefault(value, []).append(result.memcpy_seconds)
    if memcpy:
        limit = [make_point(value, median(seconds), seconds) for value, seconds in sorted(memcpy.items())]
        lines.append(Series("memcpy", limit, is_limit=True))
    caption = ("Dashed: readers get a view. Bands: fastest to slowest run.", *provenance(group.done))
    return LineChart(f"sweep_{swept}", sweep_title(group.done[0]), {"": lines}, SWEPT[swept], {}, caption,
                     "milliseconds per iteration", swept == "iteration_bytes")  # fmt: skip


SWEEP = Table("sweeps", sweep_columns, find_points, sweep_title, chart=draw_sweep, group_by=lambda result: ())
