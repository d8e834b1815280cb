# SPDX-License-Identifier: Apache-2.0
"""Draw charts with dots, bars or lines that are 800 pixels wide, and write them as SVG."""

import io
import re
import textwrap
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

WIDTH, MAX_HEIGHT, ROW_HEIGHT = 8.0, 12.0, 0.21  # inches
TITLE_CHARACTERS, CAPTION_CHARACTERS = 94, 135  # per line
LINE_CHART_ROWS = 18  # its height
# The colour-blind can tell these colours apart. Neighbours also differ in lightness. Waiting is white: no work.
SEGMENT_COLOURS = ("#0072b2", "#f0e442", "#4f1a4c", "#35b78b", "#ffffff", "#b0b0b0")
LIMIT_COLOUR = "#6b6b6b"
STYLES = tomllib.loads(Path(__file__).with_name("charts.toml").read_text(encoding="utf-8"))
OTHER_COLOUR = "#4d4d4d"
PLAIN_NUMBERS = FuncFormatter(lambda value, _: f"{float(f'{value:.4g}'):,.10g}")


@dataclass(frozen=True)
class Mark:
    """The value of one configuration with its 95 % interval, or with the values that it has on several machines."""

    name: str
    label: str  # on the right
    value: float
    low: float
    high: float
    is_view: bool = False  # a hollow dot, because its time does not include a copy
    segments: Mapping[str, float] = field(default_factory=dict)  # of a bar, by name
    points: Sequence[float] = ()  # one per machine, which are drawn in place of value and interval


@dataclass(frozen=True)
class Series:
    """A line through points (x, y, low, high) and a band around it; dashed for views, broad and grey for a limit."""

    name: str
    points: Sequence[tuple[float, ...]]
    is_view: bool = False
    is_limit: bool = False


