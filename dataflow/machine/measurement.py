# SPDX-License-Identifier: Apache-2.0
"""Measure a machine in a few seconds, and keep the samples in a file, from which `predict` reads them."""

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import torch

from common.record import Seconds
from dataflow.errors import RecordError
from dataflow.machine.copying import (
    FAULT_BYTES,
    PAUSE_SECONDS,
    REPEATS,
    SIZES,
    thread_counts,
    time_new_memory,
    time_warm_copies,
)
from dataflow.machine.speeds import HASHED_BYTES, time_hash, time_pickle, time_round_trips
from dataflow.records.machine import describe_environment

PAUSED_REPEATS = 2  # each of which waits for PAUSE_SECONDS


class WarmCopies(msgspec.Struct, frozen=True):
    """Copies of one buffer into another one that was used before, one sample per repeat."""

    bytes: int
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
        """Return what a page fault adds to a copy by one thread, for each copy into new memory."""
        warm = memory.bytes / median(self.copies_of(memory.bytes, 1).rates)
        return [(seconds - warm) / max(1, memory.faults) for seconds in memory.seconds]


def measure_machine() -> MachineSamples:
    """Return a new measurement of this machine, which takes about 15 seconds."""
    cores = len(os.sched_getaffinity(0))
    threads_before = torch.get_num_threads()
    warm = []
    for size in SIZES:
        counts = thread_counts(cores) if size == SIZES[-1] else sorted({1, cores})
        warm += [WarmCopies(size, count, time_warm_copies(size, count)) for count in counts]
    machine = MachineSamples(
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        environment=describe_environment(),
        warm_copies=warm,
        just_freed=make_new_memory(0.0, REPEATS),
        freed_before=make_new_memory(PAUSE_SECONDS, PAUSED_REPEATS),
        huge_pages=make_new_memory(0.0, REPEATS, huge_pages=True),
        **measure_speeds(),
    )
    torch.set_num_threads(threads_before)
    return machine


def make_new_memory(pause: float, repeats: int, huge_pages: bool = False) -> NewMemory:
    seconds, faults = time_new_memory(pause, repeats, huge_pages)
    return NewMemory(FAULT_BYTES, faults, seconds)


def measure_speeds() -> dict[str, Any]:
    """Return the fields of a MachineSamples for pickling, hashing and waking another process."""
    pickle_seconds, pickle_bytes = time_pickle()
    return {
        "pickle_bytes": pickle_bytes,
        "pickle_seconds": pickle_seconds,
        "hash_bytes": HASHED_BYTES,
        "hash_seconds": time_hash(),
        "round_trip_seconds": time_round_trips(),
    }


def load_machine(path: Path) -> MachineSamples:
    """Return the measurement in a file; raise RecordError if it cannot be read, or holds something else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=MachineSamples)
    except (OSError, msgspec.DecodeError) as error:
        raise RecordError(
            f"{path} has no measurement of a machine ({error}): make one with "
            "`python3 -m dataflow machine --output FILE`"
        ) from None


def newest_of(paths: Iterable[Path]) -> Path | None:
    """Return the path with the last name, which begins with the time of the measurement; None without any."""
    return max(paths, default=None, key=lambda path: path.name)
