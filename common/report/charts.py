"""Draw bar charts and line charts of 800 pixels width, and write them as SVG.

Bars have segments. On a logarithmic axis, which has no zero, dots with whiskers replace the bars.
"""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib import color_sequences, rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from common.units import format_bytes

WIDTH = 8.0  # inches
PLAIN_NUMBERS = FuncFormatter(lambda value, _: f"{float(f'{value:.4g}'):,.10g}")
BAR_INCHES = 0.21
# Neighbours differ in lightness, so that they can be told apart in grey. Each line has a marker of its own.
SEGMENT_COLOURS, LINE_COLOURS = color_sequences["tab20"], color_sequences["tab10"]
MARKERS = "osD^vP*Xph<>"


@dataclass(frozen=True)
class Bar:
    """One configuration: the lengths of its segments by name, and a label on the right.

    spread: the ends of the whisker. is_view: readers get a view, so the dot is hollow.
    """

    name: str
    segments: dict[str, float]
    label: str
    spread: tuple[float, float] | None = None
    is_view: bool = False


@dataclass(frozen=True)
class BarChart:
    """Groups of bars by title, and vertical lines by their name in the legend.

    log: all groups share a logarithmic axis. Otherwise each group has an axis of its own that starts at zero.
    """

    file_name: str
    title: str
    groups: dict[str, list[Bar]]
    x_label: str
    limits: dict[str, float] = field(default_factory=dict)
    log: bool = False
    caption: tuple[str, ...] = ()

    def draw(self) -> Figure:
        heights = [BAR_INCHES * (len(bars) + 0.4) for bars in self.groups.values()]
        figure, panels = make_panels(self.caption, heights)
        segments = list(dict.fromkeys(name for bars in self.groups.values() for bar in bars for name in bar.segments))
        for (title, bars), axes in zip(self.groups.items(), panels, strict=True):
            axes.set_title(title, fontsize=9, loc="left")
            axes.grid(axis="x", color="0.9", linewidth=0.6)
            axes.set_yticks(range(len(bars)), [bar.name for bar in bars])
            axes.tick_params(axis="y", length=0)
            axes.set_ylim(len(bars) - 0.3, -0.7)
            if self.log:
                axes.set_xscale("log")
                axes.sharex(panels[0])
                axes.xaxis.set_major_locator(LogLocator())
                axes.xaxis.set_minor_locator(NullLocator())
            else:
                _draw_segments(axes, bars, segments)
            axes.xaxis.set_major_formatter(PLAIN_NUMBERS)
            for y, bar in enumerate(bars):
                axes.text(1.01, y, bar.label, fontsize=8, transform=axes.get_yaxis_transform(), va="center")
                if self.log:
                    inside = "white" if bar.is_view else "0.1"
                    axes.plot(sum(bar.segments.values()), y, "o", color="0.1", markerfacecolor=inside, markersize=5)
                if bar.spread:
                    axes.plot(bar.spread, (y, y), "|-", color="0.1", linewidth=0.9, markersize=5, zorder=1.5)
            for name, position in self.limits.items():
                axes.axvline(position, color="0.3", linewidth=1, zorder=1, label=name)
        panels[-1].set_xlabel(self.x_label, fontsize=9)
        write_title(figure, self.title, panels[0].get_legend_handles_labels()[0])
        return figure


def _draw_segments(axes: Any, bars: list[Bar], names: list[str]) -> None:
    """Draw each segment where the one before it ends. Waiting is white, because no process works."""
    ends = [0.0] * len(bars)
    for index, name in enumerate(names):
        colour = "white" if name.startswith("wait") else SEGMENT_COLOURS[index % len(SEGMENT_COLOURS)]
        lengths = [bar.segments.get(name, 0.0) for bar in bars]
        style = {"facecolor": colour, "edgecolor": "black", "linewidth": 0.4}
        axes.barh(range(len(bars)), lengths, 0.74, ends, label=name, **style)
        ends = [end + length for end, length in zip(ends, lengths, strict=True)]
    axes.set_xlim(0, 1.005 * max(ends))


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
    """Lines with a legend, whose order is the order of the lines at their right ends."""

    file_name: str
    title: str
    lines: list[Series]
    x_label: str
    y_label: str
    x_is_bytes: bool = False
    caption: tuple[str, ...] = ()

    def draw(self) -> Figure:
        figure, (axes,) = make_panels(self.caption, [max(3.0, 0.19 * len(self.lines))])
        for index, line in enumerate(sorted(self.lines, key=lambda line: -line.points[-1][1])):
            colour = LINE_COLOURS[index % len(LINE_COLOURS)]
            style = {"color": colour, "marker": MARKERS[index % len(MARKERS)], "markersize": 5, "linewidth": 1.3}
            if line.is_view:
                style |= {"linestyle": "--", "markerfacecolor": "white"}
            if line.is_limit:
                style = {"color": "0.8", "linewidth": 4, "zorder": 0}
            axes.loglog(*zip(*line.points, strict=True), label=line.name, **style)
        axes.grid(color="0.9", linewidth=0.6)
        axes.set_xlabel(self.x_label, fontsize=9)
        axes.set_ylabel(self.y_label, fontsize=9)
        axes.xaxis.set_major_locator(LogLocator(base=2, numticks=9))
        axes.xaxis.set_major_formatter(
            FuncFormatter(lambda x, _: format_bytes(x)) if self.x_is_bytes else PLAIN_NUMBERS
        )
        axes.yaxis.set_major_locator(LogLocator())
        axes.yaxis.set_major_formatter(PLAIN_NUMBERS)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_locator(NullLocator())
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8, frameon=False)
        write_title(figure, self.title)
        return figure


def make_panels(caption: Sequence[str], heights: Sequence[float]) -> tuple[Figure, list[Any]]:
    """Return a figure and its axes, one below the other. `heights` are in inches, without titles and labels."""
    height = 1.0 + sum(heights) + 0.5 * len(heights) + 0.14 * len(caption)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.supxlabel("\n".join(caption), x=0.01, ha="left", fontsize=7.5)
    panels = list(figure.subplots(len(heights), squeeze=False, height_ratios=heights)[:, 0])
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.set_axisbelow(True)
    return figure, panels


def write_title(figure: Figure, title: str, handles: Sequence[Any] = ()) -> None:
    """Write the title at the top, and below it a legend of `handles`."""
    legend = figure.legend(handles=handles, title=title, title_fontsize=11, fontsize=8, ncols=4, alignment="left",
                           loc="outside upper left", frameon=False, borderpad=0)  # fmt: skip
    legend.get_title().set_multialignment("left")


def to_svg(figure: Figure) -> str:
    """Return the figure as SVG, which is equal for equal figures. Text is drawn as paths, to look equal everywhere."""
    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "path", "svg.hashsalt": "chatlearn-data-flow"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Type": None, "Format": None})
    text = buffer.getvalue()
    # Glyphs are most of the file, so they are written as briefly as possible.
    text = text[text.index("<svg") :].replace("DejaVuSans-", "").replace("xlink:href", "href")
    text = re.sub(r'transform="translate\((\d+)[\d.]* 0\)"', r'x="\1"', text)
    return re.sub(r"\s*\n\s*", "\n", text)