@dataclass(frozen=True)
class Chart:
    """Panels one below the other on the same x axis. Each mark is a row: a dot on a logarithmic axis, or a bar."""

    file_name: str
    title: str
    panels: dict[str, list[Any]]  # marks by title
    x_label: str
    limits: dict[str, float] = field(default_factory=dict)  # vertical lines, by name in the legend
    caption: Sequence[str] = ()
    # In the order in which bars are stacked, on an axis that starts at zero.
    segment_names: Sequence[str] = ()
    # The panels have lines on logarithmic axes instead of rows.
    format_x: Callable[[int], str] | None = None

    def draw(self) -> Figure:
        """Return the figure, with the title and the legend at the top and the caption at the bottom."""
        caption = wrap("\n".join(self.caption), CAPTION_CHARACTERS)
        heights = [
            LINE_CHART_ROWS if self.format_x else len(marks) + 0.4 for marks in self.panels.values()
        ]
        height = 1.3 + ROW_HEIGHT * sum(heights) + 0.5 * len(heights) + 0.13 * caption.count("\n")
        figure = Figure(figsize=(WIDTH, min(height, MAX_HEIGHT)), layout="constrained")
        figure.supxlabel(caption, x=0.01, ha="left", fontsize=7.5)
        panels = figure.subplots(len(heights), squeeze=False, height_ratios=heights)[:, 0]
        for axes, (title, marks) in zip(panels, self.panels.items(), strict=True):
            axes.set_title(title, fontsize=9, loc="left")
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=8)
            axes.set_axisbelow(True)
            axes.grid(axis="x", linewidth=0.6)
            if self.format_x:
                self.draw_lines(axes, marks, self.format_x)
            else:
                self.draw_rows(axes, marks)
            self.draw_limits(axes)
        axes.set_xlabel(self.x_label, fontsize=9)
        legend = figure.legend(
            *panels[0].get_legend_handles_labels(), title=wrap(self.title, TITLE_CHARACTERS), title_fontsize=11,
            fontsize=8, ncols=3 if self.format_x else 6, alignment="left", loc="outside upper left", frameon=False,
        )  # fmt: skip
        legend.get_title().set_multialignment("left")
        return figure

    def to_svg(self) -> str:
        """Return the chart as SVG, equal for equal charts. Text is drawn as paths, to look equal everywhere."""
        buffer = io.StringIO()
        with rc_context({"svg.fonttype": "path", "svg.hashsalt": "chatlearn-data-flow"}):
            self.draw().savefig(
                buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Type", "Format"))
            )
        text = buffer.getvalue()
        # Glyphs are most of the file, so they are written as briefly as possible, and without unused names and digits.
        text = text[text.index("<svg") :].replace("DejaVuSans-", "").replace("xlink:href", "href")
        text = re.sub(r'transform="translate\((\d+)[\d.]* 0\)"', r'x="\1"', text)
        text = re.sub(r' id="[\w.]+_\d+"', "", text)
        text = re.sub(r"(\d\d\.\d\d)\d+", r"\1", text)
        return re.sub(r"\s*\n\s*", "\n", text)

    def draw_limits(self, axes: Any) -> None:
        """Draw a vertical line per limit, each with a style of its own."""
        styles = cycle(("-", "--", ":"))
        for name, position in self.limits.items():
            axes.axvline(
                position,
                color=LIMIT_COLOUR,
                linewidth=1.2,
                linestyle=next(styles),
                zorder=1,
                label=name,
            )

    def draw_rows(self, axes: Any, marks: Sequence[Mark]) -> None:
        """Draw a row per mark: a dot with the ends of its interval, a dot per machine, or a bar of segments."""
        shown = [*self.limits.values()]
        for mark in chain.from_iterable(self.panels.values()):
            shown += (mark.low, mark.high)
        if self.segment_names:
            axes.set_xlim(0, 1.005 * max(shown))
            axes.xaxis.set_major_formatter(PLAIN_NUMBERS)
            self.draw_bars(axes, marks)
        else:
            axes.grid(axis="y", linewidth=0.5, linestyle=":")
            set_log_axis(axes, "x", shown)
        axes.set_yticks(range(len(marks)), [mark.name for mark in marks])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(marks) - 0.3, -0.7)
        for y, mark in enumerate(marks):
            axes.text(
                1.01,
                y,
                mark.label,
                fontsize=8,
                transform=axes.get_yaxis_transform(),
                va="center_baseline",
            )
            style = style_of(mark.name, mark.is_view)
            if mark.points:
                heights = [y] * len(mark.points)
                axes.plot(
                    mark.points,
                    heights,
                    linestyle="",
                    markersize=5,
                    zorder=2.2,
                    **style,
                )
            elif not mark.segments:
                axes.plot(
                    (mark.low, mark.high),
                    (y, y),
                    color="0.1",
                    linewidth=1.6,
                    solid_capstyle="butt",
                    zorder=2.1,
                )
                axes.plot(mark.value, y, markersize=6, zorder=2.2, **style)

    def draw_bars(self, axes: Any, marks: Sequence[Mark]) -> None:
        """Draw a bar per mark, whose segments begin where the one before ends."""
        rows = range(len(marks))
        starts = [0.0] * len(marks)
        for name, colour in zip(self.segment_names, SEGMENT_COLOURS, strict=True):
            lengths = [mark.segments.get(name, 0.0) for mark in marks]
            if any(lengths):
                axes.barh(
                    rows,
                    lengths,
                    0.74,
                    starts,
                    label=name,
                    color=colour,
                    edgecolor="black",
                    linewidth=0.5,
                )
            starts = [start + length for start, length in zip(starts, lengths, strict=True)]

    def draw_lines(
        self, axes: Any, marks: Sequence[Series], format_x: Callable[[int], str]
    ) -> None:
        """Draw a line per series, with its interval as an area. Limits are broad grey lines."""
        axes.grid(axis="y", linewidth=0.6)
        axes.set_ylabel("milliseconds per iteration", fontsize=9)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: format_x(round(value)))
        shown: list[float] = []
        for line in marks:
            if not line.is_limit:
                for _, *values in line.points:
                    shown += values
        set_log_axis(axes, "y", shown)
        # The line that is highest at its right end comes first, also in the legend.
        for line in sorted(marks, key=lambda line: -line.points[-1][1]):
            style = style_of(line.name, line.is_view) | {
                "linewidth": 1.4,
                "linestyle": "--" if line.is_view else "-",
            }
            if line.is_limit:
                style = {"color": LIMIT_COLOUR, "linewidth": 5, "alpha": 0.45}
            x, y, low, high = zip(*line.points, strict=True)
            axes.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)
            axes.plot(x, y, label=line.name, markersize=5, **style)


def style_of(name: str, is_view: bool) -> dict[str, Any]:
    """Return the colour and the marker of a configuration, hollow for views."""
    colour = STYLES["colours"].get(" ".join(name.replace(",", " ").split()[:2]), OTHER_COLOUR)
    marker = next(marker for part, marker in STYLES["markers"].items() if part in name)
    return {"color": colour, "marker": marker, "markerfacecolor": "white" if is_view else colour}


def set_log_axis(axes: Any, name: str, values: Sequence[float]) -> None:
    """Make the axis "x" or "y" logarithmic. It has at least a factor of 4, so that it has labels."""
    low = min(values, default=1.0)
    high = max(values, default=1.0)
    margin = max(1.15, 2 * (low / high) ** 0.5)
    axes.set(**{f"{name}scale": "log", f"{name}lim": (low / margin, high * margin)})
    axis = axes.xaxis if name == "x" else axes.yaxis
    axis.set_major_formatter(PLAIN_NUMBERS)
    # The numbers at the axis.
    is_wide = high > 500 * low
    axis.set_major_locator(LogLocator(subs=(1,) if is_wide else (1, 2, 5), numticks=20))
    axis.set_minor_formatter(NullFormatter())


def wrap(text: str, width: int) -> str:
    """Break lines that are longer than `width` characters, but not at the hyphens of a flag."""
    return "\n".join(
        textwrap.fill(line, width, break_on_hyphens=False) for line in text.splitlines()
    )
