"""Whose turn it is among rows that are measured at the same time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Turn:
    """A row's place in a ring of named pipes in which a byte goes round: who has it may work, the others sleep.

    A worker has it while it starts its row, makes, sends and checks a trip, or measures a ceiling.
    """

    folder: Path
    place: int
    rows: int

    def wait(self) -> None:
        """Until the byte is here."""
        with open(self._pipe(self.place), "rb+", buffering=0) as pipe:
            pipe.read(1)
        self._holder.write_text(str(self.place))

    def pass_on(self) -> None:
        with open(self._pipe((self.place + 1) % self.rows), "rb+", buffering=0) as pipe:
            pipe.write(b".")

    def go_round(self) -> None:
        """Let each of the others have its turn."""
        self.pass_on()
        self.wait()

    @property
    def waits(self) -> bool:
        """Whether another has the byte, as far as the last one that took it has said."""
        return not self._holder.exists() or self._holder.read_text() != str(self.place)

    @property
    def _holder(self) -> Path:
        return self.folder / "holder"

    def _pipe(self, place: int) -> Path:
        return self.folder / f"turn-{place}"


@contextmanager
def ring(folder: Path, rows: int) -> Iterator[list[Turn]]:
    """The places of so many rows, the first of which may begin; the ring ends with the block."""
    turns = [Turn(folder, place, rows) for place in range(rows)]
    pipes = [folder / f"turn-{place}" for place in range(rows)]
    for pipe in pipes:
        os.mkfifo(pipe)
    held = [os.open(pipe, os.O_RDWR) for pipe in pipes]  # a pipe that nobody has open forgets what is in it
    try:
        os.write(held[0], b".")
        yield turns
    finally:
        for handle in held:
            os.close(handle)
