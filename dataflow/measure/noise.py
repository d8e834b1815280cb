"""Measure what the machine does besides a run, and the CPU time of the run itself."""

import os
import time
from contextlib import suppress

import psutil

from dataflow.records.machine import read_cpu_seconds

CPUCLOCK_SCHED = 2  # Linux, include/linux/posix-timers.h: the CPU clock of process p has the number (~p << 3) | 2


def loopback_bytes() -> int:
    """Return the bytes that the loopback interface has received since the machine started."""
    return psutil.net_io_counters(pernic=True)["lo"].bytes_recv


class CpuTime:
    """Add up the CPU seconds of this process and its descendants, and those between `start` and `stop`.

    To read the clock of another process takes a microsecond; the clock of a running process advances with the ticks of
    the kernel. Processes that begin between `start` and `stop` count from their beginning, and processes that end count
    until their clock was read last.
    """

    def __init__(self) -> None:
        self.seconds, self._total = 0.0, 0.0
        self._pids = _process_tree()
        self._clocks: dict[int, float] = {}

    def start(self) -> None:
        self._advance(self._pids)

    def stop(self) -> None:
        self.seconds += self._advance(self._pids)
        # New processes are searched last, because the search takes longer than reading all clocks.
        known, self._pids = set(self._pids), _process_tree()
        self.seconds += self._advance([pid for pid in self._pids if pid not in known])

    def total(self) -> float:
        """Return the seconds since the processes began, between `start` and `stop` and otherwise."""
        self._pids = _process_tree()
        self._advance(self._pids)
        return self._total

    def _advance(self, pids: list[int]) -> float:
        """Read the clocks of these processes, and return the seconds since they were read last."""
        added = 0.0
        for pid in pids:
            with suppress(OSError):  # the process has ended
                seconds, earlier = _cpu_seconds(pid), self._clocks.get(pid, 0.0)
                added += seconds - earlier if earlier <= seconds else seconds  # another process has this id now
                self._clocks[pid] = seconds
        self._total += added
        return added


class OtherLoad:
    """Measure the cores that other programs and other virtual machines use from now until `stop`.

    The kernel counts the time of all processes in ticks of 10 ms per core, so short periods are not precise.
    """

    def __init__(self, cpu_time: CpuTime) -> None:
        self._cpu_time = cpu_time
        self._start = self._read()

    def stop(self) -> tuple[float, float]:
        """Return the cores of processes that are no descendants of this one, and those that the hypervisor took."""
        seconds, busy, steal, own = (now - before for now, before in zip(self._read(), self._start, strict=True))
        return round(max(0.0, busy - own) / seconds, 3), round(steal / seconds, 3)

    def _read(self) -> tuple[float, float, float, float]:
        """Return the seconds of: clock, all processes of the machine, hypervisor, and this run."""
        busy, steal = read_cpu_seconds()
        return time.monotonic(), busy, steal, self._cpu_time.total()


def _process_tree() -> list[int]:
    """Return the process ids of this process and its descendants."""
    return [os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))]


def _cpu_seconds(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)
