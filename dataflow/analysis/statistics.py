# SPDX-License-Identifier: Apache-2.0
"""Compute times and ratios of configurations, and their intervals. docs/method.md explains the methods."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

MIN_RUNS = 3  # per configuration, for an interval and a verdict
CONFIDENCE = 0.95  # of the intervals
POWER = 0.9  # share of the comparisons in which a difference of `detectable` is found
SIGNIFICANCE = 0.01  # at 0.05, two or three of 50 equal configurations would be called different
NO_DIFFERENCE = "cannot be told apart"
# The interval does not contain 1, and p is above SIGNIFICANCE.
TOO_NOISY = "varied too much to be ranked"
UNRANKED = (NO_DIFFERENCE, TOO_NOISY)


@dataclass(frozen=True)
class Ratio:
    """Time of one configuration divided by the time of another. Its spread is unknown for fewer than MIN_RUNS."""

    value: float
    runs: int  # of the side that has fewer
    interval: tuple[float, float] | None = None  # of 95 %
    p: float = math.nan  # the probability that two equal configurations differ at least as much
    # The smallest slowdown (0.05: by 5 %) that nine of ten comparisons would find.
    detectable: float | None = None
    is_disturbed: bool = False  # a side has disturbed runs only, so there is no verdict

    @property
    def verdict(self) -> str:
        """Return "faster", "slower", NO_DIFFERENCE, TOO_NOISY, or that there are too few runs."""
        if self.is_disturbed:
            return "disturbed: no verdict"
        if self.interval is None:
            runs = "one run" if self.runs == 1 else f"{self.runs} runs"
            return f"{runs}: no verdict"
        if self.p >= SIGNIFICANCE:
            low, high = self.interval
            return NO_DIFFERENCE if low <= 1 <= high else TOO_NOISY
        return "slower" if self.value > 1 else "faster"


def typical_seconds(run_seconds: Sequence[float]) -> float:
    """Return the geometric mean of the times of runs."""
    logarithms = np.log(run_seconds)
    return float(np.exp(logarithms.mean()))


def interval(run_seconds: Sequence[float]) -> tuple[float, float] | None:
    """Return the ends of the 95 % interval of `typical_seconds`, by Student's t; None for fewer than MIN_RUNS."""
    return ratio(run_seconds, [1.0] * len(run_seconds), paired=True).interval


def ratio(run_seconds: Sequence[float], baseline: Sequence[float], paired: bool = False) -> Ratio:
    """Return how many times as long one configuration takes as another, by the logarithms of the times of their runs.

    The test is Welch's; for paired runs, which met nearly the same conditions, it is Student's of the pairs' ratios.
    """
    # Importing scipy takes half a second, which a run does not need.
    from scipy.stats import ttest_ind, ttest_rel

    ours = np.log(run_seconds)
    theirs = np.log(baseline)
    difference = ours.mean() - theirs.mean()
    value = float(np.exp(difference))
    runs = min(len(ours), len(theirs))
    if runs < MIN_RUNS:
        return Ratio(value, runs)
    compared = [ours - theirs] if paired else [ours, theirs]
    # Synthetic records have no variance.
    if not any(map(np.ptp, compared)):
        return Ratio(value, runs, (value, value), float(value == 1), 0.0)
    outcome = ttest_rel(ours, theirs) if paired else ttest_ind(ours, theirs, equal_var=False)
    interval = outcome.confidence_interval(CONFIDENCE)
    low, high = map(float, np.exp(interval))
    return Ratio(
        value,
        runs,
        interval=(low, high),
        p=float(outcome.pvalue),
        detectable=find_detectable(interval, outcome.df),
    )


def find_detectable(interval: Any, freedom: float) -> float:
    """Return the smallest slowdown that is found with a probability of POWER.

    `interval` has the ends of a logarithmic one, and `freedom` is the degrees of freedom of its test.
    """
    from scipy.stats import t

    quantile = partial(t.ppf, df=freedom)
    half_width = (interval.high - interval.low) / 2
    error = half_width / quantile((1 + CONFIDENCE) / 2)
    needed_errors = quantile(1 - SIGNIFICANCE / 2) + quantile(POWER)
    return float(np.expm1(error * needed_errors))
