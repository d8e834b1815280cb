"""Choose the iterations of a run: a first one, a warm-up until times and page faults settle, and the timed ones."""

import time
from collections.abc import Callable, Iterator
from statistics import fmean, median

from dataflow.plan.options import MIN_WARMUP_GROUPS
from dataflow.plan.plan import Plan

SETTLED_GROUPS = MIN_WARMUP_GROUPS // 2  # in the steady state, they take as long as as many before them
MAX_SETTLED_CHANGE = 0.1  # of their median time, and of the page faults that the next ones save
MIN_FAULTS = 100  # per iteration; fewer take less than 0.3 ms
MAX_WARMUP_SECONDS = 30


class WarmUp:
    """Decide when the warm-up is over: after a fixed number of iterations, or when times and page faults settle."""

    def __init__(self, is_fixed: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.is_fixed, self.clock, self.begin = is_fixed, clock, clock()
        self.seconds: list[float] = []  # per iteration of each group
        self.faults: list[float] = []  # page faults per iteration of each group
        self.settled: bool | None = None  # None: unknown, because the number is fixed

    def is_over(self) -> bool:
        if self.is_fixed:
            return False
        self.settled = False
        if len(self.seconds) < 2 * SETTLED_GROUPS:
            return False
        before, last = slice(-2 * SETTLED_GROUPS, -SETTLED_GROUPS), slice(-SETTLED_GROUPS, None)
        old_seconds, new_seconds = median(self.seconds[before]), median(self.seconds[last])
        old_faults, new_faults = fmean(self.faults[before]), fmean(self.faults[last])
        is_falling = old_faults - new_faults > max(MAX_SETTLED_CHANGE * old_faults, MIN_FAULTS)
        self.settled = abs(new_seconds - old_seconds) <= MAX_SETTLED_CHANGE * old_seconds and not is_falling
        return self.settled or self.clock() - self.begin > MAX_WARMUP_SECONDS


def iteration_groups(plan: Plan, warm_up: WarmUp) -> Iterator[tuple[range, bool]]:
    """Yield the iterations between two verifications: the first one alone, then the warm-up, then the timed ones.

    The second value is whether they are timed.
    """
    yield range(1, 2), False
    options, number, stop = plan.options, 2, 2 + plan.max_warmup
    while not warm_up.is_over() and number < stop:
        yield range(number, min(number + options.in_flight, stop)), False
        number = min(number + options.in_flight, stop)
    stop = number + options.iterations
    for first in range(number, stop, options.group_size):
        yield range(first, min(first + options.group_size, stop)), True
