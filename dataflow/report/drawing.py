# SPDX-License-Identifier: Apache-2.0
"""Draw what all charts share: 800 pixels, a title, a legend, a caption, logarithmic axes, and the style of a name."""

import io
import textwrap
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from common.svg import shorten_svg

WIDTH = 8.0  # inches, as all sizes here: 800 pixels
MAX_HEIGHT = 12.0
HEADER_HEIGHT = 1.3  # of title, legend and the axis below
CAPTION_LINE_HEIGHT = 0.13
MAX_ROWS = 8  # of a chart, or lines; its table has the others
TITLE_CHARACTERS = 94  # per line
CAPTION_CHARACTERS = 135
GOLDEN_RATIO = 0.618
MAX_SAMPLES = 60  # of one mean that are drawn
LIMIT_COLOUR = "#6b6b6b"
OTHER_COLOUR = "#4d4d4d"
EXPLAIN_SAMPLES = (
    "Faint dots: single iterations "
    f"(at most {MAX_SAMPLES} of a mark, evenly from the fastest to the slowest)."
)
STYLES = tomllib.loads(Path(__file__).with_name("charts.toml").read_text(encoding="utf-8"))
PLAIN_NUMBERS = FuncFormatter(lambda value, _: f"{float(f'{value:.4g}'):,.10g}")


class Drawing(ABC):
    """A chart in a file of its own."""

    file_name: str
    title: str
    caption: Sequence[str]

    @abstractmethod
    def draw(self) -> Figure:
        """Return the figure, with the title and the legend at the top and the caption at the bottom."""

    def make_figure(self, height: float) -> Figure:
        """Return a figure with the caption, for axes, title and legend of this height."""
        caption = wrap("\n".join(self.caption), CAPTION_CHARACTERS)
        height += CAPTION_LINE_HEIGHT * caption.count("\n")
        figure = Figure(figsize=(WIDTH, min(height, MAX_HEIGHT)), layout="constrained")
        figure.supxlabel(caption, x=0.01, ha="left", fontsize=7.5)
        return figure

    def add_legend(self, figure: Figure, axes: Any, columns: int = 4) -> None:
        """Write the title, and below it what the names of the axes' lines and bars mean."""
        handles, labels = axes.get_legend_handles_labels()
        legend = figure.legend(
            handles,
            labels,
            title=wrap(self.title, TITLE_CHARACTERS),
            title_fontsize=11,
            fontsize=8,
            ncols=columns,
            alignment="left",
            loc="outside upper left",
            frameon=False,
        )
        legend.get_title().set_multialignment("left")

    def to_svg(self) -> str:
        """Return the chart as SVG, equal for equal charts. Text is drawn as paths, to look equal everywhere."""
        buffer = io.StringIO()
        with rc_context({"svg.fonttype": "path", "svg.hashsalt": "chatlearn-data-flow"}):
            self.draw().savefig(
                buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Type", "Format"))
            )
        return shorten_svg(buffer.getvalue())


def prepare_axes(axes: Any) -> None:
    """Let axes have small numbers, and no frame at the top and on the right."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.set_axisbelow(True)


def style_of(name: str, is_view: bool) -> dict[str, Any]:
    """Return the colour and the marker of a configuration, hollow for views."""
    transport = " ".join(name.replace(",", " ").split()[:2])
    colour = STYLES["colours"].get(transport, OTHER_COLOUR)
    marker = next(marker for part, marker in STYLES["markers"].items() if part in name)
    return {"color": colour, "marker": marker, "markerfacecolor": "white" if is_view else colour}


def draw_samples(axes: Any, x: Sequence[float], y: Sequence[float], colour: str) -> None:
    """Draw the single iterations behind their mean, as faint dots."""
    axes.plot(
        x,
        y,
        linestyle="",
        marker="o",
        markersize=2.4,
        markeredgewidth=0,
        color=colour,
        alpha=0.3,
        zorder=2.05,
    )


def thin(samples: Sequence[float]) -> list[float]:
    """Return at most MAX_SAMPLES of the samples, in their order, evenly from the fastest to the slowest."""
    count = len(samples)
    if count <= MAX_SAMPLES:
        return [*samples]
    by_size = sorted(range(count), key=samples.__getitem__)
    step = (count - 1) / (MAX_SAMPLES - 1)
    chosen = {by_size[round(rank * step)] for rank in range(MAX_SAMPLES)}
    return [samples[position] for position in sorted(chosen)]


def spread(count: int, height: float) -> list[float]:
    """Return distances from the middle of a row, within its height, so that equal values don't hide each other."""
    return [height * ((position * GOLDEN_RATIO) % 1 - 0.5) for position in range(count)]


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
    lines = [textwrap.fill(line, width, break_on_hyphens=False) for line in text.splitlines()]
    return "\n".join(lines)


def name_left_out(count: int, total: int) -> list[str]:
    """Return a line for a caption that says how many rows are not drawn; none if all are."""
    if not count:
        return []
    return [f"Not drawn: {count} of {total} configurations. The table of the report has them."]
