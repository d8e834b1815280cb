"""Compute percentiles of samples, and ratios of configurations. docs/statistics.md explains the methods."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MIN_RUNS = 3  # per configuration, for an interval and a verdict
MIN_SAMPLES_ABOVE = 5  # a percentile
CONFIDENCE = 0.95  # of the intervals
TRIMMED_SHARE = 0.1  # of the runs at either end, so that one disturbed run of ten does not decide
POWER = 0.9  # share of the comparisons in which a difference of `detectable` is found
SIGNIFICANCE = 0.01  # at 0.05, two or three of 50 equal configurations would be called different
NO_DIFFERENCE = "cannot be told apart"
TOO_NOISY = "varied too much to be ranked"  # the interval does not contain 1, and p is above SIGNIFICANCE
UNRANKED = (NO_DIFFERENCE, TOO_NOISY)


def percentile(seconds: Sequence[float], per_cent: int) -> float | None:
    """Return a percentile of samples; None if too few are above it: it would be nearly the maximum."""
    enough = len(seconds) * (100 - per_cent) >= 100 * MIN_SAMPLES_ABOVE
    return float(np.percentile(seconds, per_cent)) if enough else None


@dataclass(frozen=True)
class Ratio:
    """Time of one configuration divided by the time of another.

    low, high, p and detectable are None if a side has fewer than MIN_RUNS: too little is known of their spread.
    """

    value: float
    low: float | None  # of the 95 % interval
    high: float | None
    p: float | None  # the probability that two equal configurations differ at least as much
    detectable: float | None  # the smallest slowdown (0.05: by 5 %) that nine of ten such comparisons would find
    runs: int  # of the side that has fewer

    @property
    def verdict(self) -> str:
        """Return "faster", "slower", NO_DIFFERENCE, TOO_NOISY, or that there are too few runs."""
        if self.p is None or self.low is None or self.high is None:
            return f"{'one run' if self.runs == 1 else f'{self.runs} runs'}: no verdict"
        if self.p >= SIGNIFICANCE:
            return NO_DIFFERENCE if self.low <= 1 <= self.high else TOO_NOISY
        return "slower" if self.value > 1 else "faster"


def typical_seconds(run_seconds: Sequence[float]) -> float:
    """Return the geometric mean of the runs' medians, trimmed from ten runs on, as `ratio` does."""
    logs, cut = np.sort(np.log(run_seconds)), int(TRIMMED_SHARE * len(run_seconds))
    return float(np.exp(logs[cut : len(logs) - cut].mean()))


def interval(run_seconds: Sequence[float]) -> tuple[float, float] | None:
    """Return the ends of the 95 % interval of `typical_seconds`; None for fewer than MIN_RUNS.

    From ten runs on, trimmed runs count as the nearest ones that are left (Tukey and McLaughlin).
    """
    from scipy.stats import t

    logs, cut, runs = np.sort(np.log(run_seconds)), int(TRIMMED_SHARE * len(run_seconds)), len(run_seconds)
    if runs < MIN_RUNS:
        return None
    left = runs - 2 * cut
    squares = (runs - 1) * np.clip(logs, logs[cut], logs[runs - 1 - cut]).var(ddof=1)
    margin = t.ppf((1 + CONFIDENCE) / 2, left - 1) * (squares / (left * (left - 1))) ** 0.5
    center = np.log(typical_seconds(run_seconds))
    return float(np.exp(center - margin)), float(np.exp(center + margin))


def ratio(run_seconds: Sequence[float], baseline: Sequence[float]) -> Ratio:
    """Return how many times as long one configuration takes as another, by the medians of their runs.

    Iterations of one process share its conditions, so a run counts once. The logarithms of the medians are compared
    by Welch's t-test; from ten runs on by Yuen's, which trims a tenth of the runs at either end.
    """
    from scipy import stats  # takes half a second, which a run does not need

    ours, theirs = np.log(run_seconds), np.log(baseline)
    value = typical_seconds(run_seconds) / typical_seconds(baseline)
    return _test_ratio(value, stats.ttest_ind, ours, theirs, equal_var=False, trim=TRIMMED_SHARE)


def ratio_of_pairs(run_seconds: Sequence[float], baseline: Sequence[float]) -> Ratio:
    """Return how many times as long one configuration takes as another, by the medians of paired runs.

    The two runs of a pair met nearly the same conditions, so each pair counts once, by the logarithm of its ratio.
    These are tested against 0 by Student's t-test.
    """
    from scipy import stats

    logs = np.log(run_seconds) - np.log(baseline)
    return _test_ratio(float(np.exp(np.mean(logs))), stats.ttest_1samp, logs, popmean=0)


def _test_ratio(value: float, test: Callable[..., Any], *samples: np.ndarray, **settings: Any) -> Ratio:
    """Return the ratio with the interval and p of a test of the logarithms."""
    from scipy.stats import t

    runs = min(map(len, samples))
    if runs < MIN_RUNS:
        return Ratio(value, None, None, None, None, runs)
    if all(np.ptp(sample) == 0 for sample in samples):  # synthetic records have no variance to test with
        return Ratio(value, value, value, float(value == 1), 0.0, runs)
    outcome = test(*samples, **settings)
    interval = outcome.confidence_interval(CONFIDENCE)
    error = (interval.high - interval.low) / 2 / t.ppf((1 + CONFIDENCE) / 2, outcome.df)
    low, high = np.exp(interval)
    detectable = np.expm1(error * (t.ppf(1 - SIGNIFICANCE / 2, outcome.df) + t.ppf(POWER, outcome.df)))
    return Ratio(value, float(low), float(high), float(outcome.pvalue), float(detectable), runs)
