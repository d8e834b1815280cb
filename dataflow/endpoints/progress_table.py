# SPDX-License-Identifier: Apache-2.0
"""Share every worker's progress through memory that the supervisor can read, whatever state the workers are in.

The file "progress" of the run's folder has 8-byte integers: phase, iteration started last, iteration ended last; then
for each worker its process and the number of the message that it received last. They are followed by start and end of
every iteration as doubles, in seconds of the driver's clock.

A process is its id in the lowest bits, and above them a number that stands for the place where this id is valid: the
machine and the namespace of process ids. Containers and machines can share the folder, and each counts from 1. Drivers
of earlier versions (--against) write 0, which means this place.
"""

import hashlib
import mmap
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

STARTING, ITERATING, ENDING = range(3)
_HEADER = 3
_PID_BITS = 24  # the largest process id of Linux is 2**22
_PLACE_BITS = 39  # both together stay below the sign of an integer


@cache
def own_place() -> int:
    """Return a number above 0 that tells this machine and namespace of process ids from others."""
    parts = [platform.node()]
    with suppress(OSError):  # a sandbox may hide /proc
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        parts.append(str(os.stat("/proc/self/ns/pid").st_ino))
    digest = hashlib.sha256("\n".join(parts).encode()).digest()
    return int.from_bytes(digest[:8]) % (2**_PLACE_BITS - 1) + 1


class ProgressTable:
    """The table of a run, as the supervisor makes it, or as a worker opens it."""

    def __init__(
        self, folder: Path, names: Sequence[str], iterations: int, worker: str = ""
    ) -> None:
        """Make the table's file, or open it as this worker, and write its process into it."""
        self.names = list(names)
        path = folder / "progress"
        end = _HEADER + 2 * len(names)
        size = 8 * (end + 2 * iterations)
        if not worker or path.is_file():
            memory = _map_file(path, size, is_new=not worker)
        else:  # on a machine without the run's folder, it is lost
            memory = memoryview(bytearray(size))
        self.integers = memory.cast("q")
        self.processes_written = self.integers[_HEADER:end:2]
        self.received_numbers = self.integers[_HEADER + 1 : end : 2]
        self.times = self.integers[end:].cast("B").cast("d")
        if worker:
            self.worker_index = self.names.index(worker)
            self.add_process(worker, os.getpid(), own_place())

    def add_process(self, name: str, pid: int, place: int) -> None:
        """Say which process a worker is, and in which place its id is valid."""
        self.processes_written[self.names.index(name)] = place << _PID_BITS | pid

    def received(self, number: int) -> None:
        self.received_numbers[self.worker_index] = number

    @property
    def phase(self) -> int:
        return self.integers[0]

    @phase.setter
    def phase(self, phase: int) -> None:
        self.integers[0] = phase

    @property
    def last_begun(self) -> int:
        return self.integers[1]

    @property
    def last_ended(self) -> int:
        return self.integers[2]

    def began(self, number: int) -> None:
        self.integers[1] = number

    def ended(self, number: int, start: float, end: float) -> None:
        self.times[2 * number - 2] = start
        self.times[2 * number - 1] = end
        self.integers[2] = number

    def iteration(self, number: int) -> tuple[float, float]:
        """Return start and end of an iteration; zeros until it has ended."""
        return self.times[2 * number - 2], self.times[2 * number - 1]

    def interval(self, first: int, last: int) -> tuple[float, float]:
        """Return the start of one iteration and the end of another one."""
        return self.iteration(first)[0], self.iteration(last)[1]

    def ended_iterations(self) -> list[tuple[float, float]]:
        """Return start and end of all iterations that have ended."""
        return [self.iteration(number) for number in range(1, 1 + self.last_ended)]

    @property
    def progress(self) -> tuple[int, int, int]:
        """Return the phase, the iteration started last and the iteration ended last."""
        return self.phase, self.last_begun, self.last_ended

    def processes(self) -> dict[str, int]:
        """Return the process id of each worker whose id is valid here; not those of other machines or containers."""
        pids = {}
        for name, written in zip(self.names, self.processes_written, strict=True):
            place, pid = divmod(written, 2**_PID_BITS)
            if pid and place in (0, own_place()):
                pids[name] = pid
        return pids

    def numbers(self) -> dict[str, int]:
        """Return the number of the message that each worker received last."""
        return dict(zip(self.names, self.received_numbers, strict=True))


def _map_file(path: Path, size: int, is_new: bool) -> memoryview:
    """Return the memory of a file of this size, which all processes share."""
    with path.open("x+b" if is_new else "r+b") as file:
        file.truncate(size)
        return memoryview(mmap.mmap(file.fileno(), size))
