"""Let the two runs of a paired measurement work in turn: only the driver process with the token works."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Token:
    """One driver's place in a ring of named pipes. In a paired measurement, only the driver with the token works."""

    folder: Path
    index: int
    count: int

    def wait(self) -> None:
        with open(self.folder / f"token-{self.index}", "rb+", buffering=0) as pipe:
            pipe.read(1)
        (self.folder / "holder").write_text(str(self.index))

    def pass_on(self) -> None:
        with open(self.folder / f"token-{(self.index + 1) % self.count}", "rb+", buffering=0) as pipe:
            pipe.write(b".")

    def pass_round(self) -> None:
        """Let each of the other drivers have the token once."""
        self.pass_on()
        self.wait()

    @property
    def waits(self) -> bool:
        """Whether another driver was the last to take the token."""
        return (self.folder / "holder").read_text() != str(self.index)


@contextmanager
def token_ring(folder: Path, count: int) -> Iterator[list[Token]]:
    """Yield the positions of `count` drivers in a ring. The first one gets the token first."""
    (folder / "holder").touch()
    handles = []
    for index in range(count):
        os.mkfifo(folder / f"token-{index}")
        handles.append(os.open(folder / f"token-{index}", os.O_RDWR))  # a pipe that nobody has open loses its bytes
    try:
        os.write(handles[0], b".")
        yield [Token(folder, index, count) for index in range(count)]
    finally:
        for handle in handles:
            os.close(handle)
