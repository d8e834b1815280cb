"""Draw line charts on logarithmic axes."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from common.report.figures import PLAIN_NUMBERS, make_panels, write_title
from common.units import format_bytes

# Neighbours differ in lightness, so that they can be told apart in grey, and each line has a marker of its own.
COLOURS = ("#000000", "#e07000", "#4575b4", "#2ca02c", "#7b3294", "#c9a000", "#6cacd6", "#99582a", "#e377c2", "#006d5b",
           "#7f7f7f")  # fmt: skip
MARKERS = "osD^vP*Xph<>"


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
        """Return the figure."""
        figure, (axes,) = make_panels(self.caption, [max(3.0, 0.19 * len(self.lines))])
        for index, line in enumerate(sorted(self.lines, key=lambda line: -line.points[-1][1])):
            colour = COLOURS[index % len(COLOURS)]
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
