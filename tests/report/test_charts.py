# SPDX-License-Identifier: Apache-2.0
"""Charts: they have all texts, and no text lies on other text. test_report.py compares the published ones."""

import itertools
import re

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from common.svg import shorten_svg
from dataflow.catalogue.catalogue import VARIANTS
from dataflow.report.charts import Chart, MachinePoint, Mark
from dataflow.report.drawing import MAX_SAMPLES, STYLES, spread, thin
from dataflow.report.line_charts import (
    NOT_MEASURED,
    LineChart,
    Series,
    choose_labels,
    move_apart,
)
from dataflow.report.scatter_charts import ScatterChart, ScatterGroup
from dataflow.units import format_bytes

NAMES = [variant.name for variant in VARIANTS]
LABEL = "1,828, 1,650, 2,014 ms; 11 GiB"
TITLE = (
    "store driver-queue: 61% of the time is page faults;\n--retain-memory makes it faster"
    + " --or-more" * 12
)
CAPTION = ("Mark: mean of the timed iterations.", "Linux 6.18.44, Python 3.11.7, " * 8)
CAUSES = ("serialisation", "page faults", "copying", "sending", "waiting", "other")
READERS = ("readers may keep their copy", "readers get a view")
LIMITS = {"memcpy: 33.48 ms": 33.48, "memcpy by all cores: 24.1 ms": 24.1}


def make_points(value, machines):
    samples = [value * (1 + 0.05 * number) for number in range(-5, 6)]
    return [
        MachinePoint(value * 1.2**number, samples, f"boot {number}") for number in range(machines)
    ]


