"""Prepare the figures and the axes of charts: panels, titles, rows, limits and ticks."""

import textwrap
from collections.abc import Sequence
from itertools import cycle
from math import log2
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from dataflow.units import format_bytes

WIDTH, MAX_HEIGHT = 8.0, 12.0  # inches
ROW_INCHES, LABEL_INCHES = 0.21, 0.165
TITLE_CHARACTERS, CAPTION_CHARACTERS = 94, 135  # per line
PLAIN_NUMBERS = FuncFormatter(lambda value, _: f"{float(f'{value:.4g}'):,.10g}")
GRID_COLOUR, LIMIT_COLOUR = "#cfcfcf", "#6b6b6b"


def make_panels(chart: Any, rows: Sequence[int]) -> list[Any]:
    """Return the axes of a new figure, one below the other, with the caption of the chart and with room for its title.

    rows: the height of each panel. Rows are lower than ROW_INCHES if the figure would be higher than MAX_HEIGHT.
    """
    title, caption = wrap(chart.title, TITLE_CHARACTERS), wrap("\n".join(chart.caption), CAPTION_CHARACTERS)
    heights = [ROW_INCHES * (count + 0.4) for count in rows]
    height = 1.0 + sum(heights) + 0.45 * len(rows) + 0.2 * title.count("\n") + 0.13 * caption.count("\n")
    figure = Figure(figsize=(WIDTH, min(height, MAX_HEIGHT)), layout="constrained")
    figure.supxlabel(caption, x=0.01, ha="left", fontsize=7.5)
    panels = list(figure.subplots(len(rows), squeeze=False, height_ratios=heights)[:, 0])
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.set_axisbelow(True)
    panels[-1].set_xlabel(chart.x_label, fontsize=9)
    return panels


def write_title(axes: Any, title: str) -> Figure:
    """Write the title at the top, and below it a legend of what has a label in these axes; return the figure."""
    legend = axes.figure.legend(
        *axes.get_legend_handles_labels(), title=wrap(title, TITLE_CHARACTERS), title_fontsize=11, fontsize=8, ncols=6,
        alignment="left", loc="outside upper left", frameon=False, borderpad=0,
    )  # fmt: skip
    legend.get_title().set_multialignment("left")
    return axes.figure


def wrap(text: str, width: int) -> str:
    """Break lines that are longer than `width` characters, but not at the hyphens of a flag."""
    return "\n".join(textwrap.fill(line, width, break_on_hyphens=False) for line in text.splitlines())


def draw_rows(axes: Any, title: str, marks: Sequence[Any]) -> None:
    """Write the title of the panel, and for each mark its name on the left and its label on the right."""
    axes.set_title(title.strip(), fontsize=9, loc="left")
    axes.grid(axis="x", color=GRID_COLOUR, linewidth=0.6)
    axes.set_yticks(range(len(marks)), [mark.name for mark in marks])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(marks) - 0.3, -0.7)
    for y, mark in enumerate(marks):
        axes.text(1.01, y, mark.label, fontsize=8, transform=axes.get_yaxis_transform(), va="center_baseline")


def draw_limits(axes: Any, limits: dict[str, float]) -> None:
    """Draw a vertical line at each position, with its name in the legend."""
    for (name, position), style in zip(limits.items(), cycle(("-", "--", ":")), strict=False):
        axes.axvline(position, color=LIMIT_COLOUR, linewidth=1.2, linestyle=style, zorder=1, label=name)


def set_log_axis(axes: Any, name: str, values: Sequence[float]) -> None:
    """Make the axis "x" or "y" logarithmic. It has at least a factor of 4, so that it has labels."""
    low, high = min(values, default=1.0), max(values, default=1.0)
    margin = max(1.15, 2 * (low / high) ** 0.5)
    low, high = low / margin, high * margin
    digits = (1,) if high > 500 * low else (1, 2, 5)  # of the labels
    axes.set(**{f"{name}scale": "log", f"{name}lim": (low, high)})
    axis = axes.xaxis if name == "x" else axes.yaxis
    axis.set_major_formatter(PLAIN_NUMBERS)
    axis.set_major_locator(LogLocator(subs=digits, numticks=20))
    axis.set_minor_locator(LogLocator(subs=range(2, 10), numticks=20))
    axis.set_minor_formatter(NullFormatter())


def set_value_ticks(axes: Any, values: Sequence[float], is_bytes: bool) -> None:
    """Make the x axis logarithmic with a tick at each value, and label the first, the last and those with room."""
    labels = {value: format_bytes(value) if is_bytes else f"{value:,.10g}" for value in values}
    width = log2(values[-1] / values[0]) or 1.0
    room = 2 ** (width * (0.03 + 0.013 * max(map(len, labels.values()))))
    labelled = [values[0]]
    for value in values[1:-1]:
        if value >= labelled[-1] * room and value * room <= values[-1]:
            labelled.append(value)
    labelled.append(values[-1])
    axes.set_xscale("log", base=2)
    axes.set_xlim(values[0] / 2 ** (0.03 * width), values[-1] * 2 ** (0.03 * width))
    axes.set_xticks(labelled, [labels[value] for value in labelled])
    axes.set_xticks(values, minor=True)
    axes.xaxis.set_minor_formatter(NullFormatter())


def move_apart(heights: Sequence[float], gap: float) -> list[float]:
    """Return heights between 0 and 1 that are at least `gap` apart, near to the given ones, which are ascending."""
    groups: list[list[float]] = []  # of heights less the room for the ones below; equal in a group after moving
    for index, height in enumerate(heights):
        groups.append([height - index * gap])
        while len(groups) > 1 and fmean(groups[-2]) >= fmean(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    highest = 1 - (len(heights) - 1) * gap
    moved = [min(max(fmean(group), 0.0), highest) for group in groups for _ in group]
    return [height + index * gap for index, height in enumerate(moved)]
