"""Make the dots of a chart from results, and the lines of references."""

from collections.abc import Callable, Sequence
from statistics import median

from dataflow.analysis.result import Result
from dataflow.analysis.statistics import interval
from dataflow.report import tables
from dataflow.report.charts import Dot
from dataflow.report.sentences import format_time
from dataflow.report.tables import format_milliseconds

LOG_MILLISECONDS = "milliseconds (logarithmic axis)"


def make_dot(result: Result, name: str) -> Dot:
    """Return the time of a result in milliseconds, with its 95 % interval."""
    low, high = interval(result.run_seconds) or (result.typical_seconds, result.typical_seconds)
    label = format_time(result)
    return Dot(name, 1e3 * result.typical_seconds, 1e3 * low, 1e3 * high, label, not result.readers_own_a_copy)


def make_dots(results: Sequence[Result], name: Callable[[Result], str] = tables.marked_label) -> dict[str, list[Dot]]:
    """Return a dot per result in the groups whose times are compared, the slowest first."""
    groups: dict[str, list[Dot]] = {}
    for result in tables.order_by_readers(results):
        groups.setdefault(tables.readers_of(result), []).append(make_dot(result, name(result)))
    return groups


def memcpy_lines(results: Sequence[Result]) -> dict[str, float]:
    """Return the times of one warm copy per edge in ms, by their names in the legend."""
    all_cores = [s for result in results for run in result.quiet_runs for s in run.memcpy_all_cores_seconds]
    times = {"memcpy": results[0].memcpy_seconds, "memcpy by all cores": median(all_cores) if all_cores else None}
    return {f"{name}: {format_milliseconds(s)} ms": 1e3 * s for name, s in times.items() if s}
