# SPDX-License-Identifier: Apache-2.0
"""Time copies between buffers of this process, into memory that was used before, and into new memory."""

import mmap
import time
from contextlib import suppress

import torch

from common.copies import copy_seconds, make_pair
from dataflow.trace.spans import count_faults
from dataflow.units import MIB

MESSAGES = 5  # of a pass, as in an iteration of the demo
SIZES = (MIB, 8 * MIB, 64 * MIB, 448 * MIB)  # of a pass; the last one is an iteration of the demo
REPEATS = 5
MIN_SECONDS = 0.01  # of a repeat: small passes are repeated in it
FAULT_BYTES = 128 * MIB  # of each copy into new memory


def thread_counts(cores: int) -> list[int]:
    """Return the powers of two below the number of cores, and that number."""
    counts = [1]
    while 2 * counts[-1] < cores:
        counts.append(2 * counts[-1])
    return sorted({*counts, cores})


def time_warm_copies(size: int, threads: int) -> list[float]:
    """Return the seconds of one pass by so many threads, once per repeat, after a pass that does not count.

    A pass copies MESSAGES buffers of `size` bytes together, one after the other. A run does so with its own messages,
    and costs are fitted to that.
    """
    smaller = size // MESSAGES
    sizes = [smaller] * (MESSAGES - 1)
    sizes.append(size - sum(sizes))
    pairs = [make_pair(message_bytes) for message_bytes in sizes]
    torch.set_num_threads(threads)
    first = copy_seconds(pairs)
    times = max(1, round(MIN_SECONDS / max(first, 1e-6)))
    return [copy_seconds(pairs * times) / times for _ in range(REPEATS)]


def time_new_memory(
    pause: float, repeats: int, huge_pages: bool = False
) -> tuple[list[float], int]:
    """Return the seconds of each copy by one thread into new memory, and the page faults of the last one.

    Before each one, as much memory is freed, and then nothing is done for `pause` seconds.
    """
    torch.set_num_threads(1)
    source = torch.ones(FAULT_BYTES, dtype=torch.uint8)
    seconds = []
    faults = 0
    use_new_memory(source, huge_pages)
    for _ in range(repeats):
        time.sleep(pause)
        before = count_faults()
        seconds.append(use_new_memory(source, huge_pages))
        faults = count_faults() - before
    return seconds, faults


def use_new_memory(source: torch.Tensor, huge_pages: bool) -> float:
    """Copy into memory that is mapped and then unmapped again, as malloc does with large blocks; return the seconds."""
    memory = mmap.mmap(-1, source.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if huge_pages:
        with suppress(OSError):  # this kernel was built without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    target = torch.frombuffer(memory, dtype=torch.uint8)
    seconds = copy_seconds([(source, target)])
    del target
    memory.close()
    return seconds
