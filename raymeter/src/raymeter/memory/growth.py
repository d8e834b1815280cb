# SPDX-License-Identifier: Apache-2.0
"""Find processes whose private memory grows as long as the program runs."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import correlation, linear_regression

from raymeter.memory.processes import Sample

MIN_SAMPLES = 4  # of private memory: three of a cache that fills lie nearly on a line, too
MIN_CORRELATION = 0.95  # of memory and time: it grows all the time, and not in one step
MIN_BYTES = 50 * 10**6  # by which it must have grown


@dataclass(frozen=True)
class Growth:
    """The private memory of a process grows by so many bytes per second."""

    process: str
    name: str
    bytes_per_second: float
    first: int
    last: int


def find_growth(samples: Sequence[Sample], begin: float, end: float) -> list[Growth]:
    """Return the processes that grow between two times, the fastest first."""
    by_process: dict[tuple[str, int], list[Sample]] = defaultdict(list)
    for sample in samples:
        if begin <= sample.time <= end:
            by_process[sample.process, sample.pid].append(sample)
    found = [growth_of(group) for group in by_process.values()]
    growing = [growth for growth in found if growth is not None]
    growing.sort(key=lambda growth: -growth.bytes_per_second)
    return growing


def growth_of(samples: Sequence[Sample]) -> Growth | None:
    """Return the growth of one process; None if it does not grow, or not all the time."""
    times = [sample.time for sample in samples]
    sizes = [sample.private for sample in samples]
    slope = find_slope(times, sizes, MIN_SAMPLES)
    if slope is None:
        return None
    first = samples[0]
    last = samples[-1]
    return Growth(last.process, last.name, slope, first.private, last.private)


def find_slope(times: Sequence[float], sizes: Sequence[int], min_samples: int) -> float | None:
    """Return by how many bytes something grows per second, from its sizes at times in order.

    Return None if it does not grow all the time, or by less than MIN_BYTES in all, or with fewer than `min_samples`.
    """
    if len(times) < min_samples or sizes[-1] - sizes[0] < MIN_BYTES:
        return None
    since = [time - times[0] for time in times]
    if correlation(since, sizes) < MIN_CORRELATION:
        return None
    return linear_regression(since, sizes).slope
