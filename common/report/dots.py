"""Make the dots of a chart from results, and the lines of references."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from common.analysis.result import Result
from common.analysis.statistics import interval
from common.report.charts import Dot
from common.report.sentences import READERS, format_time
from common.report.tables import format_milliseconds

LOG_MILLISECONDS = "milliseconds (logarithmic axis)"


def make_dot(result: Result, name: str) -> Dot:
    """Return the time of a result in milliseconds, with its 95 % interval."""
    low, high = interval(result.run_seconds) or (result.typical_seconds, result.typical_seconds)
    label = format_time(result)
    return Dot(name, 1e3 * result.typical_seconds, 1e3 * low, 1e3 * high, label, not result.readers_own_a_copy)


def group_by_readers(marks: Sequence[Any]) -> dict[str, list[Any]]:
    """Return the dots or bars in a group for each kind of readers that there is."""
    groups = {READERS[not is_view]: [mark for mark in marks if mark.is_view is is_view] for is_view in (False, True)}
    return {title: group for title, group in groups.items() if group}


def memcpy_lines(results: Sequence[Result]) -> dict[str, float]:
    """Return the times of one warm copy per edge in ms, by their names in the legend."""
    all_cores = [s for result in results for run in result.runs for s in run.memcpy_all_cores_seconds]
    times = {"memcpy": results[0].memcpy_seconds, "memcpy by all cores": median(all_cores) if all_cores else None}
    return {f"{name}: {format_milliseconds(s)} ms": 1e3 * s for name, s in times.items() if s}
