# SPDX-License-Identifier: Apache-2.0
"""Decide how long the warm-up is, and where iterations are verified: the groups of iterations of a run."""

import time
from collections.abc import Callable, Iterator
from statistics import fmean, median

from dataflow.plan.options import MIN_KEPT_GROUPS, MIN_WARMUP_GROUPS
from dataflow.plan.plan import Plan

# In the steady state, they take as long as as many before them.
SETTLED_GROUPS = MIN_WARMUP_GROUPS // 2
MAX_SETTLED_CHANGE = 0.1  # of their median time, and of the page faults that the next ones save
FAULT_SECONDS = 3e-6  # of a page fault. In campaigns, those of a copy took 1.2 µs, and those of a heap up to 11 µs
MIN_FAULTS = 100  # per iteration; fewer take less than 0.3 ms
MAX_WARMUP_SECONDS = 30
MAX_KEPT_WARMUP_SECONDS = 60  # if processes keep memory


class WarmUp:
    """Decide when the warm-up is over: after a fixed number of iterations, or when times and page faults settle.

    If processes keep the memory that they free, their heaps still grow now and then, which causes many page faults at
    once. Then it goes on until there was no such burst in MIN_KEPT_GROUPS groups in a row.
    """

    def __init__(
        self,
        is_fixed: bool,
        keeps_memory: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_fixed = is_fixed
        self.keeps_memory = keeps_memory
        self.clock = clock
        self.begin = clock()
        self.min_groups = MIN_KEPT_GROUPS if keeps_memory else MIN_WARMUP_GROUPS
        self.max_seconds = MAX_KEPT_WARMUP_SECONDS if keeps_memory else MAX_WARMUP_SECONDS
        self.seconds: list[float] = []  # per iteration of each group
        self.faults: list[float] = []  # page faults per iteration of each group
        self.settled: bool | None = None  # None: unknown, because the number is fixed

    def is_over(self) -> bool:
        """Return whether timed iterations can begin, and set `settled`; False if the number is fixed.

        It is over when times and page faults have settled, or after `max_seconds` with at least `min_groups` groups.
        The caller ends a warm-up of a fixed number.
        """
        if self.is_fixed:
            return False
        has_enough = len(self.seconds) >= self.min_groups
        self.settled = has_enough and self._has_settled()
        if self.settled or not has_enough:
            return self.settled
        return self.clock() - self.begin > self.max_seconds

    def _has_settled(self) -> bool:
        """Return whether the last groups took as long as those before them, and saved no page faults.

        If processes keep memory, the last ones must be without a burst of page faults, too.
        """
        before = slice(-2 * SETTLED_GROUPS, -SETTLED_GROUPS)
        last = slice(-SETTLED_GROUPS, None)
        old_seconds = median(self.seconds[before])
        new_seconds = median(self.seconds[last])
        old_faults = fmean(self.faults[before])
        new_faults = fmean(self.faults[last])
        saved_faults = old_faults - new_faults
        max_saved_faults = max(MAX_SETTLED_CHANGE * old_faults, MIN_FAULTS)
        change = abs(new_seconds - old_seconds)
        max_change = MAX_SETTLED_CHANGE * old_seconds
        is_steady = change <= max_change and saved_faults <= max_saved_faults
        return is_steady and not (self.keeps_memory and self._has_burst())

    def _has_burst(self) -> bool:
        """Return whether one of the last groups had page faults, above their median, that slow its iterations down."""
        faults = self.faults[-MIN_KEPT_GROUPS:]
        seconds = median(self.seconds[-MIN_KEPT_GROUPS:])
        max_more_faults = max(MAX_SETTLED_CHANGE * seconds / FAULT_SECONDS, MIN_FAULTS)
        return max(faults) - median(faults) > max_more_faults


def iteration_groups(plan: Plan, warm_up: WarmUp) -> Iterator[tuple[range, bool]]:
    """Yield the iterations between two verifications: the first one alone, then the warm-up, then the timed ones.

    The second value is whether they are timed.
    """
    yield range(1, 2), False
    options = plan.options
    number = 2
    stop = number + plan.max_warmup
    while not warm_up.is_over() and number < stop:
        end = min(number + options.in_flight, stop)
        yield range(number, end), False
        number = end
    stop = number + options.iterations
    size = options.group_size
    for first in range(number, stop, size):
        end = min(first + size, stop)
        yield range(first, end), True
