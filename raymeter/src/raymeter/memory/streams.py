# SPDX-License-Identifier: Apache-2.0
"""Find how far generators (num_returns="streaming") are ahead of who takes their items.

A reader takes an item when it asks the generator for the next one. It may read it later: then it keeps a reference by
itself, and a generator that waits for its reader would not help.
"""

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
            self.taken.setdefault(item, end)

    def find_lead(self, lives: Iterable[Life]) -> Lead:
        """Return how far the generators among these results are ahead, all of them together."""
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
        generators of which nobody has read an item.
        """
        waiting = []
        for item in items:
            if item.message.received:
                taken = self.time_of_taking(item)
                made = replace(item, start=item.message.sent.end, end=taken)
                waiting.append(made)
        last_made = max((item.start for item in waiting), default=0.0)
        last_taken = max((item.end for item in waiting), default=0.0)
        for item in items:
            made_at = item.message.sent.end
            if not item.message.received and last_made < made_at < last_taken:
                left = replace(item, start=made_at, end=last_taken)
                waiting.append(left)
        return waiting

    def time_of_taking(self, item: Life) -> float:
        """Return when a reader has asked for an item, or when one has read it if that is earlier, or not recorded."""
        times = [received.start for received in item.message.received]
        for received in item.message.received:
            if received.object in self.taken:
                times.append(self.taken[received.object])
        return min(times)


def growth_of(waiting: Sequence[Life]) -> float:
    """Return by how many bytes per second more of these items wait, at the times at which one is made."""
    changes = [(item.start, item.bytes) for item in waiting]
    changes += [(item.end, -item.bytes) for item in waiting]
    changes.sort()
    now = 0
    waiting_then: dict[float, int] = {}  # bytes, by the times at which an item is made
    for moment, size in changes:
        now += size
        if size > 0:
            waiting_then[moment] = now
    times = list(waiting_then)
    sizes = list(waiting_then.values())
    return find_slope(times, sizes, MIN_MOMENTS) or 0.0
