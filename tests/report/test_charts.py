"""Charts as SVG: equal for equal records, small, and without text on other text."""

import itertools

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from common.report.charts import Bar, BarChart, LineChart, Series, to_svg
from common.transports.catalogue import VARIANTS

NAMES = [variant.name for variant in VARIANTS]


def bar_chart(log, count=38):
    names = [f"{name} (reference)" for name in NAMES[:count]]
    label = "2,710 ms, 0.173 GB/s, 0.659x (0.565 to 0.767)"
    bars = [Bar(name, {"copying": 10.0 + i, "waiting": 3.0}, label, (5.0, 20.0 + i)) for i, name in enumerate(names)]
    limits = {"memcpy (one warm copy per edge): 33.48 ms": 9.0}
    groups = {"readers own a copy": bars[: count // 2], "readers get a view": bars[count // 2 :]}
    return BarChart("bars", "A title", groups, "ms", limits if log else {}, log, ("caption",))


def line_chart(count):
    lines = []
    for index, name in enumerate(NAMES[:count]):
        points = [(8.0 * 4**x, 1 + 0.01 * index + x) for x in range(8)]
        lines.append(Series(name, points, is_view=index % 2 == 0))
    return LineChart("lines", "A title", lines, "bytes per iteration", "ms", True, ("caption",))


CHARTS = {
    "bars": bar_chart(log=False, count=20),
    "dots": bar_chart(log=True, count=12),
    "lines": line_chart(12),
}


@pytest.mark.parametrize("name", CHARTS)
def test_no_text_lies_on_other_text_or_outside(name):
    figure = CHARTS[name].draw()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    boxes, hidden = [], set()  # ticks outside the limits of an axis are not drawn
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        hidden |= {tick.label1 for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high}
    for text in set(figure.findobj(Text)) - hidden:
        box = Text.get_window_extent(text)  # of an annotation without its arrow
        if text.get_text().strip() and text.get_visible() and box.overlaps(figure.bbox):  # ticks beyond an axis stay
            boxes.append((text.get_text(), box))
    for text, box in boxes:
        assert box.x0 >= 0 and box.y0 >= 0, text
        assert box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1, text
    for (one, box), (other, other_box) in itertools.combinations(boxes, 2):
        width = min(box.x1, other_box.x1) - max(box.x0, other_box.x0)
        height = min(box.y1, other_box.y1) - max(box.y0, other_box.y0)
        assert width <= 1 or height <= 2 or one == other, f"{one!r} lies on {other!r}"


@pytest.mark.parametrize("name", ["bars", "lines"])
def test_equal_charts_are_equal_files_without_a_date_and_small(name):
    text = to_svg(CHARTS[name].draw())
    assert text == to_svg(CHARTS[name].draw())
    assert text.startswith("<svg") and "<text" not in text and "<dc:date" not in text
    assert len(text) < 150_000
