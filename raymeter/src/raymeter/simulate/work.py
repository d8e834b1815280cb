# SPDX-License-Identifier: Apache-2.0
"""Find the work of a process that runs at a time, or after it."""

from bisect import bisect_left
from itertools import accumulate

from raymeter.simulate.graph import MAX_OVERLAPS, Edge


def start_of(edge: Edge) -> float:
    return edge.start


class Work:
    """The edges with work of one process, in the order of their starts."""

    def __init__(self, edges: list[Edge]) -> None:
        self.edges = sorted(edges, key=start_of)
        self.starts = [edge.start for edge in self.edges]
        ends = [edge.end for edge in self.edges]
        self.last_ends = list(accumulate(ends, max))  # of each edge and all before it

    def at(self, time: float) -> list[Edge]:
        """Return the edges that began before a time and end at it or later, those that began first, first.

        Only the MAX_OVERLAPS edges that began last are looked at.
        """
        position = bisect_left(self.starts, time)
        first = max(0, position - MAX_OVERLAPS)
        found = []
        for number in range(position - 1, first - 1, -1):
            if self.last_ends[number] < time:
                break  # all earlier ones have ended
            edge = self.edges[number]
            if edge.end >= time:
                found.append(edge)
        found.reverse()
        return found

    def after(self, time: float, count: int) -> list[Edge]:
        """Return so many edges that begin at a time or later."""
        position = bisect_left(self.starts, time)
        return self.edges[position : position + count]
