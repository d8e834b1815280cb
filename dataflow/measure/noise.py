"""Measure what the machine does besides a run, and the CPU time of the run itself."""

import os
import time
from contextlib import suppress

import psutil

from dataflow.records.machine import control_groups, read_cpu_seconds
from dataflow.records.schema import Resources

CPUCLOCK_SCHED = 2  # Linux, include/linux/posix-timers.h: the CPU clock of process p has the number (~p << 3) | 2


def loopback_bytes() -> int:
    """Return the bytes that the loopback interface has received since the machine started."""
    return psutil.net_io_counters(pernic=True)["lo"].bytes_recv


def throttled_seconds() -> float | None:
    """Return for how long the CPU limit of this container has stopped processes so far; None if it is unknown."""
    for folder, version in control_groups("cpu"):
        counter, unit = ("throttled_usec", 1e-6) if version == 2 else ("throttled_time", 1e-9)
        with suppress(OSError, KeyError, ValueError):
            lines = (folder / "cpu.stat").read_text().splitlines()
            return int(dict(line.split() for line in lines)[counter]) * unit
    return None


def measure_resources(iteration: int) -> Resources:
    """Return what this process and its descendants have, now before this timed iteration."""
    memory, descriptors = 0, 0
    for pid in _process_tree():
        with suppress(psutil.Error):  # it has ended
            process = psutil.Process(pid)
            memory += process.memory_full_info().uss
            descriptors += process.num_fds()
    return Resources(iteration, memory, descriptors, psutil.disk_usage("/dev/shm").used)


class CpuTime:
    """Add up the CPU seconds of this process and its descendants, and those between `start` and `stop`.

    To read the clock of another process takes a microsecond; the clock of a running process advances with the ticks of
    the kernel. Processes that begin between `start` and `stop` count from their beginning. Processes that end count
    until their clock was read last: ChatLearn's driver makes new queue actors in every episode, and the old ones end.
    """

    def __init__(self) -> None:
        self.seconds, self._total = 0.0, 0.0
        self._pids = _process_tree()
        self._clocks: dict[int, float] = {}

    @property
    def has_lost_processes(self) -> bool:
        """Whether a process has ended; what it did after its clock was read last is unknown."""
        return bool(self._clocks.keys() - set(self._pids))

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
        clocks, added = _cpu_seconds(pids), 0.0
        for pid, seconds in clocks.items():
            earlier = self._clocks.get(pid, 0.0)
            added += seconds - earlier if earlier <= seconds else seconds  # another process has this id now
        self._clocks |= clocks
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
        """Return the cores of processes that are no descendants of this one, and those that the hypervisor took.

        The first value is what all cores did, without this run. If a process of this run has ended, it is the sum over
        the other processes, which does not see those of other containers.
        """
        begin, busy, steal, own, others = (now - before for now, before in zip(self._read(), self._start, strict=True))
        other_seconds = others if self._cpu_time.has_lost_processes else busy - own
        return round(max(0.0, other_seconds) / begin, 3), round(steal / begin, 3)

    def _read(self) -> tuple[float, float, float, float, float]:
        """Return the seconds of: clock, all processes of the machine, hypervisor, this run, and other processes."""
        busy, steal = read_cpu_seconds()
        own = self._cpu_time.total()
        return time.monotonic(), busy, steal, own, _seconds_of_others(_process_tree())


def _seconds_of_others(own: list[int]) -> float:
    """Return the CPU seconds of all processes but these, with their ended children."""
    times = [process.info["cpu_times"] for process in psutil.process_iter(["cpu_times"]) if process.pid not in own]
    return sum(t.user + t.system + t.children_user + t.children_system for t in times if t)


def _process_tree() -> list[int]:
    """Return the process ids of this process and its descendants."""
    return [os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))]


def _cpu_seconds(pids: list[int]) -> dict[int, float]:
    seconds = {}
    for pid in pids:
        with suppress(OSError):  # the process has ended
            seconds[pid] = time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)
    return seconds
