"""Find processes whose private memory grows as long as the program runs."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import correlation, linear_regression

from raymeter.memory.processes import Sample

START_SHARE = 0.3  # of a program's time, which is left out: imports, and the first step
MIN_SAMPLES = 6
MIN_CORRELATION = 0.9  # of memory and time: it grows all the time, and not in one step
MIN_BYTES = 50 * 10**6  # by which it must have grown


@dataclass(frozen=True)
class Growth:
    """The private memory of a process grows by so many bytes per second."""

    pid: int
    name: str
    bytes_per_second: float
    first: int
    last: int


def find_growth(samples: Sequence[Sample]) -> list[Growth]:
    """Return the processes that grow, the fastest first."""
    by_process: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_process[sample.pid].append(sample)
    found = [growth_of(group) for group in by_process.values()]
    growing = [growth for growth in found if growth is not None]
    growing.sort(key=lambda growth: -growth.bytes_per_second)
    return growing


def growth_of(samples: Sequence[Sample]) -> Growth | None:
    """Return the growth of one process; None if it does not grow, or not all the time."""
    duration = samples[-1].time - samples[0].time
    begin = samples[0].time + START_SHARE * duration
    later = [sample for sample in samples if sample.time >= begin]
    if len(later) < MIN_SAMPLES:
        return None
    first = later[0]
    last = later[-1]
    if last.private - first.private < MIN_BYTES:
        return None
    times = [sample.time - begin for sample in later]
    sizes = [float(sample.private) for sample in later]
    if correlation(times, sizes) < MIN_CORRELATION:
        return None
    slope = linear_regression(times, sizes).slope
    return Growth(last.pid, last.name, slope, first.private, last.private)
