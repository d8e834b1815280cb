"""Measure what the machine does besides a run, and the CPU time of the run itself."""

import os
import time
from contextlib import suppress
from pathlib import Path

import psutil

CPU_SAMPLE_SECONDS = 0.1
CGROUPS, MY_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
CPUCLOCK_SCHED = 2  # Linux, include/linux/posix-timers.h: the CPU clock of process p has the number (~p << 3) | 2


def busy_cores() -> float:
    """Return how many cores other programs use. Call it before the run begins; it takes 0.1 s."""
    return psutil.cpu_percent(interval=CPU_SAMPLE_SECONDS) / 100 * (psutil.cpu_count() or 1)


def throttled_seconds() -> float | None:
    """Return for how long the CPU limit of this container has stopped processes so far; None if it is unknown."""
    for line in MY_CGROUPS.read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            folder, counter, unit = CGROUPS, "throttled_usec", 1e-6  # cgroup v2
        elif "cpu" in controllers.split(","):
            folder, counter, unit = CGROUPS / "cpu", "throttled_time", 1e-9  # cgroup v1
        else:
            continue
        with suppress(OSError, KeyError, ValueError):
            lines = (folder / group.lstrip("/") / "cpu.stat").read_text().splitlines()
            return int(dict(line.split() for line in lines)[counter]) * unit
    return None


class CpuTime:
    """Add up the CPU seconds of this process and its descendants between `start` and `stop`.

    To read the clock of another process takes a microsecond; the clock of a running process advances with the ticks of
    the kernel. Processes that begin between `start` and `stop` count from their beginning; those that end do not count.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._pids = _process_tree()
        self._seconds_at_start: dict[int, float] = {}

    def start(self) -> None:
        self._seconds_at_start = _cpu_seconds(self._pids)

    def stop(self) -> None:
        seconds = _cpu_seconds(self._pids)
        # New processes are searched last, because the search takes longer than reading all clocks.
        self._pids = _process_tree()
        seconds |= _cpu_seconds([pid for pid in self._pids if pid not in seconds])
        self.seconds += sum(value - self._seconds_at_start.get(pid, 0.0) for pid, value in seconds.items())


def _process_tree() -> list[int]:
    """Return the process ids of this process and its descendants."""
    return [os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))]


def _cpu_seconds(pids: list[int]) -> dict[int, float]:
    seconds = {}
    for pid in pids:
        with suppress(OSError):  # the process has ended
            seconds[pid] = time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)
    return seconds
