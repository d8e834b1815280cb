# SPDX-License-Identifier: Apache-2.0
"""Measure a machine in a few seconds."""

import os
from datetime import UTC, datetime
from typing import Any

import torch

from dataflow.machine.copying import (
    FAULT_BYTES,
    REPEATS,
    SIZES,
    thread_counts,
    time_new_memory,
    time_warm_copies,
)
from dataflow.machine.samples import PAUSE_SECONDS, MachineSamples, NewMemory, WarmCopies
from dataflow.machine.speeds import HASHED_BYTES, time_hash, time_pickle, time_round_trips
from dataflow.records.machine import describe_environment

PAUSED_REPEATS = 2  # each of which waits for PAUSE_SECONDS


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
