# SPDX-License-Identifier: Apache-2.0
"""Draw how times change with a size: a line per configuration and machine, with its single iterations behind it."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dataflow.analysis.comparison import Pair
from dataflow.analysis.result import Result
from dataflow.report import tables
from dataflow.report.charts import MachinePoint
from dataflow.report.drawing import EXPLAIN_SAMPLES, name_left_out, thin
from dataflow.report.line_charts import LineChart, Series
from dataflow.report.provenance import provenance
from dataflow.report.result_charts import EXPLAIN_MARK, points_of
from dataflow.report.sections import choose_rows
from dataflow.units import MILLISECOND, format_bytes

MAX_LINES = 6  # of a chart; its table has the others
MIN_SIZES = 2  # of a line
# What is swept, as the x axis names it.
SWEPT = {
    "iteration_bytes": "bytes per iteration",
    "fields": "tensors per message (of equal bytes)",
    "actors": "actors",
    "batch_size": "samples per message",
    "in_flight": "iterations in flight",
}
Places = list[tuple[float, float]]


@dataclass(frozen=True)
class Sweep:
    """The results of one configuration by the swept value, in ascending order; at least one of them has a time."""

    results: dict[int, Result]

    @cached_property
    def timed(self) -> dict[int, Result]:
        """Return the results that have a time."""
        return {value: result for value, result in self.results.items() if result.status == "ok"}

    @property
    def largest(self) -> Result:
        """Return the result with the largest value that has a time."""
        return self.timed[max(self.timed)]


class SweptLine:
    """The times of one configuration by size, in milliseconds, on one machine."""

    def __init__(self) -> None:
        self.means: Places = []
        self.samples: Places = []

    def add(self, size: int, point: MachinePoint) -> None:
        """Add the mean time of one size on this machine, and at most MAX_SAMPLES of its single iterations."""
        self.means.append((size, point.value))
        for milliseconds in thin(point.samples):
            self.samples.append((size, milliseconds))


def lines_by_machine(results: Mapping[int, Result]) -> dict[str, SweptLine]:
    """Return a line for each machine that has measured the results, which are given by their size."""
    lines: dict[str, SweptLine] = {}
    for size in sorted(results):
        for point in points_of(results[size]):
            line = lines.setdefault(point.machine, SweptLine())
            line.add(size, point)
    return lines


def make_lines(name: str, results: Mapping[int, Result], is_view: bool = False) -> list[Series]:
    """Return the lines of a configuration. The name has the machine if there are several."""
    by_machine = lines_by_machine(results)
    has_one_machine = len(by_machine) == 1
    lines = []
    for machine, line in by_machine.items():
        full_name = name
        if not has_one_machine:
            full_name += f", {machine}"
        series = Series(full_name, line.means, line.samples, is_view)
        lines.append(series)
    return lines


def memcpy_line(sweeps: Sequence[Sweep]) -> list[Series]:
    """Return the line of one warm copy of each message; none if it was not measured."""
    milliseconds: dict[int, float] = {}
    for sweep in sweeps:
        for size, result in sweep.timed.items():
            if result.memcpy_seconds:
                milliseconds[size] = result.memcpy_seconds / MILLISECOND
    if not milliseconds:
        return []
    return [Series("memcpy", sorted(milliseconds.items()), is_limit=True)]


def draw_sizes(
    swept: str, title: str, sweeps: Sequence[Sweep], results: Sequence[Result]
) -> LineChart:
    """Return the chart of a sweep: at most MAX_LINES configurations, and memcpy. `results` say where it is from."""
    largest = [sweep.largest for sweep in sweeps]
    chosen = choose_rows(largest, max_rows=MAX_LINES)
    lines: list[Series] = []
    for position in chosen:
        result = largest[position]
        name = tables.short_label(result, swept)
        is_view = not result.readers_own_a_copy
        lines += make_lines(name, sweeps[position].timed, is_view)
    total = len(sweeps)
    notes = name_left_out(total - len(chosen), total)
    if any(line.is_view for line in lines):
        notes.append("Dashed: readers get a view.")
    format_x: Callable[[int], str] = str
    if swept == "iteration_bytes":
        format_x = format_bytes
    return LineChart(
        f"sweep_{swept}",
        title,
        [*lines, *memcpy_line(sweeps)],
        SWEPT[swept],
        format_x,
        [f"{EXPLAIN_MARK} {EXPLAIN_SAMPLES}", *notes, *provenance(results)],
    )


def draw_kept_memory(title: str, pairs: Sequence[Pair]) -> LineChart | None:
    """Return the times without and with kept memory by the bytes of an iteration; None for fewer than two sizes."""
    if len(pairs) < MIN_SIZES:
        return None
    by_name: dict[str, dict[int, Result]] = defaultdict(dict)
    measured: list[Result] = []
    for pair in pairs:
        measured += pair.sides
        for result in pair.sides:
            name = tables.short_label(result)
            size = result.workload.bytes_per_iteration
            by_name[name][size] = result
    lines: list[Series] = []
    for name, by_size in by_name.items():
        lines += make_lines(name, by_size)
    return LineChart(
        "retained_memory",
        title,
        lines,
        SWEPT["iteration_bytes"],
        format_bytes,
        [f"{EXPLAIN_MARK} {EXPLAIN_SAMPLES}", *provenance(measured)],
    )
