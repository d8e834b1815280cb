# SPDX-License-Identifier: Apache-2.0
"""Draw results with a row each: the mean of each machine before its single iterations, and the times of memcpy."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import geometric_mean, median
from typing import Any

from dataflow.analysis.result import Result
from dataflow.records.schema import Record, Run
from dataflow.report import tables
from dataflow.report.charts import Chart, MachinePoint, Mark
from dataflow.report.drawing import EXPLAIN_SAMPLES, MAX_ROWS, name_left_out
from dataflow.report.provenance import provenance
from dataflow.report.sections import Group, choose_rows, is_baseline, title_of
from dataflow.report.tables import format_milliseconds, format_significant
from dataflow.units import MILLISECOND

NAME_LENGTH = 4  # of a boot
FAR = 5  # times less than the fastest row: such a limit is not drawn
EXPLAIN_MARK = "Mark: mean of the timed iterations (geometric mean of the runs' means)."


def draw_dots(
    group: Group,
    file_name: str = "",
    title: str = "",
    label: Callable[[Result], str] = tables.marked_label,
    finding: str = "",
    is_preferred: Callable[[Result], bool] = is_baseline,
) -> Chart | None:
    """Return a chart with a row per result, the slowest first, in groups of equal work, and the times of memcpy.

    It has at most MAX_ROWS, chosen by `choose_rows`. The default name is that of the table.
    It is None for one result. `finding` stands above the title; a factor in it is one that the table has too.
    """
    if len(group.done) == 1:
        return None
    chosen = choose_rows(group.ordered, is_preferred, MAX_ROWS)
    rows = group_marks([group.ordered[position] for position in chosen], label)
    total = len(group.ordered)
    limits, far = divide_limits(memcpy_lines(group.done), rows)
    caption = (
        f"{EXPLAIN_MARK} {EXPLAIN_SAMPLES}",
        *far,
        *name_left_out(total - len(chosen), total),
        *provenance(group.done),
    )
    first = group.done[0]
    title = title or f"Time per iteration: {title_of(first)}"
    return Chart(
        file_name or first.table.replace("-", "_"),
        finding + title,
        rows,
        "milliseconds (logarithmic axis)",
        limits,
        caption,
    )


def group_marks(results: Iterable[Result], label: Callable[[Result], str]) -> dict[str, list[Mark]]:
    """Return a mark per result by what its readers get, the slowest first."""
    rows: dict[str, list[Mark]] = {}
    for result in results:
        marks = rows.setdefault(tables.readers_of(result), [])
        marks.append(make_mark(result, label(result)))
    for marks in rows.values():
        marks.sort(key=lambda mark: -geometric_mean(point.value for point in mark.points))
    return rows


def divide_limits(
    limits: Mapping[str, float], rows: Mapping[str, Sequence[Mark]]
) -> tuple[dict[str, float], list[str]]:
    """Return the limits that are drawn, and a line with those that are too far from all rows, which would be empty."""
    values: list[float] = []
    for marks in rows.values():
        for mark in marks:
            values += mark.values
    nearest = min(values) / FAR
    drawn = {name: value for name, value in limits.items() if value >= nearest}
    far = [name for name in limits if name not in drawn]
    return drawn, [f"Not drawn: {', '.join(far)}."] if far else []


def make_mark(result: Result, name: str) -> Mark:
    """Return the row of a result: its times in milliseconds, and the means as text."""
    points = points_of(result)
    means = [format_significant(point.value) for point in points]
    return Mark(name, f"{', '.join(means)} ms", points, is_view=not result.readers_own_a_copy)


def points_of(result: Result) -> list[MachinePoint]:
    """Return the mean of the runs' means in milliseconds of each machine, with all timed iterations."""
    runs_by_machine: dict[str, list[Run]] = defaultdict(list)
    shown = {id(run) for run in result.shown_runs}
    for record in result.records:
        for run in record.runs:
            if id(run) in shown and run.seconds:
                runs_by_machine[name_machine(record)].append(run)
    points = []
    for machine, runs in runs_by_machine.items():
        mean = geometric_mean(mean_seconds(run) for run in runs)
        samples: list[float] = []
        for run in runs:
            samples += [
                seconds / MILLISECOND for seconds in iteration_times(run, result.check_every)
            ]
        points.append(MachinePoint(mean / MILLISECOND, samples, machine))
    return points


def name_machine(record: Record) -> str:
    """Return the boot and the processor of a record."""
    environment: dict[str, Any] = record.environments.get("0", {})
    boot = str(environment.get("boot"))[:NAME_LENGTH]
    return f"{boot}: {environment.get('cpu_model')}"


def mean_seconds(run: Run) -> float:
    """Return the time of all iterations of a run, divided by their number."""
    return sum(run.group_seconds or run.seconds) / len(run.seconds)


def iteration_times(run: Run, check_every: int) -> list[float]:
    """Return the times of a run's iterations, in seconds; of groups, the time per iteration of each one."""
    if not run.group_seconds:
        return run.seconds
    times = []
    left = len(run.seconds)
    for seconds in run.group_seconds:
        size = min(check_every, left)  # the last group can be smaller
        times.append(seconds / size)
        left -= size
    return times


def memcpy_lines(results: Sequence[Result]) -> dict[str, float]:
    """Return the times of one warm copy per edge in ms, by their names in the legend.

    There are none for several machines, because each has times of its own.
    """
    machines = set()
    all_cores = []
    for result in results:
        machines |= {name_machine(record) for record in result.records}
        for run in result.quiet_runs:
            all_cores += run.memcpy_all_cores_seconds
    if len(machines) > 1:
        return {}
    times = {
        "memcpy": results[0].memcpy_seconds,
        "memcpy by all cores": median(all_cores) if all_cores else None,
    }
    lines = {}
    for name, seconds in times.items():
        if seconds:
            lines[f"{name}: {format_milliseconds(seconds)} ms"] = seconds / MILLISECOND
    return lines
