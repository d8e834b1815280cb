"""Share every worker's progress through memory that the supervisor can read, whatever state the workers are in.

The file "progress" of the run's folder has 8-byte integers: phase, iteration started last, iteration ended last; then
for each worker its process id and the number of the message that it received last. They are followed by start and end
of every iteration as doubles, in seconds of the driver's clock.
"""

import mmap
import os
from collections.abc import Sequence
from pathlib import Path

STARTING, ITERATING, ENDING = range(3)
_HEADER = 3


class ProgressTable:
    def __init__(self, memory: mmap.mmap | bytearray, names: Sequence[str]) -> None:
        self.names, self.worker_index = list(names), 0
        self.integers = memoryview(memory).cast("q")
        end = _HEADER + 2 * len(names)
        self.pids, self.received_numbers = self.integers[_HEADER:end:2], self.integers[_HEADER + 1 : end : 2]
        self.times = self.integers[end:].cast("B").cast("d")

    @classmethod
    def create(cls, folder: Path, names: Sequence[str], iterations: int) -> "ProgressTable":
        with (folder / "progress").open("x+b") as file:
            file.truncate(8 * (_HEADER + 2 * len(names) + 2 * iterations))
            return cls(mmap.mmap(file.fileno(), 0), names)

    @classmethod
    def join(cls, folder: Path, worker: str, names: Sequence[str], iterations: int) -> "ProgressTable":
        """Return the table of a worker. On a machine without the run's folder, all that is written is lost."""
        memory: mmap.mmap | bytearray = bytearray(8 * (_HEADER + 2 * len(names) + 2 * iterations))
        if (folder / "progress").is_file():
            with (folder / "progress").open("r+b") as file:
                memory = mmap.mmap(file.fileno(), 0)
        table = cls(memory, names)
        table.worker_index = table.names.index(worker)
        table.pids[table.worker_index] = os.getpid()
        return table

    def received(self, number: int) -> None:
        self.received_numbers[self.worker_index] = number

    @property
    def phase(self) -> int:
        return self.integers[0]

    @phase.setter
    def phase(self, phase: int) -> None:
        self.integers[0] = phase

    def began(self, number: int) -> None:
        self.integers[1] = number

    def ended(self, number: int, start: float, end: float) -> None:
        self.times[2 * number - 2], self.times[2 * number - 1] = start, end
        self.integers[2] = number

    def iteration(self, number: int) -> tuple[float, float]:
        """Return start and end of an iteration; zeros until it has ended."""
        return self.times[2 * number - 2], self.times[2 * number - 1]

    @property
    def progress(self) -> tuple[int, int, int]:
        """Return the phase, the iteration started last and the iteration ended last."""
        return self.integers[0], self.integers[1], self.integers[2]

    def processes(self) -> dict[str, int]:
        return {name: pid for name, pid in zip(self.names, self.pids, strict=True) if pid}

    def numbers(self) -> dict[str, int]:
        return dict(zip(self.names, self.received_numbers, strict=True))
