"""Draw bar charts. Bars have segments; on a logarithmic axis, which has no zero, dots with whiskers replace them."""

from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullLocator

from common.report.figures import CHARACTER, PLAIN_NUMBERS, WIDTH, make_panels

BAR_INCHES = 0.21
# Neighbours differ in lightness, so that they can be told apart in grey.
COLOURS = ("#8c2d04", "#fdbe85", "#2166ac", "#bdd7e7", "#525252", "#d9d9d9", "#54278f", "#dadaeb", "#006d2c", "#c7e9c0",
           "#7a0177", "#fcc5c0")  # fmt: skip
LIMIT_STYLES: Any = ("-", ":", "-.")
WHITE_BOX = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}


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

    @property
    def length(self) -> float:
        return sum(self.segments.values())


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
        """Return the figure."""
        bars = [bar for group in self.groups.values() for bar in group]
        names = dict.fromkeys(name for bar in bars for name in bar.segments)
        styles = {name: _segment_style(index, name) for index, name in enumerate(names)}
        legend: list[Any] = [Patch(label=name, **style) for name, style in styles.items() if not self.log]
        for name, line in zip(self.limits, LIMIT_STYLES, strict=False):
            legend.append(Line2D([], [], color="0.3", linewidth=1, linestyle=line, label=name))
        left = 0.15 + CHARACTER * max(len(bar.name) for bar in bars)
        right = 0.15 + CHARACTER * max(len(bar.label) for bar in bars)
        heights = {title: BAR_INCHES * (len(group) + 0.4) for title, group in self.groups.items()}
        figure, panels = make_panels(heights, self.title, self.caption, left, right, legend)
        for group, axes in zip(self.groups.values(), panels, strict=True):
            axes.grid(axis="x", color="0.9", linewidth=0.6)
            axes.set_yticks(range(len(group)), [bar.name for bar in group])
            axes.tick_params(axis="y", length=0)
            axes.set_ylim(len(group) - 0.3, -0.7)
            if self.log:
                axes.set_xscale("log")
                axes.sharex(panels[0])
                axes.xaxis.set_major_locator(LogLocator())
                axes.xaxis.set_minor_locator(NullLocator())
            else:
                axes.set_xlim(0, 1.005 * max(bar.length for bar in group))
            axes.xaxis.set_major_formatter(PLAIN_NUMBERS)
            for y, bar in enumerate(group):
                axes.text(1.01, y, bar.label, fontsize=8, transform=axes.get_yaxis_transform(), va="center")
                if self.log:
                    _draw_dot(axes, bar, y)
                else:
                    _draw_segments(axes, bar, y, styles, CHARACTER / (WIDTH - left - right))
            for position, line in zip(self.limits.values(), LIMIT_STYLES, strict=False):
                axes.axvline(position, color="0.3", linewidth=1, linestyle=line, zorder=1)
        panels[-1].set_xlabel(self.x_label, fontsize=9)
        return figure


def _draw_dot(axes: Any, bar: Bar, y: int) -> None:
    axes.plot(bar.length, y, "o", color="0.1", markerfacecolor="white" if bar.is_view else "0.1", markersize=5)
    if bar.spread:
        axes.plot(bar.spread, (y, y), "|-", color="0.1", linewidth=0.9, markersize=5, zorder=1.5)


def _draw_segments(axes: Any, bar: Bar, y: int, styles: dict[str, Any], character: float) -> None:
    """Draw a bar, and the names of its longer segments; `character` is the width of a letter relative to the axes."""
    start = 0.0
    for name, value in bar.segments.items():
        axes.barh(y, value, 0.74, start, **styles[name])
        if value > character * len(name) * axes.get_xlim()[1]:
            axes.text(start + value / 2, y, name, fontsize=7, ha="center", va="center", bbox=WHITE_BOX)
        start += value


def _segment_style(index: int, name: str) -> dict[str, Any]:
    """Return the style of a segment. Waiting is white, because no process works."""
    colour = "white" if name.startswith("wait") else COLOURS[index % len(COLOURS)]
    return {"facecolor": colour, "edgecolor": "black", "linewidth": 0.4}
