"""Draw bar charts. Bars have segments; on a logarithmic axis, which has no zero, dots with whiskers replace them."""

from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from common.report.figures import PLAIN_NUMBERS, make_panels, write_title

BAR_INCHES = 0.21
# Neighbours differ in lightness, so that they can be told apart in grey.
COLOURS = ("#8c2d04", "#fdbe85", "#2166ac", "#bdd7e7", "#525252", "#d9d9d9", "#54278f", "#dadaeb", "#006d2c", "#c7e9c0",
           "#7a0177", "#fcc5c0")  # fmt: skip


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
        """Return the figure."""
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
        colour = "white" if name.startswith("wait") else COLOURS[index % len(COLOURS)]
        lengths = [bar.segments.get(name, 0.0) for bar in bars]
        style = {"facecolor": colour, "edgecolor": "black", "linewidth": 0.4}
        axes.barh(range(len(bars)), lengths, 0.74, ends, label=name, **style)
        ends = [end + length for end, length in zip(ends, lengths, strict=True)]
    axes.set_xlim(0, 1.005 * max(ends))
