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
    """The table of a run, as the supervisor makes it, or as a worker opens it."""

    def __init__(
        self, folder: Path, names: Sequence[str], iterations: int, worker: str = ""
    ) -> None:
        path, end = folder / "progress", _HEADER + 2 * len(names)
        size = 8 * (end + 2 * iterations)
        memory: mmap.mmap | bytearray = bytearray(
            size
        )  # on a machine without the run's folder, it is lost
        if not worker or path.is_file():
            with path.open("r+b" if worker else "x+b") as file:
                file.truncate(size)
                memory = mmap.mmap(file.fileno(), size)
        self.names, self.integers = list(names), memoryview(memory).cast("q")
        self.pids, self.received_numbers = (
            self.integers[_HEADER:end:2],
            self.integers[_HEADER + 1 : end : 2],
        )
        self.times = self.integers[end:].cast("B").cast("d")
        if worker:
            self.worker_index = self.names.index(worker)
            self.pids[self.worker_index] = os.getpid()

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
