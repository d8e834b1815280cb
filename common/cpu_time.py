# SPDX-License-Identifier: Apache-2.0
"""Measure the CPU time of this process and its descendants, and what else used the cores of the machine."""

import os
import time
from contextlib import suppress
from typing import NamedTuple

import psutil

from common.record import ScriptRun

CPUCLOCK_SCHED = 2  # Linux, include/linux/posix-timers.h: the CPU clock of process p has the number (~p << 3) | 2


def read_cpu_seconds() -> tuple[float, float]:
    """Return the CPU seconds of all processes of the machine so far, and those that the hypervisor took from it."""
    cpu = psutil.cpu_times()
    return cpu.user + cpu.nice + cpu.system + cpu.irq + cpu.softirq, cpu.steal


class MachineUse(NamedTuple):
    """How the cores of the machine were used, each as a mean number of cores."""

    other_cores: float  # by other programs
    idle_cores: float
    steal_cores: float  # by other virtual machines


class CpuTime:
    """Add up the CPU seconds of this process and its descendants, and those between `start` and `stop`.

    Processes that begin between `start` and `stop` count from their beginning, and processes that end count until their
    clock was read last. To read the clock of another process takes a microsecond.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._total = 0.0
        self._pids: list[int] = []  # this process and its descendants
        self._pids_of_machine: list[int] = []  # when they were searched
        self._clocks: dict[int, float] = {}
        self._begin = self._read_machine()

    def start(self) -> None:
        # What processes have used that began since `stop` does not count. The search for them takes long, so it is left
        # out if no process of the machine has begun or ended.
        if psutil.pids() != self._pids_of_machine:
            self._search()
        self._advance(self._pids)

    def stop(self) -> None:
        self.seconds += self._advance(self._pids)
        # New processes are searched last, because the search takes longer than reading all clocks.
        known = set(self._pids)
        self._search()
        new = [pid for pid in self._pids if pid not in known]
        self.seconds += self._advance(new)

    def machine_use(self) -> MachineUse:
        """Return how the cores of the machine were used since this was made.

        The kernel counts the time of all processes in ticks of 10 ms per core, so short periods are not precise.
        """
        differences = zip(self._read_machine(), self._begin, strict=True)
        seconds, busy, steal, own = (now - then for now, then in differences)
        idle = (os.cpu_count() or 1) * seconds - busy - steal
        return MachineUse(
            other_cores=round(max(0.0, busy - own) / seconds, 3),
            idle_cores=round(max(0.0, idle) / seconds, 3),
            steal_cores=round(steal / seconds, 3),
        )

    def save_machine_use(self, run: ScriptRun) -> None:
        """Set in a run how the cores were used since this was made, which is before the first iteration."""
        use = self.machine_use()
        run.other_cores = use.other_cores
        run.idle_cores = use.idle_cores
        run.steal_cores = use.steal_cores

    def _read_machine(self) -> tuple[float, float, float, float]:
        """Return the seconds of: clock, all processes of the machine, hypervisor, and this run."""
        self._search()
        self._advance(self._pids)
        return time.monotonic(), *read_cpu_seconds(), self._total

    def _search(self) -> None:
        """Find the descendants of this process."""
        self._pids_of_machine = psutil.pids()
        descendants = psutil.Process().children(recursive=True)
        self._pids = [os.getpid(), *(child.pid for child in descendants)]

    def _advance(self, pids: list[int]) -> float:
        """Read the clocks of these processes, and return the seconds since they were read last."""
        added = 0.0
        for pid in pids:
            with suppress(OSError):  # the process has ended
                seconds = time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)
                earlier = self._clocks.get(pid, 0.0)
                if earlier > seconds:  # another process has this id now
                    earlier = 0.0
                added += seconds - earlier
                self._clocks[pid] = seconds
        self._total += added
        return added
