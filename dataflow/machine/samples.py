# SPDX-License-Identifier: Apache-2.0
"""Hold what was measured of a machine, and read it from a file. Nothing here imports torch, which takes seconds."""

from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from common.record import Seconds
from dataflow.errors import RecordError

SMALL_PAGE_BYTES = 4096
PAUSE_SECONDS = 5.0  # after which a virtual machine has given free memory back to its host


class WarmCopies(msgspec.Struct, frozen=True):
    """Passes of copies into memory that was used before, one sample per repeat.

    A pass copies several buffers, one after the other. Those of older files have one.
    """

    bytes: int  # of all buffers of a pass
    threads: int
    seconds: list[Seconds]

    @property
    def rates(self) -> list[float]:
        """Return the bytes per second of each repeat."""
        return [self.bytes / seconds for seconds in self.seconds]


class NewMemory(msgspec.Struct, frozen=True):
    """Copies by one thread into memory that is mapped for each one; as much was freed before."""

    bytes: int
    faults: int  # page faults of a copy
    seconds: list[Seconds]


class MachineSamples(msgspec.Struct, kw_only=True):
    """What was measured on a machine, in seconds, and what it is."""

    measured_at: str  # UTC, ISO 8601
    environment: dict[str, Any]
    warm_copies: list[WarmCopies]
    just_freed: NewMemory
    freed_before: NewMemory  # PAUSE_SECONDS before
    huge_pages: NewMemory  # just freed, with transparent huge pages if the kernel allows them
    pickle_bytes: int
    pickle_seconds: list[Seconds]
    hash_bytes: int
    hash_seconds: list[Seconds]
    round_trip_seconds: list[Seconds]  # of one byte over two pipes

    @property
    def cores(self) -> int:
        return max(copies.threads for copies in self.warm_copies)

    def copies_of(self, size: int, threads: int) -> WarmCopies:
        """Return the copies of the closest size (as a ratio) by so many threads, or by the next larger number."""
        enough = [copies for copies in self.warm_copies if copies.threads >= threads]
        wanted = min((copies.threads for copies in enough), default=self.cores)
        of_threads = [copies for copies in self.warm_copies if copies.threads == wanted]
        return min(
            of_threads, key=lambda copies: abs(copies.bytes.bit_length() - size.bit_length())
        )

    def fault_seconds(self, memory: NewMemory) -> list[float]:
        """Return what a page fault adds to a copy by one thread, for each copy into new memory.

        It is that of a page of SMALL_PAGE_BYTES, because stored costs count those. Where the kernel maps huge pages, it
        is the share of such a page.
        """
        warm = memory.bytes / median(self.copies_of(memory.bytes, 1).rates)
        pages = max(1, memory.faults, memory.bytes / SMALL_PAGE_BYTES)
        return [(seconds - warm) / pages for seconds in memory.seconds]


def load_machine(path: Path) -> MachineSamples:
    """Return the measurement in a file; raise RecordError if it cannot be read, or holds something else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=MachineSamples)
    except (OSError, msgspec.DecodeError) as error:
        raise RecordError(
            f"{path} has no measurement of a machine ({error}): make one with "
            "`python3 -m dataflow machine --output FILE`"
        ) from None
