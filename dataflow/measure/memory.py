# SPDX-License-Identifier: Apache-2.0
"""Read what a process holds: memory of its own, and its share of the memory that other processes map, too.

The largest resident set, which Linux also counts, has shared pages in each process, so the sum over processes counts
them several times. A proportional share counts them once (man 5 proc, smaps_rollup).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

KIB = 1024
PRIVATE = ("Private_Clean", "Private_Dirty")
PROPORTIONAL = "Pss"


@dataclass(frozen=True)
class HeldMemory:
    """What a process holds in bytes.

    Of memory that other processes map, too, it is a share: a page that three processes map counts as a third.
    """

    private_bytes: int
    shared_bytes: int


def read_held_memory(process: int | str = "self") -> HeldMemory | None:
    """Return what a process holds, this one or that of an id; None if the kernel does not say it."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return None
    kibibytes = parse_smaps(text)
    private = sum(kibibytes.get(name, 0) for name in PRIVATE)
    shared = max(0, kibibytes.get(PROPORTIONAL, 0) - private)
    return HeldMemory(private * KIB, shared * KIB)


def parse_smaps(text: str) -> dict[str, int]:
    """Return the values of a text such as "Pss: 12 kB" in KiB, by name."""
    values = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        words = rest.split()
        if colon and len(words) == 2 and words[0].isdecimal():
            values[name] = int(words[0])
    return values


def read_held_by(worker: Any) -> HeldMemory | None:
    """Return what the process holds in which this is called, that of a worker (WorkerGroup.run_in_all)."""
    return read_held_memory()
