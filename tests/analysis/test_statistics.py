"""Test summaries and ratios, and by simulated runs how often a verdict is right."""

import numpy as np
import pytest
from scipy import stats

from dataflow.analysis.statistics import (
    NO_DIFFERENCE,
    TOO_NOISY,
    interval,
    ratio,
    ratio_of_pairs,
    summarise,
    typical_seconds,
)


def test_summary_of_samples():
    summary = summarise([4.0, 1.0, 2.0, 3.0, 10.0])
    assert (summary.min, summary.median, summary.max) == (1, 3, 10)
    assert summary.variation == pytest.approx((50 / 5) ** 0.5 / 4)
    few, some, many = (summarise([float(number) for number in range(1, 1 + count)]) for count in (99, 100, 500))
    assert (few.p95, few.p99, some.p99) == (None, None, None)
    assert (some.p95, many.p95, many.p99) == (pytest.approx(95.05), pytest.approx(475.05), pytest.approx(495.01))


def test_ratio_is_that_of_the_typical_seconds_with_the_interval_of_welch():
    ours, theirs = [1.1, 1.2, 1.3], [2.0, 2.2, 2.1, 2.6]
    result = ratio(ours, theirs)
    assert typical_seconds(ours) == pytest.approx((1.1 * 1.2 * 1.3) ** (1 / 3))
    assert result.value == pytest.approx(typical_seconds(ours) / typical_seconds(theirs))
    # Welch's own formulas: the standard error and its degrees of freedom.
    logs = [np.log(ours), np.log(theirs)]
    squares = [log.var(ddof=1) / len(log) for log in logs]
    freedom = sum(squares) ** 2 / sum(square**2 / (len(log) - 1) for square, log in zip(squares, logs, strict=True))
    margin = stats.t.ppf(0.975, freedom) * sum(squares) ** 0.5
    assert (result.low, result.high) == pytest.approx((result.value / np.exp(margin), result.value * np.exp(margin)))
    assert (result.runs, result.verdict, ratio(theirs, ours).verdict) == (3, "faster", "slower")


def test_too_few_runs_have_no_verdict_and_runs_may_have_no_variance():
    result = ratio([5.0], [1.0, 1.01, 1.02, 0.99, 1.0])
    assert (result.low, result.high, result.p, result.detectable) == (None, None, None, None)
    assert result.verdict == "one run: no verdict" and interval([5.0]) is None
    two = ratio([5.0, 5.001], [1.0, 1.001])
    assert (two.low, two.high, two.p, two.verdict) == (None, None, None, "2 runs: no verdict")
    assert interval([5.0, 5.001]) is None
    same, other = [0.5] * 3, [1.0] * 3
    assert (ratio(same, same).verdict, ratio(same, other).verdict) == (NO_DIFFERENCE, "faster")
    assert (ratio(other, same).low, ratio(other, same).high) == (2, 2)


def test_a_configuration_that_varies_much_is_not_called_equal_to_one_that_it_is_probably_slower_than():
    steady, noisy = [0.065, 0.066, 0.064, 0.065, 0.067], [0.2, 0.122, 0.15, 0.07, 0.11]
    result = ratio(noisy, steady)
    assert 1 < result.low < result.value and result.p >= 0.01
    assert (result.verdict, ratio(steady, noisy).verdict) == (TOO_NOISY, TOO_NOISY)


# A simulated configuration: runs differ by BETWEEN, iterations inside them by NOISE, both lognormal.
BETWEEN, ITERATIONS, NOISE = 0.01, 20, 0.03
PAIRS, RUNS = 160, 5


def make_quiet(rng, shape):
    return rng.normal(0, BETWEEN, shape)


def disturb_one_run_of_ten(rng, shape):
    return make_quiet(rng, shape) + (rng.random(shape) < 0.1) * rng.exponential(0.3, shape)


def make_two_modes(rng, shape):
    return make_quiet(rng, shape) + (rng.random(shape) < 0.5) * 0.5


def simulate(rng, offsets=make_quiet, runs=RUNS, wider=1):
    """Return seconds of shape [PAIRS, runs, ITERATIONS]."""
    noise = rng.normal(0, NOISE, (PAIRS, runs, ITERATIONS))
    return np.exp(offsets(rng, (PAIRS, runs, 1)) * wider + noise - 4)


def ratio_of(new, old):
    """Return the ratio of runs, by the medians of their iterations."""
    return ratio(np.median(new, axis=1), np.median(old, axis=1))


def share_called(olds, news, *verdicts):
    """Return the share of pairs in which the new one is called one of these."""
    return np.mean([ratio_of(new, old).verdict in verdicts for old, new in zip(olds, news, strict=True)])


