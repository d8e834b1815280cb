"""Draw charts with dots, bars or lines that are 800 pixels wide, and write them as SVG.

is_view means that readers get a view, so that their times do not include a copy.
"""

import io
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from math import log2
from statistics import fmean
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from dataflow.units import format_bytes

WIDTH, MAX_HEIGHT = 8.0, 12.0  # inches
ROW_INCHES, LABEL_INCHES = 0.21, 0.165
TITLE_CHARACTERS, CAPTION_CHARACTERS = 94, 135  # per line
PLAIN_NUMBERS = FuncFormatter(lambda value, _: f"{float(f'{value:.4g}'):,.10g}")
# The colour-blind can tell these colours apart. Neighbours also differ in lightness. Waiting is white: no work.
SEGMENT_COLOURS = ("#0072b2", "#f0e442", "#4f1a4c", "#35b78b", "#ffffff", "#b0b0b0")
LINE_COLOURS = ("#1769aa", "#b85000", "#1b7f3b", "#c62828", "#7b4fb5", "#7a4a3a", "#c2388b", "#5a5a5a", "#757500",
                "#007f8c", "#1a237e", "#101010")  # fmt: skip
MARKERS = "osD^vP*X<>d"  # fewer than colours, so that two lines of one colour have different markers
GRID_COLOUR, LIMIT_COLOUR = "#cfcfcf", "#6b6b6b"


@dataclass(frozen=True)
class Dot:
    """The value of one configuration with its 95 % interval, and a label on the right. Views have a hollow dot."""

    name: str
    value: float
    low: float
    high: float
    label: str
    is_view: bool = False


@dataclass(frozen=True)
class DotChart:
    """Groups of dots by title on one logarithmic axis, and vertical lines by their name in the legend.

    panel_limits: group -> the position of a line in its panel alone. The title of the group names it.
    """

    file_name: str
    title: str
    groups: dict[str, list[Dot]]
    x_label: str
    limits: dict[str, float] = field(default_factory=dict)
    caption: tuple[str, ...] = ()
    panel_limits: dict[str, float] = field(default_factory=dict)

    def draw(self) -> Figure:
        panels = make_panels(self, [len(dots) for dots in self.groups.values()])
        ends = [end for dots in self.groups.values() for dot in dots for end in (dot.low, dot.high)]
        for (title, dots), axes in zip(self.groups.items(), panels, strict=True):
            draw_rows(axes, title, dots)
            axes.grid(axis="y", color=GRID_COLOUR, linewidth=0.5, linestyle=":")
            set_log_axis(axes, "x", [*ends, *self.limits.values(), *self.panel_limits.values()])
            if title in self.panel_limits:
                axes.axvline(self.panel_limits[title], color=LIMIT_COLOUR, linewidth=1.2, zorder=1)
            for y, dot in enumerate(dots):
                inside = "white" if dot.is_view else "0.1"
                axes.plot((dot.low, dot.high), (y, y), color="0.1", linewidth=1.6, solid_capstyle="butt", zorder=2.1)
                axes.plot(dot.value, y, "o", color="0.1", markerfacecolor=inside, markersize=5, zorder=2.2)
            draw_limits(axes, self.limits)
        return write_title(panels[0], self.title)


@dataclass(frozen=True)
class Bar:
    """One configuration: the lengths of its segments by name, a label on the right, and an interval of its length."""

    name: str
    segments: dict[str, float]
    label: str
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class BarChart:
    """Stacked bars on an axis that starts at zero, and vertical lines by their name in the legend.

    segment_names: all names in the order in which they are stacked. Each place in this order has its own colour.
    """

    file_name: str
    title: str
    bars: list[Bar]
    segment_names: Sequence[str]
    x_label: str
    limits: dict[str, float] = field(default_factory=dict)
    caption: tuple[str, ...] = ()

    def draw(self) -> Figure:
        colours = dict(zip(self.segment_names, cycle(SEGMENT_COLOURS), strict=False))
        present = {name for bar in self.bars for name, x in bar.segments.items() if x}
        (axes,) = make_panels(self, [len(self.bars)])
        draw_rows(axes, "", self.bars)
        ends = [end for bar in self.bars for end in (sum(bar.segments.values()), *(bar.interval or ()))]
        axes.set_xlim(0, 1.005 * max([*ends, *self.limits.values()]))
        axes.xaxis.set_major_formatter(PLAIN_NUMBERS)
        starts = [0.0] * len(self.bars)
        for name in (name for name in self.segment_names if name in present):
            lengths = [bar.segments.get(name, 0.0) for bar in self.bars]
            style = {"color": colours[name], "edgecolor": "black", "linewidth": 0.5}
            axes.barh(range(len(self.bars)), lengths, 0.74, starts, label=name, **style)
            starts = [start + length for start, length in zip(starts, lengths, strict=True)]
        for y, bar in enumerate(self.bars):
            for width, colour in ((4, "white"), (1.6, "0.1")):  # a white edge, to be seen on dark segments
                axes.plot(bar.interval or (), (y, y) if bar.interval else (), color=colour, linewidth=width, zorder=2.1)
        draw_limits(axes, self.limits)
        return write_title(axes, self.title)


