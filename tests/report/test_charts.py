# SPDX-License-Identifier: Apache-2.0
"""Charts: they have all texts, and no text lies on other text. test_report.py compares the published ones."""

import itertools

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from dataflow.catalogue.catalogue import VARIANTS
from dataflow.report.charts import Chart, Mark, Series
from dataflow.units import format_bytes

NAMES = [variant.name for variant in VARIANTS]
LABEL = "1,828 ms (1,650 to 2,014)"
TITLE = (
    "store driver-queue: 61% of the time is page faults;\n--retain-memory makes it faster"
    + " --or-more" * 12
)
CAPTION = (
    "Line: 95 % interval of the time, from the means of the runs.",
    "Linux 6.18.44, Python 3.11.7, " * 8,
)
CAUSES = ("serialisation", "page faults", "copying", "sending", "waiting", "other")
READERS = ("readers may keep their copy", "readers get a view")
LIMITS = {"memcpy: 33.48 ms": 33.48, "memcpy by all cores: 24.1 ms": 24.1}


def dot_chart(count, growth=1.2):
    dots = []
    for index, name in enumerate(NAMES[:count]):
        value = 0.8 * growth**index
        dots.append(Mark(name, LABEL, value, value / 1.2, value * 1.3, is_view=2 * index >= count))
    groups = dict(zip(READERS, (dots[: count // 2], dots[count // 2 :]), strict=True))
    return Chart("dots", TITLE, groups, "milliseconds (logarithmic axis)", LIMITS, CAPTION)


def bar_chart(count):
    bars = []
    for index, name in enumerate(NAMES[:count]):
        length = 1828 / (1 + index) ** 2
        segments = {cause: length / len(CAUSES) for cause in CAUSES}
        bars.append(Mark(name, LABEL, length, length / 1.2, length * 1.2, segments=segments))
    limits = dict([*LIMITS.items()][:1])
    return Chart("bars", TITLE, {"": bars}, "milliseconds per iteration", limits, CAPTION, CAUSES)


def line_chart(count):
    lines = [Series("memcpy", [(2.0**13, 1.0, 0.9, 1.1), (2.0**29, 3.0, 2.9, 4.0)], is_limit=True)]
    for index, name in enumerate(NAMES[: count - 1]):
        heights = {power: 1 + 0.02 * index + 0.1 * power for power in (13, 17, *range(19, 28), 29)}
        points = [(2.0**power, y, 0.9 * y, 1.2 * y) for power, y in heights.items()]
        lines.append(Series(name, points[: 12 - index % 2], is_view=index % 3 == 0))
    return Chart(
        "lines", TITLE, {"": lines}, "bytes per iteration", {}, CAPTION, format_x=format_bytes
    )


CHARTS = {
    "dots": dot_chart(48),
    "few dots": dot_chart(2, 1.01),
    "bars": bar_chart(20),
    "lines": line_chart(12),
}


def find_boxes(figure):
    """Return each text that is drawn, and its box in pixels."""
    hidden = set()  # ticks outside the limits of an axis are not drawn
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        hidden |= {tick.label1 for tick in ticks if not low <= tick.get_loc() <= high}
    texts = [
        text
        for text in set(figure.findobj(Text)) - hidden
        if text.get_text().strip() and text.get_visible()
    ]
    return [(text.get_text(), text.get_window_extent()) for text in texts]


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_says_everything_and_no_text_lies_on_other_text_or_outside(name):
    chart = CHARTS[name]
    figure = chart.draw()
    FigureCanvasAgg(figure).draw()  # which places everything
    assert figure.get_figwidth() == 8 and figure.get_figheight() <= 12
    boxes = find_boxes(figure)
    for text, box in boxes:
        assert box.x0 >= 0 and box.y0 >= 0, text
        assert box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1, text
    for (one, box), (other, other_box) in itertools.combinations(boxes, 2):
        width = min(box.x1, other_box.x1) - max(box.x0, other_box.x0)
        height = min(box.y1, other_box.y1) - max(box.y0, other_box.y0)
        assert width <= 1 or height <= 2, f"{one!r} lies on {other!r}"
    texts = "\n".join(text for text, _ in boxes).replace(
        "\n", " "
    )  # so a broken line is broken between words
    names = [mark.name for marks in chart.panels.values() for mark in marks]
    for expected in (TITLE, *CAPTION, chart.x_label, *names):
        assert " ".join(expected.split()) in texts
    if name in ("dots", "bars"):  # rows are as high as text needs
        assert (
            15 < figure.axes[0].get_window_extent().height / len(figure.axes[0].get_yticks()) < 30
        )


def test_dots_have_their_interval_and_views_are_hollow_on_the_same_axis():
    first, second = CHARTS["dots"].draw().axes
    assert first.get_xlim() == second.get_xlim() and first.get_xscale() == "log"
    mark, (interval, dot) = CHARTS["dots"].panels[READERS[0]][0], first.lines[:2]
    assert (list(interval.get_xdata()), list(dot.get_xdata())) == (
        [mark.low, mark.high],
        [mark.value],
    )
    assert dot.get_markerfacecolor() != "white" and second.lines[1].get_markerfacecolor() == "white"


def test_bars_start_at_zero_and_have_the_memcpy_line_and_no_interval():
    bars = [
        Mark(
            "a", "", 5.0, 0.5, 8.0, segments={"copying": 3.0, "waiting": 0.0, "serialisation": 2.0}
        )
    ]
    (axes,) = Chart("bars", "", {"": bars}, "", {"memcpy": 9.0}, segment_names=CAUSES).draw().axes
    assert axes.get_xlim()[0] == 0 and axes.get_xlim()[1] >= 9
    assert [list(line.get_xdata()) for line in axes.lines] == [[9.0, 9.0]]
    assert [(patch.get_x(), patch.get_width()) for patch in axes.patches] == [
        (0, 2),
        (2, 3),
    ]  # in the order of CAUSES
    assert [bar.get_label() for bar in axes.containers] == ["serialisation", "copying"]