def dot_chart(count, growth=1.2, machines=1):
    marks = []
    for index, name in enumerate(NAMES[:count]):
        points = make_points(0.8 * growth**index, machines)
        marks.append(Mark(name, LABEL, points, is_view=2 * index >= count))
    groups = dict(zip(READERS, (marks[: count // 2], marks[count // 2 :]), strict=True))
    return Chart("dots", TITLE, groups, "milliseconds (logarithmic axis)", LIMITS, CAPTION)


def bar_chart(count):
    bars = []
    for index, name in enumerate(NAMES[:count]):
        length = 1828 / (1 + index) ** 2
        segments = {cause: length / len(CAUSES) for cause in CAUSES}
        bars.append(Mark(name, LABEL, segments=segments))
    limits = dict([*LIMITS.items()][:1])
    return Chart("bars", TITLE, {"": bars}, "milliseconds per iteration", limits, CAPTION, CAUSES)


def line_chart(count):
    lines = [Series("memcpy", [(2.0**13, 1.0), (2.0**29, 3.0)], is_limit=True)]
    for index, name in enumerate(NAMES[: count - 1]):
        heights = {power: 1 + 0.02 * index + 0.1 * power for power in (13, 17, *range(19, 28), 29)}
        points = [(2.0**power, y) for power, y in heights.items()]
        samples = [(x, y * 1.1) for x, y in points]
        lines.append(Series(name, points[: 12 - index % 2], samples, is_view=index % 3 == 0))
    return LineChart("lines", TITLE, lines, "bytes per iteration", format_bytes, CAPTION)


def simulated_chart(measured=((2, 1.1), (8, 4.2))):
    points = [(number, 0.5 * number) for number in (2, 4, 8, 12, 16, 24, 32, 48, 64)]
    lines = [Series("store refs", points, measured=measured)]
    lines.append(Series("torch gloo", [(x, y / 3) for x, y in points], measured=measured[:1]))
    return LineChart("cluster", TITLE, lines, "actors", str, CAPTION)


def scatter_chart():
    groups = [
        ScatterGroup("left out", [1.0, 20.0, 3000.0], [1.1, 16.0, 2800.0]),
        ScatterGroup("before", [2.0, 200.0], [2.0, 260.0]),
    ]
    return ScatterChart("predictions", TITLE, groups, 0.2, "measured", "predicted", CAPTION)


CHARTS = {
    "dots": dot_chart(8),
    "few dots": dot_chart(2, 1.01),
    "machines": dot_chart(8, machines=4),
    "bars": bar_chart(6),
    "lines": line_chart(9),
    "simulated": simulated_chart(),
    "scatter": scatter_chart(),
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


def names_of(chart):
    """Return the names of rows, lines or groups."""
    if isinstance(chart, Chart):
        return [mark.name for mark in chart.marks]
    parts = chart.lines if isinstance(chart, LineChart) else chart.groups
    return [part.name for part in parts]


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
    # So a broken line is broken between words.
    texts = "\n".join(text for text, _ in boxes).replace("\n", " ")
    for expected in (TITLE, *CAPTION, chart.x_label, *names_of(chart)):
        assert " ".join(expected.split()) in texts
    if name in ("dots", "bars"):  # rows are as high as text needs
        axes = figure.axes[0]
        assert 15 < axes.get_window_extent().height / len(axes.get_yticks()) < 35


def places_of(line):
    return [*zip(line.get_xdata(), line.get_ydata(), strict=True)]


def test_a_row_has_its_mean_before_its_iterations_and_views_are_hollow_on_the_same_axis():
    first, second = CHARTS["dots"].draw().axes
    assert first.get_xlim() == second.get_xlim() and first.get_xscale() == "log"
    samples, mean = first.lines[:2]
    (point,) = CHARTS["dots"].panels[READERS[0]][0].points
    assert [*samples.get_xdata()] == [*point.samples] and samples.get_alpha() < 0.5
    assert places_of(mean) == [(point.value, 0)]
    assert mean.get_zorder() > samples.get_zorder()
    assert (
        mean.get_markerfacecolor() != "white" and second.lines[1].get_markerfacecolor() == "white"
    )


def test_there_is_one_mark_per_configuration_and_machine_in_a_lane_and_a_style_of_its_own():
    chart = dot_chart(4, machines=3)
    axes = chart.draw().axes[0]
    means = [line for line in axes.lines if len(line.get_xdata()) == 1 and line.get_alpha() is None]
    assert len(means) == 2 * 3
    heights = [float(line.get_ydata()[0]) for line in means]
    assert heights == sorted(heights) and len({*heights}) == 6
    markers = [line.get_marker() for line in means]
    assert markers[:3] == markers[3:] and len({*markers}) == 3
    texts = [text.get_text() for text in axes.figure.legends[0].get_texts()]
    assert texts[-3:] == ["boot 0", "boot 1", "boot 2"]


def test_the_markers_of_machines_differ_without_their_colours():
    markers = [style["marker"] for style in STYLES["machines"]]
    assert len({*markers}) == len(markers) >= 8


def test_bars_start_at_zero_and_have_the_memcpy_line_and_no_interval():
    bars = [Mark("a", "", segments={"copying": 3.0, "waiting": 0.0, "serialisation": 2.0})]
    (axes,) = Chart("bars", "", {"": bars}, "", {"memcpy": 9.0}, segment_names=CAUSES).draw().axes
    assert axes.get_xlim()[0] == 0 and axes.get_xlim()[1] >= 9
    assert [list(line.get_xdata()) for line in axes.lines] == [[9.0, 9.0]]
    # In the order of CAUSES.
    assert [(patch.get_x(), patch.get_width()) for patch in axes.patches] == [(0, 2), (2, 3)]
    assert [bar.get_label() for bar in axes.containers] == ["serialisation", "copying"]


def test_a_simulated_line_has_markers_where_it_was_measured_and_is_dashed_beyond():
    (axes,) = simulated_chart().draw().axes
    solid, dashed, markers, *_ = axes.lines
    assert solid.get_linestyle() == "-" and [*solid.get_xdata()] == [2, 4, 8]
    assert dashed.get_linestyle() == "--" and [*dashed.get_xdata()] == [8, 12, 16, 24, 32, 48, 64]
    assert places_of(markers) == [(2, 1.1), (8, 4.2)] and markers.get_linestyle() == "None"
    texts = [text.get_text() for text in axes.texts]
    assert NOT_MEASURED in texts
    (axes,) = simulated_chart(measured=((64, 30.0), (64, 31.0))).draw().axes
    assert NOT_MEASURED not in [text.get_text() for text in axes.texts]


def test_a_line_that_was_nowhere_measured_is_dashed_everywhere():
    (axes,) = simulated_chart(measured=()).draw().axes
    assert {line.get_linestyle() for line in axes.lines} == {"--"}
    assert NOT_MEASURED in [text.get_text() for text in axes.texts]


def test_the_x_axis_has_the_values_of_the_lines_and_no_others():
    (axes,) = line_chart(4).draw().axes
    shown = [label.get_text() for label in axes.get_xticklabels()]
    assert shown[0] == "8 KiB" and shown[-1] in ("128 MiB", "512 MiB")
    assert choose_labels({1.0: "1", 2.0: "2", 2.1: "2.1"}, 2.0) == [1.0, 2.0]


def test_names_of_lines_are_apart_near_their_ends_and_inside():
    assert move_apart([0.9, 0.5, 0.1], 0.1) == [0.9, 0.5, 0.1]
    assert move_apart([0.5, 0.5, 0.5], 0.1) == pytest.approx([0.5, 0.4, 0.3])
    assert move_apart([0.02, 0.01, 0.0], 0.1) == pytest.approx([0.2, 0.1, 0.0])


def test_predictions_are_above_the_line_if_they_are_too_high():
    (axes,) = scatter_chart().draw().axes
    equal, above, below, left_out, before = axes.lines
    assert [*equal.get_xdata()] == [*equal.get_ydata()]
    x, y = above.get_data()
    assert y[0] == pytest.approx(1.2 * x[0])
    x, y = below.get_data()
    assert y[0] == pytest.approx(0.8 * x[0])
    assert places_of(left_out) == [(1.1, 1.0), (16.0, 20.0), (2800.0, 3000.0)]
    assert places_of(before) == [(2.0, 2.0), (260.0, 200.0)]
    assert left_out.get_markerfacecolor() == "none" != before.get_markerfacecolor()
    assert axes.get_xlim() == axes.get_ylim()


def test_many_iterations_are_thinned_evenly_with_the_fastest_and_the_slowest():
    times = [float((7 * number) % 1000) for number in range(1000)]
    chosen = thin(times)
    assert len(chosen) == MAX_SAMPLES and {min(times), max(times)} <= {*chosen}
    gaps = [after - before for before, after in itertools.pairwise(sorted(chosen))]
    assert max(gaps) <= 18
    assert thin([3.0, 1.0, 2.0]) == [3.0, 1.0, 2.0]
    assert len({*spread(50, 1.0)}) == 50 and max(map(abs, spread(50, 1.0))) <= 0.5


def test_a_shorter_svg_has_the_style_of_a_group_of_dots_once():
    uses = '<use xlink:href="#m1" x="12.345678" y="3" style="fill: red"/>\n'
    group = f'<g clip-path="url(#p)">\n{uses}{uses}</g>\n'
    text = shorten_svg(f"<?xml?>\n<svg>\n{group}</svg>\n")
    assert text.startswith("<svg>")
    assert text.count("fill: red") == 1 and '<g clip-path="url(#p)" style="fill: red">' in text
    assert text.count('<use href="#m1" x="12.34" y="3"/>') == 2
    other = uses.replace("red", "blue")
    text = shorten_svg(f'<svg>\n<g clip-path="url(#p)">\n{uses}{other}</g>\n</svg>\n')
    assert re.findall("fill: (?:red|blue)", text) == ["fill: red", "fill: blue"]


def test_a_drawn_svg_keeps_all_dots():
    text = CHARTS["scatter"].to_svg()
    assert text.startswith("<svg") and text == CHARTS["scatter"].to_svg()
    assert len(re.findall(r'<g clip-path="[^"]*" style="[^"]*">\n<use', text)) == 2
