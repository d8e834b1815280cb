# SPDX-License-Identifier: Apache-2.0
"""Draw charts with a row per configuration: a point per machine before its single iterations, or a bar."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle
from typing import Any

from matplotlib.figure import Figure

from dataflow.report.drawing import (
    HEADER_HEIGHT,
    LIMIT_COLOUR,
    PLAIN_NUMBERS,
    STYLES,
    Drawing,
    draw_samples,
    prepare_axes,
    set_log_axis,
    spread,
    style_of,
    thin,
)

ROW_HEIGHT = 0.24  # inches
LANE_HEIGHT = 0.13  # of one of several machines
PANEL_HEIGHT = 0.5  # of its title and what lies between panels
LANES_SHARE = 0.8  # of a row
SAMPLES_SHARE = 0.5  # of a lane
# The colour-blind can tell these colours apart. Neighbours also differ in lightness. Waiting is white: no work.
SEGMENT_COLOURS = ("#0072b2", "#f0e442", "#4f1a4c", "#35b78b", "#ffffff", "#b0b0b0")


@dataclass(frozen=True)
class MachinePoint:
    """A value of a configuration on one machine, and the single iterations that it is the mean of."""

    value: float
    samples: Sequence[float] = ()
    machine: str = ""


@dataclass(frozen=True)
class Mark:
    """A row: the values of one configuration, or a bar of segments."""

    name: str
    label: str  # on the right
    points: Sequence[MachinePoint] = ()
    is_view: bool = False  # hollow, because its time does not include a copy
    segments: Mapping[str, float] = field(default_factory=dict)  # by name

    @property
    def values(self) -> list[float]:
        """Return all numbers that the axis must have: means, single iterations, and the end of a bar."""
        values = [sum(self.segments.values())] if self.segments else []
        for point in self.points:
            values += [point.value, *point.samples]
        return values


@dataclass(frozen=True)
class Chart(Drawing):
    """Panels one below the other on the same x axis, which is logarithmic for points and starts at zero for bars."""

    file_name: str
    title: str
    panels: dict[str, list[Mark]]  # by title
    x_label: str
    limits: dict[str, float] = field(default_factory=dict)  # vertical lines, by name in the legend
    caption: Sequence[str] = ()
    segment_names: Sequence[str] = ()  # in the order in which bars are stacked

    @property
    def marks(self) -> list[Mark]:
        return [*chain.from_iterable(self.panels.values())]

    @property
    def machines(self) -> list[str]:
        """Return the machines of all points, in the order in which they lie below each other in a row."""
        found: dict[str, None] = {}
        for mark in self.marks:
            for point in mark.points:
                found[point.machine] = None
        return [*found]

    def draw(self) -> Figure:
        row_height = max(ROW_HEIGHT, LANE_HEIGHT * len(self.machines))
        heights = [row_height * (len(marks) + 0.4) for marks in self.panels.values()]
        panels_height = sum(heights) + PANEL_HEIGHT * len(heights)
        figure = self.make_figure(HEADER_HEIGHT + panels_height)
        panels = figure.subplots(len(heights), squeeze=False, height_ratios=heights)[:, 0]
        for axes, (title, marks) in zip(panels, self.panels.items(), strict=True):
            axes.set_title(title, fontsize=9, loc="left")
            prepare_axes(axes)
            axes.grid(axis="x", linewidth=0.6)
            self.draw_rows(axes, marks)
            self.draw_limits(axes)
        axes.set_xlabel(self.x_label, fontsize=9)
        if len(self.machines) > 1:
            for machine in self.machines:
                panels[0].plot([], [], label=machine, linestyle="", **self.style_of(machine))
        self.add_legend(figure, panels[0])
        return figure

    def style_of(self, machine: str) -> dict[str, Any]:
        """Return the colour and the marker of a machine. The ninth one has those of the first."""
        position = self.machines.index(machine)
        styles = STYLES["machines"]
        return dict(styles[position % len(styles)])

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
        """Draw a row per mark, with its name on the left and its label on the right."""
        shown = [*self.limits.values()]
        for mark in self.marks:
            shown += mark.values
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
        place = axes.get_yaxis_transform()
        for y, mark in enumerate(marks):
            axes.text(1.01, y, mark.label, fontsize=8, transform=place, va="center_baseline")
            self.draw_points(axes, y, mark)

    def draw_points(self, axes: Any, y: float, mark: Mark) -> None:
        """Draw the points of a row, those of several machines below each other, before their iterations."""
        lane = LANES_SHARE / max(1, len(self.machines))
        for point in mark.points:
            position = self.machines.index(point.machine)
            height = y + lane * (position + 0.5) - LANES_SHARE / 2
            style = style_of(mark.name, mark.is_view)
            if len(self.machines) > 1:
                style = self.style_of(point.machine)
            samples = thin(point.samples)
            distances = spread(len(samples), SAMPLES_SHARE * lane)
            heights = [height + distance for distance in distances]
            draw_samples(axes, samples, heights, style["color"])
            axes.plot(point.value, height, markersize=6, zorder=2.2, **style)

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
