"""Standard output whose reader may leave early, as `| head` does."""

import os
import sys
from typing import Any


class Outlasting:
    """A stream that goes on nowhere once nobody reads it, so that a run is not lost with its reader."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self._try(self.stream.write, text)
        return len(text)

    def flush(self) -> None:
        self._try(self.stream.flush)

    def _try(self, function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def outlast_reader() -> None:
    """Let this process print to its end, read or not."""
    sys.stdout = Outlasting(sys.stdout)
