"""Measure the CPU time of a run, and what else uses the machine meanwhile."""

import os
import time
from contextlib import suppress

import psutil

from dataflow.records.machine import read_cpu_seconds

CPUCLOCK_SCHED = 2  # Linux, include/linux/posix-timers.h: the CPU clock of process p has the number (~p << 3) | 2


class CpuTime:
    """Add up the CPU seconds of this process and its descendants, and those between `start` and `stop`.

    To read the clock of another process takes a microsecond; the clock of a running process advances with the ticks of
    the kernel. Processes that begin between `start` and `stop` count from their beginning, and processes that end count
    until their clock was read last.
    """

    def __init__(self) -> None:
        self.seconds, self._total = 0.0, 0.0
        self._pids: list[int] = []
        self._clocks: dict[int, float] = {}
        self._begin = self._read_machine()

    def start(self) -> None:
        self._advance(self._pids)

    def stop(self) -> None:
        self.seconds += self._advance(self._pids)
        # New processes are searched last, because the search takes longer than reading all clocks.
        known, self._pids = set(self._pids), _process_tree()
        self.seconds += self._advance([pid for pid in self._pids if pid not in known])

    def other_cores(self) -> tuple[float, float]:
        """Return the cores that other programs, and other virtual machines, have used since this was made.

        The kernel counts the time of all processes in ticks of 10 ms per core, so short periods are not precise.
        """
        seconds, busy, steal, own = (now - then for now, then in zip(self._read_machine(), self._begin, strict=True))
        return round(max(0.0, busy - own) / seconds, 3), round(steal / seconds, 3)

    def _read_machine(self) -> tuple[float, float, float, float]:
        """Return the seconds of: clock, all processes of the machine, hypervisor, and this run."""
        self._pids = _process_tree()
        self._advance(self._pids)
        return time.monotonic(), *read_cpu_seconds(), self._total

    def _advance(self, pids: list[int]) -> float:
        """Read the clocks of these processes, and return the seconds since they were read last."""
        added = 0.0
        for pid in pids:
            with suppress(OSError):  # the process has ended
                seconds, earlier = time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED), self._clocks.get(pid, 0.0)
                added += seconds - earlier if earlier <= seconds else seconds  # another process has this id now
                self._clocks[pid] = seconds
        self._total += added
        return added


def _process_tree() -> list[int]:
    """Return the process ids of this process and its descendants."""
    return [os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))]
