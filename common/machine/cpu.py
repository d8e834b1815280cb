"""CPU time of a run: of the worker and everything that descends from it, Ray's own processes among them."""

import os
import time
from contextlib import suppress

import psutil

CPUCLOCK_SCHED = 2  # Linux, include/linux/posix-timers.h: the CPU clock of process p has the number (~p << 3) | 2


class CpuTime:
    """Seconds of CPU between `start` and `stop`, added up.

    Another process's clock costs a microsecond to read, and on a running process moves on with the kernel's ticks.
    Processes that begin in between count from their beginning; those that end in between do not count.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._pids = _family()
        self._began: dict[int, float] = {}

    def start(self) -> None:
        self._began = _clocks(self._pids)

    def stop(self) -> None:
        found = _clocks(self._pids)
        # Who began meanwhile is looked for last: that takes longer than all clocks.
        self._pids = _family()
        found |= _clocks([pid for pid in self._pids if pid not in found])
        self.seconds += sum(clock - self._began.get(pid, 0.0) for pid, clock in found.items())


def _family() -> list[int]:
    """This process and its descendants."""
    return [os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))]


def _clocks(pids: list[int]) -> dict[int, float]:
    found = {}
    for pid in pids:
        with suppress(OSError):  # it has ended
            found[pid] = time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)
    return found