@dataclass(frozen=True)
class Series:
    """A line through points (x, y, low, high) and a band around it; dashed for views, broad and grey for a limit."""

    name: str
    points: Sequence[tuple[float, float, float, float]]
    is_view: bool = False
    is_limit: bool = False


@dataclass(frozen=True)
class LineChart:
    """Lines with their names at their right ends. Both axes are logarithmic."""

    file_name: str
    title: str
    lines: list[Series]
    x_label: str
    y_label: str
    x_is_bytes: bool = False
    caption: tuple[str, ...] = ()

    def draw(self) -> Figure:
        rows = max(18, len(self.lines))
        (axes,) = make_panels(self, [rows])
        points = [point for line in self.lines for point in line.points]
        axes.grid(color=GRID_COLOUR, linewidth=0.6)
        axes.set_ylabel(self.y_label, fontsize=9)
        set_value_ticks(axes, sorted({point[0] for point in points} or {1.0}), self.x_is_bytes)
        set_log_axis(axes, "y", [value for point in points for value in point[1:]])
        lines = sorted(self.lines, key=lambda line: line.points[-1][1])
        to_shares = axes.transScale + axes.transLimits  # from data to shares of the width and height
        ends = [to_shares.transform(line.points[-1][:2]) for line in lines]
        heights = move_apart([end[1] for end in ends], LABEL_INCHES / (ROW_INCHES * rows))
        for index, (line, end, height) in enumerate(zip(lines, ends, heights, strict=True)):
            style: dict[str, Any] = {"color": LINE_COLOURS[index % len(LINE_COLOURS)], "linewidth": 1.4}
            style |= {"marker": MARKERS[index % len(MARKERS)], "markersize": 5}
            if line.is_view:
                style |= {"linestyle": "--", "markerfacecolor": "white"}
            if line.is_limit:
                style = {"color": LIMIT_COLOUR, "linewidth": 5, "alpha": 0.45}
            x, y, low, high = zip(*line.points, strict=True)
            axes.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)
            axes.plot(x, y, **style)
            beside: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False}
            axes.plot((end[0], 1.06), (end[1], height), color=style["color"], linewidth=0.5, **beside)
            axes.plot((1.06, 1.085, 1.11), [height] * 3, markevery=[1], **style, **beside)
            axes.text(1.125, height, line.name, color=style["color"], fontsize=8, va="center", transform=axes.transAxes)
        return write_title(axes, self.title)


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


def to_svg(figure: Figure) -> str:
    """Return the figure as SVG, which is equal for equal figures. Text is drawn as paths, to look equal everywhere."""
    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "path", "svg.hashsalt": "chatlearn-data-flow"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Type": None, "Format": None})
    text = buffer.getvalue()
    # Glyphs are most of the file, so they are written as briefly as possible, and without unused names and digits.
    text = text[text.index("<svg") :].replace("DejaVuSans-", "").replace("xlink:href", "href")
    text = re.sub(r'transform="translate\((\d+)[\d.]* 0\)"', r'x="\1"', text)
    text = re.sub(r' id="[\w.]+_\d+"', "", text)
    text = re.sub(r"(\d\d\.\d\d)\d+", r"\1", text)
    return re.sub(r"\s*\n\s*", "\n", text)
