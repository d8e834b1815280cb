"""Lay out charts of 800 pixels width, and write them as SVG."""

import io
import re
from collections.abc import Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

WIDTH = 8.0  # inches
PLAIN_NUMBERS = FuncFormatter(lambda value, _: f"{float(f'{value:.4g}'):,.10g}")


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
