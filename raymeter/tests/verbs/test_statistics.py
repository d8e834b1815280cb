# SPDX-License-Identifier: Apache-2.0
"""Ratios of paired runs."""

import pytest
from raymeter.statistics import Ratio, compare_pairs, describe_ratio, t_quantile


def test_equal_ratios_have_no_width() -> None:
    ratio = compare_pairs([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((2.0, 2.0, 2.0))
    assert ratio.verdict == "faster"


def test_an_interval_is_that_of_students_t_on_logarithms() -> None:
    # Logarithms of the ratios are 0, 1 and 2: mean 1, standard error 1/sqrt(3), and t = 4.303 for two degrees.
    e = 2.718281828459045
    ratio = compare_pairs([1.0, e, e**2], [1.0, 1.0, 1.0])
    margin = 4.303 / 3**0.5
    assert ratio.low == pytest.approx(e ** (1 - margin))
    assert ratio.high == pytest.approx(e ** (1 + margin))
    assert ratio.verdict == "no difference"


def test_pairs_remove_what_both_runs_of_a_pair_share() -> None:
    slow_machine = [10.0, 20.0, 40.0]
    ratio = compare_pairs(slow_machine, [value / 1.2 for value in slow_machine])
    assert ratio.verdict == "faster"


def test_slower_runs_are_called_slower() -> None:
    assert compare_pairs([1.0, 1.0, 1.01], [1.5, 1.52, 1.5]).verdict == "slower"


def test_a_difference_below_two_percent_is_none() -> None:
    assert compare_pairs([1.010, 1.0101, 1.0102], [1.0, 1.0, 1.0]).verdict == "no difference"


def test_one_pair_has_no_interval_and_no_verdict() -> None:
    ratio = compare_pairs([2.0], [1.0])
    assert not ratio.has_interval
    assert ratio.verdict == "unknown"
    assert "no interval" in describe_ratio(ratio)


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (Ratio(1.0, 1.0, 1.0), "a difference of at most 1 %"),
        (Ratio(1.003, 0.992, 1.014), "a difference of at most 2 %"),
        (Ratio(1.01, 0.95, 1.07), "0.95 to 1.07 times as fast"),
        (Ratio(1.05, 1.03, 1.07), "1.03 to 1.07 times as fast"),
        (Ratio(1.38, 1.379, 1.381), "1.38 times as fast"),
        (Ratio(0.995), "a difference of less than 2 %, one run each: no interval"),
        (Ratio(0.9), "0.90 times as fast, one run each: no interval"),
    ],
)
def test_a_ratio_near_1_is_not_called_times_as_fast(ratio: Ratio, text: str) -> None:
    assert describe_ratio(ratio) == text


def test_a_quantile_between_two_rows_is_the_wider_one() -> None:
    assert t_quantile(13) == t_quantile(12)
    assert t_quantile(1_000) == 2.000
    with pytest.raises(ValueError, match="give two pairs"):
        t_quantile(0)


@pytest.mark.parametrize(("before", "after"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0])])
def test_runs_that_cannot_be_compared_are_refused(before: list[float], after: list[float]) -> None:
    with pytest.raises(ValueError, match=r"give pairs|cannot be compared"):
        compare_pairs(before, after)
