# SPDX-License-Identifier: Apache-2.0
"""Find how far generators (num_returns="streaming") are ahead of who takes their items.

A reader takes an item when it asks the generator for the next one. It may read it later: then it keeps a reference by
itself, and a generator that waits for its reader would not help.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from raymeter.memory.growth import find_slope
from raymeter.memory.lives import Life, Peak, find_peak
from raymeter.profile.program import TASK_DIGITS, Program

GENERATOR = "generator"
MIN_MOMENTS = 4  # at which items are made, to say that more and more of them wait


@dataclass(frozen=True)
class Lead:
    """The items that wait when most bytes do, and by how much these bytes grow; 0 if they do not grow all the time."""

    peak: Peak
    bytes_per_second: float = 0.0


class Streams:
    """The generators of a program, and when their items were taken."""

    def __init__(self, program: Program) -> None:
        self.taken: dict[str, float] = {}  # by object
        self.tasks: set[str] = set()  # that are generators
        for run in program.recording.runs:
            if run.kind == GENERATOR:
                self.tasks.add(run.by)
        for call in program.recording.calls:
            if call.event == "next":
                self.add_items(call.objects, call.end)

    def add_items(self, objects: Iterable[str], end: float) -> None:
        for item in objects:
            self.tasks.add(item[:TASK_DIGITS])
            self.taken[item] = min(end, self.taken.get(item, end))

    def find_lead(self, lives: Iterable[Life]) -> Lead:
        """Return how far the generators among these results are ahead, all of them together; 0 without any."""
        by_task: dict[str, list[Life]] = defaultdict(list)
        for life in lives:
            task = life.message.sent.by
            if task in self.tasks:
                by_task[task].append(life)
        waiting = []
        for items in by_task.values():
            waiting += self.until_taken(items)
        return Lead(find_peak(waiting), growth_of(waiting))

    def until_taken(self, items: Sequence[Life]) -> list[Life]:
        """Return the times of the items of one generator, from their end of being sent until they are taken.

        Items that nobody has read wait until the last one is taken, if they were made after it. Nothing is known of
        generators of which no taking was recorded. One whose items are all made before the first is taken is left out:
        the program may wait for its end, and then the generator must not wait for the program.
        """
        waiting = self.until_taken_in_turn(items)
        last_made = max((item.start for item in waiting), default=0.0)
        last_taken = max((item.end for item in waiting), default=0.0)
        first_taken = min((item.end for item in waiting), default=0.0)
        if first_taken > last_made:
            return []
        for item in items:
            if not item.message.received and last_made < made_at(item) < last_taken:
                left = replace(item, start=made_at(item), end=last_taken)
                waiting.append(left)
        return waiting

    def until_taken_in_turn(self, items: Sequence[Life]) -> list[Life]:
        """Return the times of the items that were read, until a reader has asked for them; [] if none is recorded.

        Items are taken in turn. So one whose taking is not recorded was taken before the next one that is.
        """
        waiting = []
        next_taken = math.inf
        for item in sorted(items, key=made_at, reverse=True):
            received = item.message.received
            for reading in received:
                next_taken = min(next_taken, self.taken.get(reading.object, math.inf))
            if received:
                first_read = min(reading.start for reading in received)
                taken = min(first_read, next_taken)
                waiting.append(replace(item, start=made_at(item), end=taken))
        return [] if math.isinf(next_taken) else waiting


def made_at(item: Life) -> float:
    return item.message.sent.end


def growth_of(waiting: Sequence[Life]) -> float:
    """Return by how many bytes per second more of these items wait, at the times at which one is made.

    That is 0 if they do not grow all the time.
    """
    changes = [(item.start, item.bytes) for item in waiting]
    changes += [(item.end, -item.bytes) for item in waiting]
    changes.sort()  # at one time, what is taken comes before what is made
    now = 0
    waiting_then: dict[float, int] = {}  # bytes, by the times at which an item is made
    for moment, size in changes:
        now += size
        if size > 0:
            waiting_then[moment] = now
    times = list(waiting_then)
    sizes = list(waiting_then.values())
    return find_slope(times, sizes, MIN_MOMENTS) or 0.0
