"""How far everybody is, in words of shared memory that a supervisor can read whatever happens to those who write.

Header, words of 8 bytes: phase, the trip handed over last, the trip collected last; then for each participant its
process id and the number that it received last; then the start and end of every trip, as doubles.
"""

import mmap
import os
from collections.abc import Sequence
from pathlib import Path

STARTING, TRIPS, ENDING = range(3)
_HEADER, _PARTICIPANT = 3, 2


class Board:
    """A file of the run's folder, mapped; where there is none (another machine), what is written is lost."""

    def __init__(self, words: memoryview, names: Sequence[str], me: str | None) -> None:
        self.words, self.names = words, list(names)
        self.own = _HEADER + _PARTICIPANT * self.names.index(me) if me else 0
        self.times = words[_HEADER + _PARTICIPANT * len(self.names) :].cast("B").cast("d")
        if me:
            words[self.own] = os.getpid()

    @classmethod
    def create(cls, folder: Path, names: Sequence[str], trips: int) -> "Board":
        size = 8 * (_HEADER + _PARTICIPANT * len(names) + 2 * trips)
        with (folder / "board").open("xb") as file:
            file.truncate(size)
        return cls(_map(folder / "board", size), names, None)

    @classmethod
    def join(cls, folder: Path, me: str, names: Sequence[str], trips: int) -> "Board":
        """The board as one of its participants writes it."""
        size = 8 * (_HEADER + _PARTICIPANT * len(names) + 2 * trips)
        path = folder / "board"
        return cls(_map(path, size) if path.is_file() else memoryview(bytearray(size)).cast("q"), names, me)

    def received(self, number: int) -> None:
        self.words[self.own + 1] = number

    @property
    def phase(self) -> int:
        return self.words[0]

    @phase.setter
    def phase(self, phase: int) -> None:
        self.words[0] = phase

    def began(self, number: int) -> None:
        """The driver hands this trip over now."""
        self.words[1] = number

    def ended(self, number: int, start: float, end: float) -> None:
        self.times[2 * number - 2], self.times[2 * number - 1] = start, end
        self.words[2] = number

    def trip(self, number: int) -> tuple[float, float]:
        """Start and end of a trip on the worker's clock; zeros while it has not ended."""
        return self.times[2 * number - 2], self.times[2 * number - 1]

    @property
    def progress(self) -> tuple[int, int, int]:
        """Phase, trip handed over last, trip collected last."""
        return self.words[0], self.words[1], self.words[2]

    def processes(self) -> dict[str, int]:
        """The process id of each participant that has begun."""
        pids = {name: self.words[_HEADER + _PARTICIPANT * index] for index, name in enumerate(self.names)}
        return {name: pid for name, pid in pids.items() if pid}

    def numbers(self) -> dict[str, int]:
        """What each participant received last."""
        return {name: self.words[_HEADER + _PARTICIPANT * index + 1] for index, name in enumerate(self.names)}


def _map(path: Path, size: int) -> memoryview:
    with path.open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), size)).cast("q")
