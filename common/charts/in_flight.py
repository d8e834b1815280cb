"""What overlapping is worth: trips a second against how many are under way, beside what copying alone allows."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from common.analysis.results import Result
from common.charts import png
from common.charts.line_style import clear, line_style
from common.flow.flow import DRIVER
from common.record.environment import machine_line
from common.text.tables import Column, markdown_table, three_digits
from common.units import format_bytes

ENOUGH = 0.95  # of the best throughput
Line = list[Result]  # of one transport, by trips under way


def transport_of(result: Result) -> str:
    """The row's name, however many trips are in a row and under way."""
    return re.sub(r" --(episode|in-flight) \d+", "", result.name)


def depth(result: Result) -> int:
    """Trips under way at a time."""
    return result.in_flight


def trips_per_second(result: Result) -> float:
    """Of whole episodes, their starts and ends included."""
    return 1 / result.paced_seconds


def bound_seconds(result: Result) -> float | None:
    """What a trip takes at best, however many are under way: the slowest stage. None where that was not measured.

    Of rows that copy: the copies of the actor that reads most, by one thread, or all copies by all cores, whichever
    takes longer. Of rows that map: the hand-overs to the actor that reads most, as its part of all of them. Of each the
    fastest pass that was seen.
    """
    flow, runs = result.flow, result.runs
    into = [flow.edges_into(actor) for actor in (*flow.actors, DRIVER)]
    if not result.payload_copied:
        words = [s for run in runs for s in run.hand_over_before_seconds + run.hand_over_after_seconds]
        return min(words) * max(map(len, into)) / len(flow.edges) if words else None
    passes = [s for run in runs for s in run.ceiling_before_seconds + run.ceiling_after_seconds]
    every = [s for run in runs for s in run.ceiling_all_cores_seconds]
    if not passes or not every:
        return None
    return max(min(passes) * max(sum(edge.bytes for edge in edges) for edges in into) / flow.bytes_per_trip, min(every))


def lines_of(results: Sequence[Result]) -> list[Line]:
    """The transports with more than one point that is ok."""
    found: dict[str, Line] = {}
    for result in sorted(results, key=depth):
        if result.status == "ok":
            found.setdefault(transport_of(result), []).append(result)
    return [line for line in found.values() if len(line) > 1]


def columns() -> list[Column]:
    """Of a line for each transport."""

    def best(line: Line) -> float:
        return max(map(trips_per_second, line))

    def enough(line: Line) -> str:
        return str(next(depth(result) for result in line if trips_per_second(result) >= ENOUGH * best(line)))

    def of_bound(line: Line) -> str:
        fastest = max(line, key=trips_per_second)
        bound = bound_seconds(fastest)
        return f"{bound * best(line):.0%}" if bound else "-"

    return [
        Column("transport", lambda line: transport_of(line[0])),
        Column("trips a second, one by one", lambda line: three_digits(trips_per_second(line[0]))),
        Column("at best", lambda line: three_digits(best(line))),
        Column("overlapping is worth", lambda line: f"{best(line) / trips_per_second(line[0]):.2f}x"),
        Column("enough under way", enough),
        Column("of what its slowest stage allows", of_bound),
        Column("ends with", lambda line: "bytes" if line[0].payload_copied else "views", words=True),
    ]


def markdown(results: Sequence[Result]) -> str | None:
    """The table of a sweep over trips under way; None where there is none."""
    lines = lines_of(results)
    if not lines:
        return None
    first = lines[0][0]
    moved = f"{first.flow.title}, {format_bytes(first.record.bytes_per_trip)} a trip, {first.episode} trips in a row."
    return f"{moved}\n\n{markdown_table(lines, columns())}"


def draw(results: Sequence[Result], path: Path) -> None:
    """A line a transport on log axes; dashed where readers hold views."""
    lines = lines_of(results)
    first = lines[0][0]
    figure = Figure(figsize=(10.5, 7), dpi=140, layout="constrained")
    axes, legend = figure.subplots(2, 1, height_ratios=[5, 0.28 * (len(lines) // 3 + 1)])
    for index, line in enumerate(lines):
        points = [(depth(result), trips_per_second(result)) for result in line]
        axes.plot(*zip(*points, strict=True), label=transport_of(line[0]),
                  **line_style(index, bool(line[0].payload_copied)))  # fmt: skip
    for copied, what, style in ((True, "copies", "-"), (False, "hand-overs", ":")):
        bounds = [s for line in lines if bool(line[0].payload_copied) is copied and (s := bound_seconds(line[-1]))]
        if bounds:
            most, name = 1 / float(np.median(bounds)), f"what the {what} of the slowest actor allow"
            axes.axhline(most, label=name, color="black", linestyle=style, linewidth=3.2, alpha=0.35)
    axes.set_xscale("log")
    axes.set_yscale("log")
    depths = sorted({depth(result) for line in lines for result in line})
    axes.set_xticks(depths, [str(each) for each in depths])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.set_xlabel("trips under way", fontsize=11)
    axes.set_ylabel("trips a second", fontsize=11)
    clear(axes)
    legend.set_axis_off()
    legend.legend(*axes.get_legend_handles_labels(), loc="center", ncols=3, fontsize=10, frameon=False)
    moved = format_bytes(first.record.bytes_per_trip)
    figure.suptitle(f"What overlapping is worth: {first.flow.title}, {moved} a trip", fontsize=13, x=0.01, ha="left")
    environment = first.record.environments.get("0", {})
    figure.supxlabel(f"Dashed, hollow: readers hold views. {machine_line(environment)}", fontsize=9, x=0.01, ha="left")
    png.save(figure, path)
