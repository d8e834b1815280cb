"""What the samples of the object stores say about spilling."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from raymeter.profile.events import Store


@dataclass(frozen=True)
class Spilling:
    """Bytes that went to disk and came back during a program, and for how many seconds Ray did this."""

    spilled: int = 0
    restored: int = 0
    spill_seconds: float = 0.0
    restore_seconds: float = 0.0
    capacity: int = 0
    peak_used: int = 0


def find_spilling(stores: Sequence[Store]) -> Spilling:
    """Return what was spilled between the first sample and the last one.

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
    )


def growth(sums: Sequence[float]) -> float:
    """Return by how much a sum has grown, over all clusters of the program."""
    total = 0.0
    for earlier, later in pairwise(sums):
        total += later - earlier if later >= earlier else later
    return total
