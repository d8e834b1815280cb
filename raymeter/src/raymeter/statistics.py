# SPDX-License-Identifier: Apache-2.0
"""Compare paired runs: how many times as fast, with the interval that contains it with a probability of 95 %."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

# The 97.5 % quantiles of Student's t distribution by degrees of freedom.
# Source: NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.6.7.2.
# fmt: off
T_QUANTILES = {
    1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228,
    12: 2.179, 15: 2.131, 20: 2.086, 30: 2.042, 60: 2.000,
}
# fmt: on
NEGLIGIBLE = 0.02  # a change of the median that is called none, even if the interval excludes 1


@dataclass(frozen=True)
class Ratio:
    """How many times as fast the runs after a change are. Without an interval, `low` and `high` are None."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def has_interval(self) -> bool:
        return self.low is not None and self.high is not None

    @property
    def verdict(self) -> str:
        """Return "faster", "slower", "no difference", or "unknown" without an interval."""
        if self.low is None or self.high is None:
            return "unknown"
        contains_one = self.low <= 1 <= self.high
        is_negligible = abs(self.value - 1) < NEGLIGIBLE
        if contains_one or is_negligible:
            return "no difference"
        return "faster" if self.value > 1 else "slower"


def t_quantile(degrees: int) -> float:
    """Return the 97.5 % quantile; between two rows of the table that of the smaller one, which is wider."""
    if degrees < 1:
        raise ValueError(f"{degrees} degrees of freedom: give two pairs or more")
    rows = [row for row in T_QUANTILES if row <= degrees]
    return T_QUANTILES[max(rows)]


def compare_pairs(before: Sequence[float], after: Sequence[float]) -> Ratio:
    """Return the geometric mean of before/after of paired runs.

    Of ratios, the logarithms are near a normal distribution, so the interval is that of Student's t on the logarithms.
    One pair has no interval. Raise ValueError for no pairs, lists of two lengths, or values that are not positive.
    """
    if not before or len(before) != len(after):
        raise ValueError(f"{len(before)} runs before and {len(after)} after: give pairs")
    if min(*before, *after) <= 0:
        raise ValueError("a time of 0 cannot be compared")
    logarithms = [math.log(earlier / later) for earlier, later in zip(before, after, strict=True)]
    center = mean(logarithms)
    if len(logarithms) == 1:
        return Ratio(math.exp(center))
    error = stdev(logarithms) / math.sqrt(len(logarithms))
    margin = t_quantile(len(logarithms) - 1) * error
    return Ratio(math.exp(center), math.exp(center - margin), math.exp(center + margin))


def describe_ratio(ratio: Ratio) -> str:
    """Return "1.2 to 1.5 times as fast", or what else there is to say about a ratio.

    If it is near 1 for sure, that is how far from 1 it may be: "a difference of at most 1 %".
    """
    if ratio.low is None or ratio.high is None:
        return describe_one_pair(ratio.value)
    below = abs(ratio.low - 1)
    above = abs(ratio.high - 1)
    largest = max(below, above)
    if largest < NEGLIGIBLE:
        percent = max(1, math.ceil(100 * largest))
        return f"a difference of at most {percent} %"
    low = f"{ratio.low:.2f}"
    high = f"{ratio.high:.2f}"
    interval = low if low == high else f"{low} to {high}"
    return f"{interval} times as fast"


def describe_one_pair(value: float) -> str:
    one_run = "one run each: no interval"
    difference = abs(value - 1)
    if difference < NEGLIGIBLE:
        percent = round(100 * NEGLIGIBLE)
        return f"a difference of less than {percent} %, {one_run}"
    return f"{value:.2f} times as fast, {one_run}"
