# SPDX-License-Identifier: Apache-2.0
"""A slow iteration is in the published time, as it is in the total time of a run, and the tail is beside it."""

import pytest
from made_records import make_record, make_run, rows_of, write_record

from dataflow.analysis.comparison import Pair
from dataflow.analysis.result import Result, group_results
from dataflow.commands import compare
from dataflow.report.sections import sections

STEADY = [0.05] * 10
ONE_SLOW = [0.05] * 9 + [0.55]


def make_result(*runs, **changes):
    return Result([make_record("refs", *runs, **changes)])


def make_row(*runs, **changes):
    (section,) = sections(group_results([make_record("refs", *runs, **changes)]))
    (row,) = rows_of(section)
    return row


def test_one_slow_iteration_of_ten_changes_the_published_time():
    result = make_result(ONE_SLOW)
    assert result.typical_seconds == pytest.approx(0.1) == pytest.approx(sum(ONE_SLOW) / 10)
    assert result.typical_median_seconds == pytest.approx(0.05)
    row = make_row(ONE_SLOW)
    assert (row["ms per iteration"], row["p50 ms"]) == ("100", "50")
    assert row["slow iterations"] == "10 %"
    assert "slow iterations" not in make_row(STEADY)


def test_a_run_counts_once_however_many_iterations_it_has():
    result = make_result([1.0] * 99, [4.0])
    assert result.typical_seconds == pytest.approx(2.0)
    assert result.p50_seconds == pytest.approx(1.0)  # of all iterations together


def test_a_factor_a_multiple_and_a_rate_have_the_slow_iteration():
    steady = make_result(*[STEADY] * 3)
    slow = make_result(*[ONE_SLOW] * 3)
    assert Pair(steady, slow).ratio.value == pytest.approx(2.0)
    assert slow.times_memcpy == pytest.approx(2 * steady.times_memcpy)
    assert float(make_row(*[STEADY] * 3)["GB/s"]) == pytest.approx(9.39, rel=0.02)
    assert float(make_row(*[ONE_SLOW] * 3)["GB/s"]) == pytest.approx(4.7, rel=0.02)


def test_a_slow_iteration_in_each_run_fails_a_comparison(tmp_path, capsys):
    sides = []
    for name, seconds in (("old", STEADY), ("new", ONE_SLOW)):
        runs = [[noise * second for second in seconds] for noise in (1.0, 1.01, 0.99)]
        sides.append(write_record(tmp_path / name / "record.json", make_record("refs", *runs)))
    assert compare.main([*sides, "--fail-above", "5%"]) == 1
    printed = capsys.readouterr()
    assert printed.err == "error: store refs is slower by 100.0%\n"
    assert "50 → 50" in printed.out and "- → 10 %" in printed.out


def test_the_tail_is_that_of_groups_if_several_iterations_are_in_flight():
    groups = [0.4] * 19 + [0.8]
    run = make_run([0.4] * 40, group_seconds=groups)
    result = make_result(run, flags={"in_flight": 2})
    assert result.typical_seconds == pytest.approx(sum(groups) / 40)
    assert result.p50_seconds == pytest.approx(0.2)
    assert result.slow_share == pytest.approx(1 / 20)


def test_a_result_is_impossible_by_its_median_whatever_its_slow_iterations_are():
    copies = {"memcpy_before_seconds": [0.2], "memcpy_all_cores_seconds": [0.09]}
    runs = [make_run([0.07] * 9 + [0.9], **copies) for _ in range(3)]
    result = make_result(*runs)
    assert result.status == "impossible"
    assert result.typical_seconds > 0.09
