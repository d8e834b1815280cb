# SPDX-License-Identifier: Apache-2.0
"""Split the run of a generator at its items: each is ready for its reader when Ray has sent it, not at the end."""

from dataclasses import dataclass

from raymeter.profile.events import Run

FIRST_INDEX = 2  # of an item among the objects of its task; 1 is the generator itself


@dataclass(frozen=True)
class Item:
    """An item of a generator: when its code gave it, and when Ray had sent it."""

    object: str
    start: float
    end: float


def items_of(run: Run) -> list[Item]:
    """Return the items of a generator whose times were recorded.

    The last item has no end of its own if the generator was asked for nothing more.
    """
    given = run.items[0::2]
    asked = run.items[1::2]
    items = []
    for number, (start, end) in enumerate(zip(given, asked, strict=False)):
        name = object_of(run.by, number)
        items.append(Item(name, run.start + start, run.start + end))
    return items


def object_of(task: str, number: int) -> str:
    """Return the id of an item, which ends with its index as four bytes."""
    index = number + FIRST_INDEX
    return task + index.to_bytes(4, "little").hex()
