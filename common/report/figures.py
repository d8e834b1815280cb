"""Lay out charts of 800 pixels width, and write them as SVG. Lengths are in inches."""

import io
import re
from collections.abc import Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

WIDTH = 8.0
CHARACTER = 0.062  # of text of 8 points


def make_panels(
    panels: dict[str, float], title: str, caption: Sequence[str], left: float, right: float, legend: Sequence[Any] = ()
) -> tuple[Figure, list[Any]]:
    """Return a figure and its axes, one below the other.

    Args:
        panels: title -> height of the axes.
        left, right: space beside the axes, for names and labels.
        legend: handles, which are drawn below the title in rows of four.
    """
    top = 0.35 + 0.2 * title.count("\n")
    above = top + 0.2 * -(-len(legend) // 4)
    height = above + sum(panels.values()) + 0.6 * len(panels) + 0.35 + 0.14 * len(caption)
    figure = Figure(figsize=(WIDTH, height))
    figure.text(0.01, 1 - 0.08 / height, title, fontsize=11, va="top")
    figure.text(0.01, 0.06 / height, "\n".join(caption), fontsize=7.5, va="bottom")
    corner = (0, 1 - top / height)
    figure.legend(handles=legend, loc="upper left", bbox_to_anchor=corner, ncols=4, fontsize=8, frameon=False)
    all_axes, y = [], height - above
    for panel_title, panel_height in panels.items():
        y -= 0.3 + panel_height
        axes = figure.add_axes((left / WIDTH, y / height, 1 - (left + right) / WIDTH, panel_height / height))
        axes.set_title(panel_title, fontsize=9, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.set_axisbelow(True)
        all_axes.append(axes)
        y -= 0.3
    return figure, all_axes


PLAIN_NUMBERS = FuncFormatter(lambda value, _: f"{float(f'{value:.4g}'):,.10g}")


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
