"""Draw charts with dots, bars or lines that are 800 pixels wide, and write them as SVG.

is_view means that readers get a view, so that their times do not include a copy.
"""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from dataflow.report.axes import (
    GRID_COLOUR,
    LABEL_INCHES,
    LIMIT_COLOUR,
    PLAIN_NUMBERS,
    ROW_INCHES,
    draw_limits,
    draw_rows,
    make_panels,
    move_apart,
    set_log_axis,
    set_value_ticks,
    write_title,
)

# The colour-blind can tell these colours apart. Neighbours also differ in lightness. Waiting is white: no work.
SEGMENT_COLOURS = ("#0072b2", "#f0e442", "#4f1a4c", "#35b78b", "#ffffff", "#b0b0b0")
LINE_COLOURS = ("#1769aa", "#b85000", "#1b7f3b", "#c62828", "#7b4fb5", "#7a4a3a", "#c2388b", "#5a5a5a", "#757500",
                "#007f8c", "#1a237e", "#101010")  # fmt: skip
MARKERS = "osD^vP*X<>d"  # fewer than colours, so that two lines of one colour have different markers


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
