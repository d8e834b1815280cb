"""Time and rate against what was swept, of several transports, with the ceiling: two panels, readable in grey."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from common.analysis.results import Result
from common.charts import in_flight, png
from common.charts.line_style import clear, line_style
from common.cost.costs import ROUNDING, Costs, costs_of, knees, transport_of
from common.record.environment import machine_line
from common.record.rows import CEILING
from common.units import format_bytes

AXES = {"payload": "bytes a trip", "fields": "tensors a message, the bytes alike", "rows": "samples a message",
        "roles": "actors", "in_flight": "trips under way"}  # fmt: skip
Line = list[Result]


def swept_of(result: Result) -> str:
    """What was swept at this point."""
    return next(iter(result.runs[0].at))


def place_of(result: Result) -> int:
    """Where on the axis it stands."""
    return result.runs[0].at[swept_of(result)]


def rate_of(result: Result) -> float:
    """Bytes a second that readers received; where trips overlap, by whole episodes."""
    return result.record.bytes_per_trip / (result.paced_seconds if result.episode > 1 else result.summary.median)


def draw_all(results: Sequence[Result], folder: Path) -> list[Path]:
    """A picture for each thing that was swept, of the flow of which there are most points."""
    done: dict[str, dict[str, list[Result]]] = {}
    for result in results:
        if result.status == "ok":
            done.setdefault(swept_of(result), {}).setdefault(result.flow.name, []).append(result)
    for swept, by_flow in done.items():
        most, path = max(by_flow.values(), key=len), folder / f"sweep_{swept}.png"
        if swept != "in_flight":
            draw(most, costs_of(results), path)
        elif in_flight.lines_of(most):
            in_flight.draw(most, path)
    return [path for swept in done if (path := folder / f"sweep_{swept}.png").exists()]


def draw(results: Sequence[Result], costs: Mapping[str, Costs], path: Path) -> None:
    """Points of one flow that are ok, all of one thing swept; left the median trip, right GB/s of rows that copy."""
    lines = _lines(results)
    figure = Figure(figsize=(10.5, 5.5 + 0.3 * (len(lines) // 3 + 1)), dpi=140, layout="constrained")
    heights = [5, 0.3 * (len(lines) // 3 + 1)]
    panels = figure.subplot_mosaic([["times", "rates"], ["legend", "legend"]], height_ratios=heights)
    times, rates, legend = panels["times"], panels["rates"], panels["legend"]
    bends = knees(costs) if swept_of(results[0]) == "payload" else {}
    for index, (name, line) in enumerate(lines.items()):
        style = line_style(index, bool(line[-1].payload_copied))  # the object store copies small messages, maps others
        x = [place_of(result) for result in line]
        times.plot(x, [1e3 * result.summary.median for result in line], label=name, **style)
        copied = [result for result in line if result.payload_copied]
        if copied:
            rates.plot([place_of(result) for result in copied], [rate_of(result) / 1e9 for result in copied], **style)
        if name in bends:
            for knee in [r for r in line if place_of(r) <= (costs[name].fit.knee_bytes or 0) * ROUNDING][-1:]:
                times.plot(place_of(knee), 1e3 * knee.summary.median, "o", ms=17, mfc="none", mec="black", mew=1.4)
    _ceiling(times, rates, results)
    times.set_title("median trip, milliseconds", loc="left", fontsize=12)
    rates.set_title("GB/s to readers with bytes of their own", loc="left", fontsize=12)
    for axes in (times, rates):
        _scale(axes, swept_of(results[0]), [place_of(result) for result in results])
    figure.suptitle(f"What a trip of {results[0].flow.title} takes, by {AXES[swept_of(results[0])]}", fontsize=13.5,
                    x=0.01, ha="left")  # fmt: skip
    legend.set_axis_off()
    legend.legend(*times.get_legend_handles_labels(), loc="center", ncols=3, fontsize=10.5, frameon=False,
                  handlelength=3.2)  # fmt: skip
    figure.supxlabel(_caption(results, bends), fontsize=9, x=0.01, ha="left")
    png.save(figure, path)


def _lines(results: Sequence[Result]) -> dict[str, Line]:
    """The transports in the ladder's order, their points by size; the ceiling itself is a line of its own."""
    found: dict[str, Line] = {}
    for result in sorted(results, key=place_of):
        found.setdefault(transport_of(result), []).append(result)
    order = dict.fromkeys(transport_of(result) for result in results)
    return {name: found[name] for name in order if name != CEILING}


def _ceiling(times: Any, rates: Any, results: Sequence[Result]) -> None:
    """One warm copy an edge: the median of what all runs at a size found before and after their trips."""
    found: dict[int, list[tuple[float, int]]] = {}
    for result in results:
        if result.ceiling_seconds:
            found.setdefault(place_of(result), []).append((result.ceiling_seconds, result.record.bytes_per_trip))
    x = sorted(found)
    seconds = np.array([np.median([second for second, _ in found[place]]) for place in x])
    counts = np.array([found[place][0][1] for place in x])
    style = {"color": "black", "linewidth": 3.2, "alpha": 0.35, "zorder": 0}
    times.plot(x, 1e3 * seconds, label="ceiling: one warm copy an edge", **style)
    rates.plot(x, counts / seconds / 1e9, **style)
    words = {place_of(result): result.hand_over_seconds for result in results if result.hand_over_seconds}
    if words:
        hand_over = [1e3 * words[place] for place in sorted(words)]
        times.plot(sorted(words), hand_over, label="handing over alone: a word an edge", **style | {"linestyle": ":"})


def _scale(axes: Any, swept: str, places: Sequence[int]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(AXES[swept], fontsize=11)
    shown = sorted(set(places))
    while len(shown) > 6:
        shown = shown[::2]
    text = format_bytes if swept == "payload" else str
    axes.set_xticks(shown, [text(place).replace(" ", "\n") for place in shown], fontsize=9.5)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}"))
    axes.tick_params(axis="y", labelsize=10)
    clear(axes)


def _caption(results: Sequence[Result], bends: Mapping[str, str]) -> str:
    """How to read it, and where it is from."""
    lines = ["Dashed, hollow: readers hold views of another's memory, and nobody moved bytes to them."]
    lines += [f"Ring: knee of {name} at {words}." for name, words in bends.items()]
    environments = [found for result in results for found in result.environments]
    lines += sorted(set(map(machine_line, environments)))
    return "\n".join(part for line in lines for part in textwrap.wrap(line, 150))
