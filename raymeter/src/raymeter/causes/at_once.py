# SPDX-License-Identifier: Apache-2.0
"""Count what is held at the same time."""

from collections.abc import Iterable
from dataclasses import dataclass

DIGITS = 4  # behind the point, with which Ray counts resources: FixedPoint in Ray's scheduling


@dataclass(frozen=True)
class Hold:
    """An amount of something, such as CPUs or tasks, from one time to another one (seconds)."""

    begin: float
    end: float
    amount: float = 1.0


def most_at_once(holds: Iterable[Hold]) -> float:
    """Return the largest sum of the amounts at one time; 0 without any. What ends when another one begins is free."""
    changes = []
    for hold in holds:
        if hold.end > hold.begin:
            changes.append((hold.begin, hold.amount))
            changes.append((hold.end, -hold.amount))
    now = 0.0
    most = 0.0
    for _, change in sorted(changes):
        now = round(now + change, DIGITS)
        most = max(most, now)
    return most
