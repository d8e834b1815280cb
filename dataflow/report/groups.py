"""Describe how the records of a table are shown: which results are one section, and what this section has."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

from dataflow.analysis.result import Result, find_disturbance
from dataflow.analysis.statistics import interval
from dataflow.records.machine import machine_line
from dataflow.report import tables
from dataflow.report.charts import Dot, DotChart
from dataflow.report.sentences import format_time
from dataflow.report.tables import Column, format_milliseconds
from dataflow.units import format_bytes

LOG_MILLISECONDS = "milliseconds (logarithmic axis)"


@dataclass(frozen=True)
class Group:
    """The results of one section, and all results of the report."""

    results: Sequence[Result]  # also those without a time
    report: Sequence[Result]

    @cached_property
    def done(self) -> list[Result]:
        return [result for result in self.results if result.status == "ok"]

    @property
    def ordered(self) -> list[Result]:
        return tables.order_by_readers(self.done)


def title_of(result: Result) -> str:
    return f"{result.flow.title}, {format_bytes(result.workload.bytes_per_iteration)} per iteration"


def by_edges(result: Result) -> tuple[Any, ...]:
    return -result.workload.bytes_per_iteration, result.workload.edges


def by_sizes(*left_out: str) -> Callable[[Result], tuple[Any, ...]]:
    """Return a function for `Table.group_by`: results with equal sizes, except those that are left out."""
    return lambda result: (str(sorted(item for item in result.workload.sizes.items() if item[0] not in left_out)),)


@dataclass(frozen=True)
class Table:
    """How the results of one table of records are shown: one section per group with equal `group_by`.

    The first value of `group_by` is the order of the sections. `rows` are the items of the columns: results or others.
    A section without rows is left out. The tables `before` are made of the same groups. If the rows are results, those
    whose runs do not count follow, with the reason in place of the time.
    """

    name: str  # of its sections, as in the marks of the pages
    columns: Callable[[Group], Sequence[Column]]
    rows: Callable[[Group], Sequence[Any]] = lambda group: group.ordered
    title: Callable[[Result], str] = title_of
    sentence: Callable[[Group], str] = lambda group: ""
    chart: Callable[[Group], Any] = lambda group: None
    notes: Callable[[Group], Sequence[str]] = lambda group: ()
    group_by: Callable[[Result], tuple[Any, ...]] = by_edges
    before: Sequence["Table"] = ()


def provenance(results: Sequence[Result]) -> list[str]:
    """Return the machines and versions, and last the boots, the runs, the day and the commits."""
    environments = [environment for result in results for environment in result.environments]
    ok_runs = [run for result in results for run in result.ok_runs]
    commits = set()
    for environment in environments:
        changed = " with changes that are not committed" if environment.get("git_dirty") else ""
        commits.add((environment.get("git_commit") or "unknown")[:10] + changed)
    days = sorted({run.started_at[:10] for result in results for run in result.shown_runs})
    counts = sorted({len(result.run_seconds) for result in results})
    verb = "Counted, although" if any(result.allows_disturbed for result in results) else "Left out, because"
    left_out = {
        f"{verb} they were disturbed": sum(bool(find_disturbance(run)) for run in ok_runs),
        "Left out, because their times had not settled": sum(run.settled is False for run in ok_runs),
    }
    notes = [f"{reason}: {count} of {len(ok_runs)} runs. " for reason, count in left_out.items() if count]
    return [
        *sorted(set(map(machine_line, environments))),
        f"Boots: {len({environment.get('boot') for environment in environments})}. "
        f"Runs per configuration: {' to '.join(map(str, dict.fromkeys([counts[0], counts[-1]])))}. {''.join(notes)}"
        f"Measured on {' and '.join(days)}, commit {', '.join(sorted(commits))}.",
    ]


def draw_dots(
    group: Group, file_name: str, title: str, label: Callable[[Result], str] = tables.marked_label
) -> DotChart:
    """Return a chart with a dot per result, the slowest first, in groups of equal work, and the times of memcpy."""
    dots: dict[str, list[Dot]] = {}
    for result in group.ordered:
        low, high = interval(result.run_seconds) or (result.typical_seconds, result.typical_seconds)
        milliseconds = (1e3 * result.typical_seconds, 1e3 * low, 1e3 * high)
        dot = Dot(label(result), *milliseconds, format_time(result), not result.readers_own_a_copy)
        dots.setdefault(tables.readers_of(result), []).append(dot)
    caption = ("Line: 95 % interval of the time, from the medians of the runs.", *provenance(group.done))
    return DotChart(file_name, title, dots, LOG_MILLISECONDS, memcpy_lines(group.done), caption)


def memcpy_lines(results: Sequence[Result]) -> dict[str, float]:
    """Return the times of one warm copy per edge in ms, by their names in the legend."""
    all_cores = [s for result in results for run in result.quiet_runs for s in run.memcpy_all_cores_seconds]
    times = {"memcpy": results[0].memcpy_seconds, "memcpy by all cores": median(all_cores) if all_cores else None}
    return {f"{name}: {format_milliseconds(s)} ms": 1e3 * s for name, s in times.items() if s}
