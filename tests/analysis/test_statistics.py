"""Summaries, ratios of rows by their runs, and how often a verdict is right, by simulated runs."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, stats

from common.analysis.statistics import (
    ALIKE,
    TRIMMED,
    VERDICT_P,
    change,
    ratio,
    ratio_of_alternated,
    scatter,
    summarise,
    typical_seconds,
)

ROOT = Path(__file__).parents[2]


def test_summary_of_the_samples():
    summary = summarise([4.0, 1.0, 2.0, 3.0, 10.0])
    assert (summary.count, summary.min, summary.median, summary.max) == (5, 1, 3, 10)
    assert summary.variation == pytest.approx((50 / 5) ** 0.5 / 4)


def test_percentiles_are_there_only_where_there_are_samples_for_them():
    few, some, many = (summarise([float(number) for number in range(1, 1 + count)]) for count in (19, 20, 100))
    assert (few.p95, few.p99, some.p99) == (None, None, None)
    assert some.p95 == pytest.approx(19.05)
    assert (many.p95, many.p99) == (pytest.approx(95.05), pytest.approx(99.01))


def test_summary_of_one_sample_does_not_vary():
    assert summarise([0.25]).variation == 0


def test_no_sample_has_no_summary():
    with pytest.raises(ValueError, match="no timed trip"):
        summarise([])


def test_a_ratio_is_that_of_the_typical_seconds_and_its_interval_that_of_welch():
    own, other = [[1.0, 1.1, 9.0], [1.2], [1.3, 1.3]], [[2.0], [2.2, 2.2], [2.1], [2.6]]
    found = ratio(own, other)
    assert typical_seconds(own) == pytest.approx((1.1 * 1.2 * 1.3) ** (1 / 3))
    assert found.value == pytest.approx(typical_seconds(own) / typical_seconds(other))
    # By Welch's own formulas: the standard error, and the degrees of freedom that it has.
    logs = [np.log([1.1, 1.2, 1.3]), np.log([2.0, 2.2, 2.1, 2.6])]
    squares = [log.var(ddof=1) / len(log) for log in logs]
    freedom = sum(squares) ** 2 / sum(square**2 / (len(log) - 1) for square, log in zip(squares, logs, strict=True))
    margin = stats.t.ppf(0.975, freedom) * sum(squares) ** 0.5
    assert (found.low, found.high) == pytest.approx((found.value / np.exp(margin), found.value * np.exp(margin)))
    assert (found.runs, found.verdict) == (3, "faster")
    assert scatter(own) == pytest.approx(logs[0].std(ddof=1))
    back = ratio(other, own)
    assert (back.value, back.low, back.high) == pytest.approx((1 / found.value, 1 / found.high, 1 / found.low))
    assert back.verdict == "slower"


@pytest.mark.parametrize("runs", [[[5.0] * 100], [[5.0, 5.1, 4.9]]], ids=["many trips", "few"])
def test_one_run_says_nothing_whatever_its_trips_say(runs):
    found = ratio(runs, [[1.0], [1.01], [1.02], [0.99], [1.0]])
    assert (found.low, found.high, found.p, found.verdict) == (None, None, None, "one run: no verdict")
    assert found.value > 4.9
    assert change([[1.0], [1.01], [1.02]], runs) == "one run: no verdict against"


def test_two_runs_have_an_interval_and_no_verdict():
    found = ratio([[5.0], [5.001]], [[1.0], [1.001]])
    assert found.low < 5 < found.high and found.p < 0.01
    assert found.verdict == "2 runs: no verdict"


def test_runs_that_do_not_scatter_at_all_are_alike_or_not():
    same, other = [[0.5, 0.5]] * 3, [[1.0, 1.0]] * 3
    assert (ratio(same, same).verdict, ratio(same, other).verdict) == ("no clear difference", "faster")
    assert (ratio(other, same).low, ratio(other, same).high) == (2, 2)


# What a simulated row is like: runs differ by this much, and trips inside them by that, both lognormal.
BETWEEN, TRIPS, NOISE = 0.01, 20, 0.03
PAIRS, RUNS = 1000, 5
KINDS = {
    "quiet": lambda rng, shape: rng.normal(0, BETWEEN, shape),
    "one run in ten is disturbed": lambda rng, shape: (
        rng.normal(0, BETWEEN, shape) + (rng.random(shape) < 0.1) * rng.exponential(0.3, shape)
    ),
    "runs go one of two ways": lambda rng, shape: rng.normal(0, BETWEEN, shape) + (rng.random(shape) < 0.5) * 0.5,
}


def rows(rng, kind, runs=RUNS, wider=1):
    """Of one row after the other: the trips of its runs, in seconds."""
    offsets = KINDS[kind](rng, (PAIRS, runs, 1)) * wider
    return np.exp(offsets + rng.normal(0, NOISE, (PAIRS, runs, TRIPS)) - 4)


def called(ones, others, word):
    """In which share of the pairs the second is said to be so."""
    pairs = zip(ones, others, strict=True)
    return np.mean([ratio(other.tolist(), one.tolist()).verdict == word for one, other in pairs])


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_hundred_pairs_that_are_alike_fewer_than_five_are_called_different(kind):
    rng = np.random.default_rng(7)
    ones, others = rows(rng, kind), rows(rng, kind)
    wrong = called(ones, others, "slower") + called(ones, others, "faster")
    # 25 of 1,000: a rate from which 100 pairs have fewer than five in 9 of 10 draws.
    assert wrong < 0.025 and stats.binom.cdf(4, 100, 0.025) > 0.85


def test_a_delay_of_five_percent_is_found_in_nine_pairs_of_ten():
    rng = np.random.default_rng(8)
    assert called(rows(rng, "quiet"), rows(rng, "quiet") * 1.05, "slower") > 0.9


def test_where_runs_differ_more_it_takes_more_of_them():
    rng = np.random.default_rng(11)
    few, many = (called(rows(rng, "quiet", runs, 2), rows(rng, "quiet", runs, 2) * 1.05, "slower") for runs in (5, 15))
    assert few < 0.7 and many > 0.9


def test_of_ten_runs_and_more_one_that_was_disturbed_does_not_decide():
    rng = np.random.default_rng(12)
    kind = "one run in ten is disturbed"
    assert called(rows(rng, kind, 20), rows(rng, kind, 20) * 1.05, "slower") > 0.7
    calm = np.exp(rng.normal(0, BETWEEN, (10, 1)))
    struck = [*calm[:9].tolist(), [9.0]]
    assert ratio(struck, calm.tolist()).value == pytest.approx(1, abs=0.02)
    assert ratio(struck[5:], calm[5:].tolist()).value > 1.2


def alternated(rng, slower):
    """Two rows of five runs of 60 trips each that met the same drift, which makes runs and trips differ by a fifth."""
    sides = []
    for _ in range(5):
        drift = np.exp(rng.normal(0, 0.2) + np.cumsum(rng.normal(0, 0.02, 120)))
        own = np.exp(rng.normal(0, 0.006, 2))  # by what two processes differ wherever they run
        trips = drift * np.exp(rng.normal(0, 0.05, 120))
        sides.append((trips[::2] * own[0], trips[1::2] * own[1] * slower))
    return zip(*sides, strict=True)


def test_of_rows_that_alternated_drift_hides_no_difference_and_makes_none():
    rng = np.random.default_rng(0)
    alike = [ratio_of_alternated(new, old) for old, new in (alternated(rng, 1.0) for _ in range(400))]
    assert sum(found.verdict != ALIKE for found in alike) < 20
    pairs = [tuple(alternated(rng, 1.05)) for _ in range(100)]
    found = [ratio_of_alternated(new, old) for old, new in pairs]
    assert sum(one.verdict == "slower" for one in found) >= 90
    assert all(one.low < one.value < one.high for one in found)
    assert sum(ratio(new, old).verdict == "slower" for old, new in pairs) < 20


def test_one_run_that_alternated_has_no_verdict_and_runs_without_scatter_are_alike_or_not():
    one = ratio_of_alternated([[2.0, 4.0, 9.0]], [[1.0, 2.0, 3.0]])
    assert (one.value, one.low, one.runs, one.verdict) == (pytest.approx(2), None, 1, "one run: no verdict")
    assert ratio_of_alternated([[2.0]] * 3, [[1.0]] * 3).verdict == "slower"
    assert ratio_of_alternated([[1.0], [3.0], [2.0]], [[1.0], [3.0], [2.0]]).verdict == ALIKE


@pytest.mark.parametrize("runs", [5, 10, 20])
def test_the_docs_say_how_far_runs_may_differ_for_that(runs):
    left = runs - 2 * int(TRIMMED * runs)
    efficiency = 1 if left == runs else 0.97  # of the mean of normal noise of which a tenth is cut off at either end

    def power(scatter):
        freedom, error = 2 * left - 2, scatter * (2 / runs / efficiency) ** 0.5
        return stats.nct.sf(stats.t.isf(VERDICT_P / 2, freedom), freedom, np.log(1.05) / error)

    most = optimize.brentq(lambda scatter: power(scatter) - 0.9, 0.001, 0.2)
    assert f"| {runs} | {100 * most:.1f} % |" in (ROOT / "docs" / "statistics.md").read_text()


def test_intervals_hold_the_true_ratio_as_often_as_they_say():
    rng = np.random.default_rng(9)
    found = [
        ratio(other.tolist(), one.tolist())
        for one, other in zip(rows(rng, "quiet"), rows(rng, "quiet") * 1.05, strict=True)
    ]
    assert 0.94 < np.mean([one.low < 1.05 < one.high for one in found]) < 0.98


def resampled(rng, row):
    """The mean of the logarithms of a row's medians, its runs drawn again and again, and the trips inside them."""
    runs = row[rng.integers(0, RUNS, (300, RUNS))]
    trips = np.take_along_axis(runs, rng.integers(0, TRIPS, runs.shape), 2)
    return np.log(np.median(trips, axis=2)).mean(1)


def test_resampled_runs_and_trips_and_pooled_trips_would_have_called_far_more_of_them_different(monkeypatch):
    """Why neither is used: both intervals are too narrow for five runs, here of trips that lie close together."""
    monkeypatch.setattr(sys.modules[__name__], "NOISE", 0.003)
    rng = np.random.default_rng(10)
    ones, others = rows(rng, "quiet"), rows(rng, "quiet")
    pairs = zip(ones, others, strict=True)
    means = np.array([resampled(rng, other) - resampled(rng, one) for one, other in pairs])
    low, high = np.percentile(means, [2.5, 97.5], axis=1)
    assert np.mean((low > 0) | (high < 0)) > 0.1
    pooled = [np.log(row.reshape(PAIRS, -1)) for row in (ones, others)]
    assert np.mean(stats.ttest_ind(*pooled, axis=1, equal_var=False).pvalue < 0.05) > 0.1
