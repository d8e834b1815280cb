# SPDX-License-Identifier: Apache-2.0
"""Estimate what a page fault takes inside iterations: those with more page faults take longer (pure functions).

A copy into new memory gives a price, too, but of memory that was free for a moment only. Where processes keep their
memory, page faults are few, and can have another price.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import sqrt
from statistics import fmean

from dataflow.records.schema import Run

MIN_ITERATIONS = 20  # of all runs, for an estimate


@dataclass(frozen=True)
class FaultPrice:
    """By how many seconds iterations with one more page fault take longer: the slope, with its standard error."""

    seconds: float
    error: float

    @property
    def is_known(self) -> bool:
        """Return whether the standard error is at most a fifth of the price."""
        return 0 <= 5 * self.error <= self.seconds


def estimate_price(runs: Iterable[Run]) -> FaultPrice | None:
    """Return the least-squares slope of the times over the page faults, with a level of its own for each run.

    None for too few iterations, or if those of each run have equally many page faults. Runs that verify several
    iterations at once have no page faults per iteration, and do not count.
    """
    counted = [run for run in runs if run.seconds and len(run.group_faults) == len(run.seconds)]
    faults = [*chain.from_iterable(deviations(run.group_faults) for run in counted)]
    seconds = [*chain.from_iterable(deviations(run.seconds) for run in counted)]
    spread = sum(count**2 for count in faults)
    freedom = len(seconds) - len(counted) - 1
    if len(seconds) < MIN_ITERATIONS or not spread:
        return None
    pairs = [*zip(faults, seconds, strict=True)]
    slope = sum(count * time for count, time in pairs) / spread
    rest = sum((time - slope * count) ** 2 for count, time in pairs)
    return FaultPrice(slope, sqrt(rest / freedom / spread))


def deviations(values: Sequence[float]) -> list[float]:
    """Return by how much each value is above the mean."""
    mean = fmean(values)
    return [value - mean for value in values]
