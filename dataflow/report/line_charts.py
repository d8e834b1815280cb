# SPDX-License-Identifier: Apache-2.0
"""Draw lines on logarithmic axes, with a name at the end of each line, and single iterations behind their means."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch

from dataflow.report.drawing import (
    HEADER_HEIGHT,
    LIMIT_COLOUR,
    Drawing,
    draw_samples,
    prepare_axes,
    set_log_axis,
    style_of,
)

AXES_HEIGHT = 3.8  # inches
NAME_PLACE = 1.03  # of the names of lines, in widths of the axes
NAME_DISTANCE = 0.05  # of two names, in heights of the axes
# Of the labels at the x axis, in widths of the axes: of a digit, and between two labels.
DIGIT_WIDTH = 0.012
LABEL_DISTANCE = 0.02
NOT_MEASURED = "not measured"
Places = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Series:
    """A line; dashed for views, broad and grey for a limit."""

    name: str
    points: Places
    samples: Places = ()  # the single iterations, of which points are the means
    is_view: bool = False
    is_limit: bool = False
    # Of a simulated line: the measured means, which have the markers. Beyond the last one, the line is dashed.
    measured: Places | None = None

    @property
    def is_simulated(self) -> bool:
        return self.measured is not None

    @property
    def marked(self) -> Places:
        """Return the points that have a marker."""
        return self.points if self.measured is None else self.measured

    @property
    def heights(self) -> list[float]:
        return [y for _, y in [*self.points, *self.marked, *self.samples]]


@dataclass(frozen=True)
class LineChart(Drawing):
    """Lines over an x axis that has a label at each value."""

    file_name: str
    title: str
    lines: Sequence[Series]
    x_label: str
    format_x: Callable[[int], str]
    caption: Sequence[str] = ()

    def draw(self) -> Figure:
        figure = self.make_figure(HEADER_HEIGHT + AXES_HEIGHT)
        axes = figure.subplots()
        prepare_axes(axes)
        axes.grid(linewidth=0.6)
        axes.set_ylabel("mean milliseconds per iteration", fontsize=9)
        axes.set_xlabel(self.x_label, fontsize=9)
        self.set_axes(axes)
        # The line that is highest at its right end has the first name.
        lowest, _ = axes.get_ylim()
        shown = [line for line in self.lines if line.points[-1][1] > lowest]
        ordered = sorted(shown, key=lambda line: -line.points[-1][1])
        for line in ordered:
            self.draw_line(axes, line)
        name_ends(axes, ordered)
        self.shade_not_measured(axes)
        self.add_legend(figure, axes)
        return figure

    def set_axes(self, axes: Any) -> None:
        """Make both axes logarithmic. The values of lines are at the x axis, as far as there is space.

        Limits can lie outside.
        """
        shown: list[float] = []
        values: set[float] = set()
        for line in self.lines:
            if not line.is_limit:
                shown += line.heights
            values |= {x for x, _ in [*line.points, *line.marked]}
        set_log_axis(axes, "y", shown)
        low = min(values)
        high = max(values)
        margin = (high / low) ** 0.03 if high > low else 2.0
        axes.set_xscale("log")
        axes.set_xlim(low / margin, high * margin)
        labels = {value: self.format_x(round(value)) for value in sorted(values)}
        width = log(high * margin) - log(low / margin)
        chosen = choose_labels(labels, width)
        axes.set_xticks(chosen, [labels[value] for value in chosen])
        axes.minorticks_off()

    def draw_line(self, axes: Any, line: Series) -> None:
        style = style_of(line.name, line.is_view)
        marker = {"marker": style.pop("marker"), "markerfacecolor": style.pop("markerfacecolor")}
        if line.samples:
            samples_x, samples_y = zip(*line.samples, strict=True)
            draw_samples(axes, samples_x, samples_y, style["color"])
        if line.is_limit:
            draw_path(axes, line.points, color=LIMIT_COLOUR, linewidth=5, alpha=0.45)
            return
        style["linewidth"] = 1.4
        if line.is_simulated:
            end = self.measured_up_to
            draw_path(axes, [place for place in line.points if place[0] <= end], **style)
            beyond = [place for place in line.points if place[0] >= end]
            draw_path(axes, beyond, linestyle=(0, (4, 3)), **style)
        else:
            draw_path(axes, line.points, linestyle="--" if line.is_view else "-", **style)
        draw_path(axes, line.marked, linestyle="", markersize=5, zorder=2.2, **marker, **style)

    @property
    def measured_up_to(self) -> float:
        """Return the largest x that was measured of any simulated line; 0 if none was."""
        largest = 0.0
        for line in self.lines:
            for x, _ in line.measured or ():
                largest = max(largest, x)
        return largest

    def shade_not_measured(self, axes: Any) -> None:
        """Shade what lies beyond the largest measured value of simulated lines, and write there what that means."""
        ends = [line.points[-1][0] for line in self.lines if line.is_simulated]
        if not ends or self.measured_up_to >= max(ends):
            return
        low, high = axes.get_xlim()
        begin = max(low, self.measured_up_to)
        axes.axvspan(begin, high, color="0.93", zorder=0.5)
        middle = (begin * high) ** 0.5
        place = axes.get_xaxis_transform()
        axes.text(middle, 0.03, NOT_MEASURED, fontsize=9, ha="center", transform=place)


def draw_path(axes: Any, places: Places, **style: Any) -> None:
    """Draw a line or markers at these places; nothing without places."""
    if places:
        x, y = zip(*places, strict=True)
        axes.plot(x, y, **style)


def name_ends(axes: Any, ordered: Sequence[Series]) -> None:
    """Write the name of each line to the right of its end, the highest first, with a thin line to it."""
    low, high = axes.get_ylim()
    scale = log(high / low)
    ends = [line.points[-1] for line in ordered]
    wanted = [log(y / low) / scale for _, y in ends]
    heights = move_apart(wanted, NAME_DISTANCE)
    place = axes.transAxes
    for line, end, height in zip(ordered, ends, heights, strict=True):
        axes.text(NAME_PLACE, height, line.name, fontsize=8, va="center", transform=place)
        pointer = ConnectionPatch(
            end,
            (NAME_PLACE - 0.005, height),
            "data",
            "axes fraction",
            axesA=axes,
            axesB=axes,
            color="0.6",
            linewidth=0.6,
            zorder=1.5,
        )
        pointer.set_in_layout(False)
        axes.add_artist(pointer)


def move_apart(wanted: Sequence[float], distance: float) -> list[float]:
    """Return heights from 0 to 1 near those that are wanted, which fall, with at least this distance between them."""
    heights: list[float] = []
    top = 1.0
    for height in wanted:
        heights.append(min(height, top))
        top = heights[-1] - distance
    bottom = 0.0
    for position in reversed(range(len(heights))):
        heights[position] = max(heights[position], bottom)
        bottom = heights[position] + distance
    return heights


def choose_labels(labels: dict[float, str], width: float) -> list[float]:
    """Return the values, which grow, whose labels don't lie on those before, on a logarithmic axis of this width."""
    chosen: list[float] = []
    for value, label in labels.items():
        if chosen:
            distance = log(value / chosen[-1]) / width
            characters = (len(label) + len(labels[chosen[-1]])) / 2
            if distance < characters * DIGIT_WIDTH + LABEL_DISTANCE:
                continue
        chosen.append(value)
    return chosen
