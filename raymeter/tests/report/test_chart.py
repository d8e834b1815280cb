# SPDX-License-Identifier: Apache-2.0
"""Charts of large steps show a part, and say so; the share of data in a step."""

import pytest
from made_programs import make_loop, make_steps
from raymeter.report.chart import Bar, Chart, draw
from raymeter.report.lanes import MAX_BARS, MAX_LANES, Lanes
from raymeter.simulate.without_data import without_data


def fill_chart(lanes: int, bars: int) -> Chart:
    names = {f"node-{number}": f"Worker {number}" for number in range(lanes)}
    filler = Lanes(names)
    for process in names:
        for number in range(bars):
            filler.add(process, Bar(number, number + 1, "task", "work"))
    chart = Chart("made", 0.0, float(bars), [])
    filler.fill(chart)
    return chart


def test_a_small_step_is_shown_as_a_whole():
    chart = fill_chart(3, 10)
    assert [lane.name for lane in chart.lanes] == ["Worker 0", "Worker 1", "Worker 2"]
    assert chart.left_out == 0
    assert "left out" not in draw(chart)


def test_of_many_processes_and_bars_some_are_shown_and_the_others_counted():
    lanes = MAX_LANES + 6
    chart = fill_chart(lanes, 100)
    assert len(chart.lanes) == MAX_LANES
    shown = sum(len(row) for lane in chart.lanes for row in lane.rows)
    assert shown == MAX_BARS
    assert chart.lanes_left_out == 6
    assert chart.left_out == 100 * MAX_LANES - MAX_BARS
    text = draw(chart)
    assert "6 processes with less to show are left out." in text
    assert f"{chart.left_out:,} short bars are left out." in text


def test_what_is_partly_outside_of_a_step_is_cut_at_its_edges():
    chart = Chart("made", 1.0, 2.0, [])
    assert [chart.percent(time) for time in (0.5, 1.25, 9.0)] == [0, 25, 100]


def test_without_data_the_step_is_shorter_by_what_the_driver_sends_and_its_task_reads():
    moving = without_data(make_loop(send=0.04), make_steps())
    assert moving.before_seconds == pytest.approx(0.1)
    assert moving.saved_seconds == pytest.approx(0.043, abs=0.001)  # 3 ms are read
    assert not moving.is_upper_limit


def test_without_the_times_of_tasks_the_share_of_data_is_an_upper_limit():
    moving = without_data(make_loop(send=0.04, has_tasks=False), make_steps())
    assert moving.is_upper_limit
    assert moving.saved_seconds == pytest.approx(0.04, rel=0.2)
