# SPDX-License-Identifier: Apache-2.0
"""Find processes whose private memory grows as long as the program runs."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import correlation, linear_regression

from raymeter.memory.processes import Sample

MIN_SAMPLES = 4
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
    if len(samples) < MIN_SAMPLES:
        return None
    first = samples[0]
    last = samples[-1]
    if last.private - first.private < MIN_BYTES:
        return None
    times = [sample.time - first.time for sample in samples]
    sizes = [float(sample.private) for sample in samples]
    if correlation(times, sizes) < MIN_CORRELATION:
        return None
    slope = linear_regression(times, sizes).slope
    return Growth(last.process, last.name, slope, first.private, last.private)
