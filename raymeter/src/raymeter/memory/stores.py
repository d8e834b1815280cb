# SPDX-License-Identifier: Apache-2.0
"""What the samples of the object stores say about spilling."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from raymeter.profile.events import Store

# Of the store, from which on Ray spills: object_spilling_threshold of Ray 2.44 to 2.60, if a program does not set it.
SPILL_SHARE = 0.8


@dataclass(frozen=True)
class Spilling:
    """Bytes that went to disk and came back during a program, and for how many seconds Ray did this."""

    spilled: int = 0
    restored: int = 0
    spill_seconds: float = 0.0
    restore_seconds: float = 0.0
    capacity: int = 0
    peak_used: int = 0
    fallback: int = 0  # most bytes that were in files at one time, because the store was full
    copy_rate: float = (
        0.0  # bytes per second of a copy into memory that was used before; 0: not measured
    )

    @property
    def has_missed_peak(self) -> bool:
        """Return whether more was spilled than the samples explain: Ray spills when a store is nearly full."""
        return self.spilled > 0 and self.peak_used < SPILL_SHARE * self.capacity


def find_spilling(stores: Sequence[Store]) -> Spilling:
    """Return what was spilled between the first sample and the last one; all is 0 without samples.

    The sums of Ray begin anew with a new cluster, so a sum that becomes smaller began with zero.
    """
    if not stores:
        return Spilling()
    return Spilling(
        spilled=round(growth([store.spilled for store in stores])),
        restored=round(growth([store.restored for store in stores])),
        spill_seconds=growth([store.spill_seconds for store in stores]),
        restore_seconds=growth([store.restore_seconds for store in stores]),
        capacity=max(store.capacity for store in stores),
        peak_used=max(store.used for store in stores),
        fallback=max(store.fallback for store in stores),
        copy_rate=max(store.copy_rate for store in stores),
    )


def growth(sums: Sequence[float]) -> float:
    """Return by how much a sum has grown, over all clusters of the program."""
    return sum_growth(sums)[-1]


def sum_growth(sums: Sequence[float]) -> list[float]:
    """Return by how much a sum has grown since its first value, at each value; 0 at the first one."""
    total = 0.0
    grown = [total for _ in sums[:1]]
    for earlier, later in pairwise(sums):
        total += later - earlier if later >= earlier else later
        grown.append(total)
    return grown
