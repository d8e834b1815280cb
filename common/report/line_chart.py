"""Draw line charts on logarithmic axes, with the name of each line at its right end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from common.report.figures import CHARACTER, PLAIN_NUMBERS, make_panels
from common.units import format_bytes

# Neighbours differ in lightness, so that they can be told apart in grey, and each line has a marker of its own.
COLOURS = ("#000000", "#e07000", "#4575b4", "#2ca02c", "#7b3294", "#c9a000", "#6cacd6", "#99582a", "#e377c2", "#006d5b",
           "#7f7f7f")  # fmt: skip
MARKERS = "osD^vP*Xph<>"
LABEL_INCHES = 0.15  # from one name to the next
MAX_TICKS = 8


@dataclass(frozen=True)
class Series:
    """One line through points that are sorted by x.

    is_view: readers get a view; dashed. is_limit: a reference; broad and grey.
    """

    name: str
    points: Sequence[tuple[float, float]]
    is_view: bool = False
    is_limit: bool = False


@dataclass(frozen=True)
class LineChart:
    """Panels by title, one below the other. Lines with equal names have equal colours and markers."""

    file_name: str
    title: str
    panels: dict[str, list[Series]]
    x_label: str
    x_is_bytes: bool = False
    caption: tuple[str, ...] = ()

    def draw(self) -> Figure:
        """Return the figure."""
        names = list(dict.fromkeys(line.name for lines in self.panels.values() for line in lines))
        heights = {title: 1.5 * LABEL_INCHES * max(len(lines), 12) for title, lines in self.panels.items()}
        right = 0.4 + CHARACTER * max(map(len, names))
        figure, panels = make_panels(heights, self.title, self.caption, 0.6, right)
        for lines, axes, height in zip(self.panels.values(), panels, heights.values(), strict=True):
            axes.grid(color="0.9", linewidth=0.6)
            axes.set_xscale("log")
            axes.set_yscale("log")
            for line in lines:
                axes.plot(*zip(*line.points, strict=True), **_line_style(line, names.index(line.name)))
            positions = sorted({x for line in lines for x, _ in line.points})
            ticks = positions[:1]
            for x in positions:
                if x / ticks[-1] >= (positions[-1] / positions[0]) ** (1 / MAX_TICKS):
                    ticks.append(x)
            axes.set_xticks(ticks, [format_bytes(x) if self.x_is_bytes else f"{x:,}" for x in ticks])
            axes.yaxis.set_major_locator(LogLocator())
            axes.yaxis.set_major_formatter(PLAIN_NUMBERS)
            axes.xaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_minor_locator(NullLocator())
            _draw_names(axes, lines, names, LABEL_INCHES / height)
        panels[-1].set_xlabel(self.x_label, fontsize=9)
        return figure


def _line_style(line: Series, index: int) -> dict[str, Any]:
    if line.is_limit:
        return {"color": "0.8", "linewidth": 4, "zorder": 0}
    colour, style = COLOURS[index % len(COLOURS)], "--" if line.is_view else "-"
    return {"color": colour, "marker": MARKERS[index % len(MARKERS)], "markersize": 5, "linestyle": style,
            "markerfacecolor": "white" if line.is_view else colour, "linewidth": 1.3}  # fmt: skip


def _draw_names(axes: Any, lines: list[Series], names: list[str], gap: float) -> None:
    """Write the name of each line beside its right end. Names that would overlap are moved apart."""
    lines = sorted(lines, key=lambda line: line.points[-1][1])
    bottom, top = np.log10(axes.get_ylim())
    heights = [float((np.log10(line.points[-1][1]) - bottom) / (top - bottom)) for line in lines]
    for line, height in zip(lines, spread_apart(heights, gap), strict=True):
        colour = "0.4" if line.is_limit else COLOURS[names.index(line.name) % len(COLOURS)]
        arrow = {"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 4}
        axes.annotate(line.name, line.points[-1], (1.05, height), textcoords="axes fraction", fontsize=8, color=colour,
                      va="center", arrowprops=arrow)  # fmt: skip


def spread_apart(heights: list[float], gap: float) -> list[float]:
    """Return sorted heights from 0 to 1 that are at least `gap` apart, each moved about as little as possible."""
    moved = list(heights)
    for _ in range(300):
        moved[0], moved[-1] = max(moved[0], 0.0), min(moved[-1], 1.0)
        for index in range(1, len(moved)):
            overlap = max(0.0, gap - (moved[index] - moved[index - 1]))
            moved[index - 1] -= overlap / 2
            moved[index] += overlap / 2
    return moved