@pytest.mark.parametrize("offsets", [make_quiet, disturb_one_run_of_ten, make_two_modes])
def test_equal_configurations_are_seldom_called_different(offsets):
    rng = np.random.default_rng(7)
    assert share_called(simulate(rng, offsets), simulate(rng, offsets), "slower", "faster") < 0.025


def test_equal_configurations_of_unequal_variance_and_runs_are_seldom_called_different():
    """With pooled variances, a fifth of these pairs is called different."""
    rng = np.random.default_rng(13)
    assert share_called(simulate(rng, runs=9), simulate(rng, runs=3, wider=8), "slower", "faster") < 0.06


@pytest.mark.parametrize(
    ("offsets", "runs", "wider", "low", "high"),
    [(make_quiet, 5, 1, 0.9, 1), (make_quiet, 5, 2, 0, 0.7), (make_quiet, 15, 2, 0.9, 1),
     (disturb_one_run_of_ten, 20, 1, 0.7, 1)],
    ids=["five runs", "runs that differ more", "more runs", "one of ten is disturbed"],
)  # fmt: skip
def test_how_often_a_delay_of_five_per_cent_is_found(offsets, runs, wider, low, high):
    rng = np.random.default_rng(8)
    old, new = (simulate(rng, offsets, runs, wider) for _ in range(2))
    assert low <= share_called(old[:100], new[:100] * 1.05, "slower") <= high


def test_one_disturbed_run_of_ten_does_not_move_the_ratio():
    calm = np.exp(np.random.default_rng(12).normal(0, BETWEEN, 10)).tolist()
    disturbed = [*calm[:9], 9.0]
    assert ratio(disturbed, calm).value == pytest.approx(1, abs=0.02)
    assert ratio(disturbed[5:], calm[5:]).value > 1.2


def test_intervals_contain_the_true_ratio_in_95_of_100_cases():
    rng = np.random.default_rng(9)
    pairs = zip(simulate(rng), simulate(rng) * 1.05, strict=True)
    ratios = [ratio_of(new, old) for old, new in pairs]
    assert 0.93 < np.mean([result.low < 1.05 < result.high for result in ratios]) < 0.98


def test_a_detectable_slowdown_is_found_in_nine_of_ten_comparisons():
    rng = np.random.default_rng(6)
    old = [np.exp(rng.normal(0, 0.05, 5)) for _ in range(500)]
    detectable = np.mean([ratio(np.exp(rng.normal(0, 0.05, 5)), runs).detectable for runs in old])
    new = [np.exp(rng.normal(0, 0.05, 5)) * (1 + detectable) for _ in old]
    found = [ratio(ours, theirs).verdict == "slower" for ours, theirs in zip(new, old, strict=True)]
    assert 0.8 < np.mean(found) < 0.97


def test_the_interval_of_one_configuration_holds_its_true_time_in_95_of_100_measurements():
    rng = np.random.default_rng(3)
    for runs in (3, 5, 20):
        ends = np.log([interval(np.exp(rng.normal(0, 0.1, runs))) for _ in range(1000)])
        assert 0.93 < np.mean((ends[:, 0] < 0) & (ends[:, 1] > 0)) < 0.97


def simulate_pair(rng, slower):
    """Return the medians of five old and new runs that met the same drift, which makes pairs differ by a fifth."""
    drift = rng.normal(0, 0.2, 5)
    return [np.exp(drift + rng.normal(0, 0.006, 5)) * factor for factor in (1, slower)]


def test_drift_neither_hides_nor_makes_a_difference_of_paired_runs():
    rng = np.random.default_rng(0)
    equal = [ratio_of_pairs(new, old) for old, new in (simulate_pair(rng, 1.0) for _ in range(200))]
    assert sum(result.verdict in ("faster", "slower") for result in equal) < 10
    pairs = [simulate_pair(rng, 1.05) for _ in range(100)]
    ratios = [ratio_of_pairs(new, old) for old, new in pairs]
    assert sum(result.verdict == "slower" for result in ratios) >= 90
    assert all(result.low < result.value < result.high for result in ratios)
    assert sum(ratio(new, old).verdict == "slower" for old, new in pairs) < 20


def test_paired_runs_without_a_verdict_or_without_variance():
    one = ratio_of_pairs([4.0], [2.0])
    assert (one.value, one.low, one.verdict) == (pytest.approx(2), None, "one run: no verdict")
    assert ratio_of_pairs([2.0] * 3, [1.0] * 3).verdict == "slower"
    assert ratio_of_pairs([1.0, 3.0, 2.0], [1.0, 3.0, 2.0]).verdict == NO_DIFFERENCE
