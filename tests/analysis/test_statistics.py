# SPDX-License-Identifier: Apache-2.0
"""Test ratios and intervals, and by simulated runs how often a verdict is right."""

from functools import partial

import numpy as np
import pytest

from dataflow.analysis.statistics import NO_DIFFERENCE, TOO_NOISY, interval, ratio, typical_seconds

ratio_of_pairs = partial(ratio, paired=True)


def test_ratio_is_that_of_the_typical_seconds():
    ours, theirs = [1.1, 1.2, 1.3], [2.0, 2.2, 2.1, 2.6]
    result = ratio(ours, theirs)
    assert typical_seconds(ours) == pytest.approx((1.1 * 1.2 * 1.3) ** (1 / 3))
    assert result.value == pytest.approx(typical_seconds(ours) / typical_seconds(theirs))
    assert (result.runs, result.verdict, ratio(theirs, ours).verdict) == (3, "faster", "slower")
    assert (ratio([2.0] * 3, [1.0] * 3).verdict, ratio([2.0] * 3, [2.0] * 3).verdict) == (
        "slower",
        NO_DIFFERENCE,
    )


@pytest.mark.parametrize(("runs", "words"), [([5.0], "one run"), ([5.0, 5.001], "2 runs")])
def test_too_few_runs_have_no_verdict(runs, words):
    for result in (
        ratio(runs, [1.0, 1.01, 1.02, 0.99, 1.0]),
        ratio_of_pairs(runs, [1.0, 1.01][: len(runs)]),
    ):
        assert (result.interval, result.detectable) == (None, None)
        assert (result.verdict, interval(runs)) == (f"{words}: no verdict", None)


def test_a_configuration_that_varies_much_is_not_called_equal_to_one_that_it_is_probably_slower_than():
    steady, noisy = [0.065, 0.066, 0.064, 0.065, 0.067], [0.2, 0.122, 0.15, 0.07, 0.11]
    result = ratio(noisy, steady)
    assert 1 < result.interval[0] < result.value and result.p >= 0.01
    assert (result.verdict, ratio(steady, noisy).verdict) == (TOO_NOISY, TOO_NOISY)


SPREAD, PAIRS = (
    0.013,
    200,
)  # of the logarithms of the times of runs, and the number of simulated comparisons


def simulate(rng, runs=5, wider=1, between_modes=0.0):
    """Return the times of runs in seconds, of shape [PAIRS, runs]. Half of the runs are in a slower mode."""
    is_slower = rng.random((PAIRS, runs)) < 0.5
    return np.exp(rng.normal(0, SPREAD, (PAIRS, runs)) * wider + is_slower * between_modes - 4)


def share_called(olds, news, *verdicts, compare=ratio):
    """Return the share of pairs in which the new one is called one of these."""
    return np.mean(
        [compare(new, old).verdict in verdicts for old, new in zip(olds, news, strict=True)]
    )


@pytest.mark.parametrize(("old", "new", "most"), [
    ({}, {}, 0.025),
    ({"between_modes": 0.5}, {"between_modes": 0.5}, 0.025),
    ({"runs": 9}, {"runs": 3, "wider": 8}, 0.06),  # with pooled variances, a fifth of these pairs is called different
])  # fmt: skip
def test_equal_configurations_are_seldom_called_different(old, new, most):
    rng = np.random.default_rng(7)
    assert share_called(simulate(rng, **old), simulate(rng, **new), "slower", "faster") < most


def test_a_detectable_slowdown_is_found_in_nine_of_ten_comparisons():
    rng = np.random.default_rng(6)
    detectable = np.mean(
        [ratio(new, old).detectable for old, new in zip(simulate(rng), simulate(rng), strict=True)]
    )
    assert 0.8 < share_called(simulate(rng), simulate(rng) * (1 + detectable), "slower") < 0.97


@pytest.mark.parametrize("runs", [3, 5, 20])
def test_the_interval_of_one_configuration_holds_its_true_time_in_95_of_100_measurements(runs):
    rng = np.random.default_rng(3)
    ends = np.log([interval(np.exp(rng.normal(0, 0.1, runs))) for _ in range(1000)])
    assert 0.93 < np.mean((ends[:, 0] < 0) & (ends[:, 1] > 0)) < 0.97


def test_drift_neither_hides_nor_makes_a_difference_of_paired_runs():
    rng = np.random.default_rng(0)
    drift = np.exp(rng.normal(0, 0.2, (PAIRS, 5)))  # which both runs of a pair met
    old, new = drift * simulate(rng, wider=0.5), drift * simulate(rng, wider=0.5)
    assert share_called(old, new, "slower", "faster", compare=ratio_of_pairs) < 0.05
    assert share_called(old, new * 1.05, "slower", compare=ratio_of_pairs) > 0.9
    assert share_called(old, new * 1.05, "slower") < 0.2
