# SPDX-License-Identifier: Apache-2.0
"""Draw bytes over time as lines, as HTML: the end of each line has its name and its value beside it.

Positions along the time are percent, and those of bytes are pixels, so that texts keep their size whatever the width of
the page. Lines differ in their dashes, and not only in their colour.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from raymeter.report.chart import nice_step
from raymeter.units import format_bytes, significant

HEIGHT = 240  # pixels
VIEW = 1_000  # units of the drawing along the time
HEADROOM = 1.1  # above the highest value
TICKS = 8  # of the time, at most
GRID_LINES = 5  # of bytes, at most
LABEL_PIXELS = 36  # of height, for the two texts at the end of a line
LONG_SECONDS = 2.0  # of an axis whose texts need no hundredths
GUTTER_PIXELS = 24  # between a chart and these texts
AREA = "used"  # the kind of a line below which all is filled
AT_THE_END = 0.97  # of the time: a line that ends before it has a dot there


@dataclass(frozen=True)
class Line:
    """Bytes at some times. `kind` is a class of page.css. There is at least one point, in the order of time."""

    label: str
    kind: str
    points: list[tuple[float, int]]

    @property
    def highest(self) -> int:
        return max(count for _, count in self.points)

    @property
    def start(self) -> float:
        time, _ = self.points[0]
        return time

    @property
    def stop(self) -> float:
        time, _ = self.points[-1]
        return time

    @property
    def last_bytes(self) -> int:
        _, count = self.points[-1]
        return count


@dataclass(frozen=True)
class TimeAxis:
    """The time that charts show. Its texts are seconds since `zero`."""

    start: float
    end: float
    zero: float

    @property
    def seconds(self) -> float:
        return max(1e-9, self.end - self.start)

    def share(self, time: float) -> float:
        return (time - self.start) / self.seconds

    def say(self, time: float) -> str:
        """Return a time to a tenth of a second, or that of a tick of a shorter axis to three digits."""
        since = time - self.zero
        if self.seconds >= LONG_SECONDS:
            since = round(since, 1)
        return f"{significant(since)} s"

    def ticks(self) -> list[float]:
        """Return round times since zero."""
        step = nice_step(self.seconds / TICKS)
        first = math.ceil((self.start - self.zero) / step)
        last = math.floor((self.end - self.zero) / step)
        return [self.zero + number * step for number in range(first, last + 1)]


def draw_lines(title: str, axis: TimeAxis, lines: Sequence[Line]) -> str:
    """Return the chart of some lines. A line of the kind AREA is the edge of an area."""
    top = HEADROOM * max(1, *(line.highest for line in lines))
    heights = [pixels_of(line.last_bytes, top) for line in lines]
    places = spread(heights)
    drawn = "".join(draw_line(axis, top, line) for line in lines)
    ends = "".join(draw_end(axis, top, line) for line in lines)
    labels = ""
    links = ""
    for line, height, place in zip(lines, heights, places, strict=True):
        labels += draw_label(axis, line, place)
        if is_at_the_end(axis, line):
            links += f'<path d="M0 {height:.0f}L{GUTTER_PIXELS} {place:.0f}"/>'
    name = escape(title)
    return (
        f'<div class="lines"><div class="sizes">{draw_sizes(top)}</div>'
        f'<div class="plot">{draw_ticks(axis)}{draw_grid(top)}'
        f'<svg viewBox="0 0 {VIEW} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{name}">'
        f"{drawn}</svg>{ends}</div>"
        f'<svg class="links" viewBox="0 0 {GUTTER_PIXELS} {HEIGHT}" preserveAspectRatio="none">{links}</svg>'
        f'<div class="labels">{labels}</div></div>'
    )


def pixels_of(count: float, top: float) -> float:
    """Return how far a number of bytes is below the upper edge."""
    return HEIGHT * (1 - count / top)


def spread(heights: Sequence[float]) -> list[float]:
    """Return a place for the text beside each height, so that no text covers another one.

    If there are more than fit, the upper ones are above the chart, at negative places.
    """
    order = sorted(range(len(heights)), key=lambda number: heights[number])
    places = [0.0 for _ in heights]
    lowest = LABEL_PIXELS / 2
    for number in order:
        places[number] = max(lowest, heights[number])
        lowest = places[number] + LABEL_PIXELS
    highest = HEIGHT - LABEL_PIXELS / 2
    for number in reversed(order):
        places[number] = min(highest, places[number])
        highest = places[number] - LABEL_PIXELS
    return places


def draw_line(axis: TimeAxis, top: float, line: Line) -> str:
    """Return a line as SVG."""
    points = []
    for time, count in line.points:
        left = VIEW * axis.share(time)
        height = pixels_of(count, top)
        points.append(f"{left:.1f} {height:.1f}")
    path = "M" + "L".join(points)
    if line.kind == AREA:
        first = VIEW * axis.share(line.start)
        last = VIEW * axis.share(line.stop)
        path += f"L{last:.1f} {HEIGHT}L{first:.1f} {HEIGHT}Z"
    return f'<path class="{line.kind}" d="{path}"/>'


def is_at_the_end(axis: TimeAxis, line: Line) -> bool:
    return axis.share(line.stop) >= AT_THE_END


def draw_end(axis: TimeAxis, top: float, line: Line) -> str:
    """Return a dot at the end of a line that ends before the others, and at the only point of a line."""
    if is_at_the_end(axis, line) and len(line.points) > 1:
        return ""
    left = 100 * axis.share(line.stop)
    height = pixels_of(line.last_bytes, top)
    return f'<i class="dot" style="left:{left:.2f}%;top:{height:.1f}px"></i>'


def draw_label(axis: TimeAxis, line: Line, place: float) -> str:
    """Return the name of a line and its last value, with a piece of the line before them."""
    value = format_bytes(line.last_bytes)
    if not is_at_the_end(axis, line):
        end = axis.say(line.stop)
        value += f" (until {end})"
    name = escape(line.label)
    sample = f'<svg viewBox="0 0 26 10"><path class="{line.kind}-key" d="M0 5L26 5"/></svg>'
    return (
        f'<div style="top:{place:.0f}px" title="{name}: {value}">{sample}'
        f"<b>{name}</b><span>{value}</span></div>"
    )


def grid_sizes(top: float) -> list[int]:
    """Return round numbers of bytes up to the top."""
    step = 1
    while step * GRID_LINES < top:
        step *= 2
    return list(range(0, int(top) + 1, step))


def draw_sizes(top: float) -> str:
    """Return the texts beside the grid."""
    texts = ""
    for size in grid_sizes(top):
        height = pixels_of(size, top)
        text = format_bytes(size)
        texts += f'<span style="top:{height:.0f}px">{text}</span>'
    return texts


def draw_grid(top: float) -> str:
    lines = ""
    for size in grid_sizes(top):
        height = pixels_of(size, top)
        lines += f'<i class="size" style="top:{height:.0f}px"></i>'
    return lines


def draw_ticks(axis: TimeAxis) -> str:
    """Return lines at round times, with their texts below the chart."""
    ticks = ""
    for time in axis.ticks():
        left = 100 * axis.share(time)
        text = axis.say(time)
        ticks += f'<i class="when" style="left:{left:.2f}%"><span>{text}</span></i>'
    return ticks
