# SPDX-License-Identifier: Apache-2.0
"""Draw predicted times over measured ones: one point each, the line of equality, and how far ±20 % is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from dataflow.report.drawing import (
    HEADER_HEIGHT,
    LIMIT_COLOUR,
    Drawing,
    prepare_axes,
    set_log_axis,
)

SIDE = 4.8  # inches of the square
# Told apart without colour too: hollow circles, and full diamonds.
KINDS: Sequence[dict[str, Any]] = (
    {"marker": "o", "markersize": 5, "markerfacecolor": "none", "color": "#0072b2"},
    {"marker": "D", "markersize": 5, "markerfacecolor": "#000000", "color": "#000000"},
)


@dataclass(frozen=True)
class ScatterGroup:
    """Points of one kind: what was predicted, and what was measured, in milliseconds."""

    name: str
    predicted: Sequence[float]
    measured: Sequence[float]


@dataclass(frozen=True)
class ScatterChart(Drawing):
    """A square with predicted times over measured ones."""

    file_name: str
    title: str
    groups: Sequence[ScatterGroup]  # at most as many as KINDS: others are not drawn
    tolerance: float  # 0.2: lines at ±20 %
    x_label: str
    y_label: str
    caption: Sequence[str] = ()

    def draw(self) -> Figure:
        """Return the points of each group, the lines of equality and of the tolerance, on equal logarithmic axes."""
        figure = self.make_figure(HEADER_HEIGHT + SIDE)
        axes = figure.subplots()
        prepare_axes(axes)
        axes.set_box_aspect(1)
        axes.grid(linewidth=0.4)
        axes.set_xlabel(self.x_label, fontsize=9)
        axes.set_ylabel(self.y_label, fontsize=9)
        values: list[float] = []
        for group in self.groups:
            values += [*group.predicted, *group.measured]
        for name in ("x", "y"):
            set_log_axis(axes, name, values)
        ends = axes.get_xlim()
        axes.plot(ends, ends, color="black", linewidth=1, label="equal", zorder=1.5)
        percent = f"±{self.tolerance * 100:.0f} %"
        self.draw_tolerance(axes, ends, 1 + self.tolerance, percent)
        self.draw_tolerance(axes, ends, 1 - self.tolerance)
        for group, style in zip(self.groups, KINDS, strict=False):
            axes.plot(group.measured, group.predicted, label=group.name, linestyle="", **style)
        self.add_legend(figure, axes, columns=4)
        return figure

    def draw_tolerance(
        self, axes: Any, ends: tuple[float, float], factor: float, label: str = ""
    ) -> None:
        """Draw the line at which predictions are this many times the measured time."""
        axes.plot(
            ends,
            [end * factor for end in ends],
            color=LIMIT_COLOUR,
            linewidth=0.7,
            linestyle="--",
            label=label or None,
            zorder=1.5,
            scalex=False,
            scaley=False,
        )
