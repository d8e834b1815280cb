# SPDX-License-Identifier: Apache-2.0
"""Draw bars on lanes over time, with curves between them, as HTML.

Positions along the time are percent, so that texts keep their size whatever the width of the page.
"""

from dataclasses import dataclass, field
from html import escape

from raymeter.units import format_milliseconds

ROW_PIXELS = 20
LANE_GAP_PIXELS = 10
RULER_PIXELS = 22
MAX_ROWS = 6  # of a lane; what runs beside even more is left out
TICKS = 10  # at most
LABELLED_SHARE = 0.93  # of a chart: the text of a later time would be cut
NICE_STEPS = (1, 2, 5, 10)
VIEW = 1_000  # units of the drawing along the time


@dataclass(eq=False)
class Bar:
    """What happens from `start` to `end`. `kind` is a class of page.css."""

    start: float
    end: float
    kind: str
    label: str
    title: str = ""
    is_critical: bool = False
    top: int = -1  # in pixels, once it has a place; -1 if it was left out


@dataclass
class ChartLane:
    """A lane with a name, and rows of bars that do not overlap."""

    name: str
    rows: list[list[Bar]] = field(default_factory=list)

    def add(self, bar: Bar) -> bool:
        """Add a bar to the first row in which it has room; return whether there was one."""
        for row in self.rows:
            if row[-1].end <= bar.start:
                row.append(bar)
                return True
        if len(self.rows) < MAX_ROWS:
            self.rows.append([bar])
            return True
        return False

    @property
    def height(self) -> int:
        return max(1, len(self.rows)) * ROW_PIXELS + LANE_GAP_PIXELS


@dataclass(frozen=True)
class Curve:
    """A line from one bar to another one."""

    source: Bar
    target: Bar
    start: float
    end: float
    kind: str
    title: str = ""


@dataclass
class Chart:
    """Lanes over the time from `start` to `end`."""

    label: str
    start: float
    end: float
    lanes: list[ChartLane]
    curves: list[Curve] = field(default_factory=list)
    left_out: int = 0  # bars of these lanes
    lanes_left_out: int = 0

    @property
    def height(self) -> int:
        return RULER_PIXELS + sum(lane.height for lane in self.lanes)

    def percent(self, time: float) -> float:
        """Return a position in percent. What begins or ends outside is cut at the edge."""
        inside = min(max(time, self.start), self.end)
        return round(100 * (inside - self.start) / max(1e-9, self.end - self.start), 3)


def draw(chart: Chart) -> str:
    """Return the HTML of a chart: the names of the lanes, and beside them a part that scrolls."""
    place_bars(chart)
    names = "".join(draw_name(lane) for lane in chart.lanes)
    canvas = draw_ruler(chart) + draw_curves(chart)
    for lane in chart.lanes:
        for row in lane.rows:
            canvas += "".join(draw_bar(chart, bar) for bar in row)
    label = escape(chart.label)
    return (
        '<div class="chart">'
        f'<div class="names" style="padding-top:{RULER_PIXELS}px">{names}</div>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
        f'<div class="canvas" style="height:{chart.height}px">{canvas}</div>'
        f"</div></div>{draw_note(chart)}"
    )


def draw_note(chart: Chart) -> str:
    """Return how much is left out; "" if nothing is."""
    texts = []
    if chart.lanes_left_out:
        texts.append(f"{chart.lanes_left_out:,} processes with less to show are left out.")
    if chart.left_out:
        texts.append(f"{chart.left_out:,} short bars are left out.")
    return f'<p class="note">{" ".join(texts)}</p>' if texts else ""


def place_bars(chart: Chart) -> None:
    """Set the vertical place of each bar."""
    top = RULER_PIXELS
    for lane in chart.lanes:
        for number, row in enumerate(lane.rows):
            for bar in row:
                bar.top = top + number * ROW_PIXELS
        top += lane.height


def draw_name(lane: ChartLane) -> str:
    text = escape(lane.name)
    return f'<div class="name" style="height:{lane.height}px" title="{text}">{text}</div>'


def draw_bar(chart: Chart, bar: Bar) -> str:
    left = chart.percent(bar.start)
    width = round(chart.percent(bar.end) - left, 3)
    kind = f"{bar.kind} critical" if bar.is_critical else bar.kind
    return (
        f'<div class="bar {kind}" style="left:{left}%;width:{width}%;top:{bar.top}px" '
        f'title="{escape(bar.title)}">{escape(bar.label)}</div>'
    )


def draw_ruler(chart: Chart) -> str:
    """Return lines at round times since the start."""
    seconds = chart.end - chart.start
    step = nice_step(seconds / TICKS)
    ticks = ""
    for number in range(int(seconds / step) + 1):
        left = chart.percent(chart.start + number * step)
        label = ""
        if number * step <= LABELLED_SHARE * seconds:
            label = f"<span>{format_milliseconds(number * step)}</span>"
        ticks += f'<div class="tick" style="left:{left}%">{label}</div>'
    return ticks


def nice_step(seconds: float) -> float:
    """Return the next larger time that begins with 1, 2 or 5."""
    power = 1e-6
    while 10 * power < seconds:
        power *= 10
    return next((power * step for step in NICE_STEPS if power * step >= seconds), 10 * power)


def draw_curves(chart: Chart) -> str:
    """Return the curves between bars that have a place, and a head at the end of each."""
    curves = [curve for curve in chart.curves if curve.source.top >= 0 <= curve.target.top]
    paths = "".join(draw_path(chart, curve) for curve in curves)
    heads = "".join(draw_head(chart, curve) for curve in curves)
    size = f'viewBox="0 0 {VIEW} {chart.height}" preserveAspectRatio="none"'
    return f'<svg class="curves" {size} style="height:{chart.height}px">{paths}</svg>{heads}'


def draw_path(chart: Chart, curve: Curve) -> str:
    left = VIEW / 100 * chart.percent(curve.start)
    right = VIEW / 100 * chart.percent(curve.end)
    top = curve.source.top + ROW_PIXELS // 2
    bottom = curve.target.top + ROW_PIXELS // 2
    middle = (top + bottom) / 2
    line = f"M{left:.1f} {top}C{left:.1f} {middle} {right:.1f} {middle} {right:.1f} {bottom}"
    title = f"<title>{escape(curve.title)}</title>"
    return f'<path class="{curve.kind}" d="{line}">{title}</path>'


def draw_head(chart: Chart, curve: Curve) -> str:
    """Return the head of an arrow, which points at the row of the reader."""
    is_down = curve.target.top >= curve.source.top
    top = curve.target.top if is_down else curve.target.top + ROW_PIXELS - 2
    direction = "down" if is_down else "up"
    left = chart.percent(curve.end)
    return f'<i class="head {curve.kind} {direction}" style="left:{left}%;top:{top}px"></i>'
