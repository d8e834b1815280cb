"""What stands beside a row's time: the hand-over alone, the CPU time, and what disturbed it."""

import pytest
from made_records import a_record, a_run

from common.analysis.results import results_of
from common.charts import ladder_chart
from common.text.screen import warnings
from common.text.tables import COLUMNS

QUIET = {
    "ceiling_before_seconds": [0.02], "ceiling_after_seconds": [0.021],
    "hand_over_before_seconds": [1e-4, 2e-4], "hand_over_after_seconds": [1e-4], "cpu_seconds": 0.9,
}  # fmt: skip


def result(**changes):
    (found,) = results_of([a_record("refs", a_run([0.1] * 6, **QUIET | changes))])
    return found


def cells(found):
    return {column.header: column.cell(found) for column in COLUMNS}


def test_a_row_says_its_share_of_the_hand_over_and_the_cpu_time_of_a_trip():
    assert (cells(result())["of hand-over"], cells(result())["CPU ms"]) == ("0.1%", "150")
    old = result(hand_over_before_seconds=[], hand_over_after_seconds=[], cpu_seconds=None)
    assert (cells(old)["of hand-over"], cells(old)["CPU ms"]) == ("-", "-")


def test_the_chart_has_a_line_for_each_limit_that_was_measured():
    assert list(ladder_chart.limits([result()])) == list(ladder_chart.LIMITS)
    old = result(hand_over_before_seconds=[], hand_over_after_seconds=[])
    assert list(ladder_chart.limits([old])) == list(ladder_chart.LIMITS)[:2]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"busy_cores": 1.2}, "other programs kept 1.2 cores busy"),
        ({"throttled_seconds": 0.5}, "a CPU limit held it back for 0.5 s"),
        ({"ceiling_after_seconds": [0.04]}, "its ceiling went from 20 to 40 ms"),
    ],
)
def test_what_disturbed_a_run_is_said_with_what_to_do(changes, words):
    found = [warning for warning in warnings(result(**changes)) if "suite's own work" not in warning]
    assert len(found) == (words is not None)
    assert words is None or words in found[0]
    assert all(":" in warning or ";" in warning for warning in found)


def test_a_clock_that_is_too_coarse_is_named():
    record = a_record("refs", a_run([0.1] * 6, **QUIET), environment={"clock_resolution_seconds": 0.01})
    (found,) = results_of([record])
    assert any("under a hundred ticks of the clock" in warning for warning in warnings(found))
