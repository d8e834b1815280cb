# SPDX-License-Identifier: Apache-2.0
"""Shorten the results that are still stored, where more were stored at the same time than there are cores.

Storing a result copies it, which takes a core. While n results are stored on c cores, each gets on with c / n of its
speed. If most of them are not stored any more, the others take less time.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from raymeter.simulate.graph import MAX_OVERLAPS, MIN_STORE_SECONDS, Edge, Graph

REMOVED_SHARE = 0.9  # of the time of an edge, from which on it counts as removed

Seconds = dict[int, float]  # of edges, by their id()


@dataclass(frozen=True)
class Relief:
    """An edge that takes less time than before."""

    edge: Edge
    seconds: float


def find_relief(graph: Graph, before: Seconds) -> list[Relief]:
    """Return the stores of results that take less time now that others beside them take nearly none.

    Beside: at the same time on the same machine. They have their new seconds. `before` has the seconds, by id(), of the
    edges that were changed, which have the new ones themselves and are not returned. The graph stays as it is.
    """
    relieved: list[Relief] = []
    for host, stores in stores_by_host(graph).items():
        machine = Machine(stores, graph.cores[host])
        unchanged = []
        for edge in stores:
            if has_lost_its_time(edge, before):
                machine.remove(edge)
            elif id(edge) not in before:
                unchanged.append(edge)
        if machine.removed:
            relieved += machine.relieve(unchanged)
    return relieved


def has_lost_its_time(edge: Edge, before: Seconds) -> bool:
    """Return whether an edge has lost nearly all of its time."""
    seconds = before.get(id(edge), 0.0)
    left = (1 - REMOVED_SHARE) * seconds
    return seconds > 0 and edge.seconds <= left


def stores_by_host(graph: Graph) -> dict[str, list[Edge]]:
    """Return the edges in which results are stored for a while, by the machine, in the order of time."""
    by_host: dict[str, list[Edge]] = defaultdict(list)
    for point in graph.points:
        for edge in point.edges:
            host = graph.hosts.get(edge.process)
            is_long = length(edge) >= MIN_STORE_SECONDS
            if edge.part == "store" and is_long and host is not None:
                by_host[host].append(edge)
    for edges in by_host.values():
        edges.sort(key=start_of)
    return by_host


class Machine:
    """The results that are stored on a machine, in the order of time, and which of them a change removes."""

    def __init__(self, stores: Sequence[Edge], cores: int) -> None:
        self.stores = stores
        self.cores = cores
        self.removed: set[int] = set()  # their id()
        self.starts = [edge.start for edge in stores]

    def remove(self, edge: Edge) -> None:
        self.removed.add(id(edge))

    def relieve(self, edges: Sequence[Edge]) -> list[Relief]:
        """Return those of the edges that overlap a removed one, with their new seconds."""
        relieved = []
        for edge in edges:
            others = self.overlapping(edge)
            if len(others) < self.cores:
                continue  # each of them has a core
            kept = [other for other in others if id(other) not in self.removed]
            if len(kept) == len(others):
                continue
            before = self.speed(edge, others)
            after = self.speed(edge, kept)
            seconds = edge.seconds * before / after
            relieved.append(Relief(edge, seconds))
        return relieved

    def overlapping(self, edge: Edge) -> list[Edge]:
        """Return the other edges that overlap one, of those that begin last."""
        last = bisect_left(self.starts, edge.end)
        first = max(0, last - MAX_OVERLAPS)
        begun = self.stores[first:last]
        return [other for other in begun if other.end > edge.start and other is not edge]

    def speed(self, edge: Edge, others: Sequence[Edge]) -> float:
        """Return the share of its full speed (up to 1.0) with which an edge gets on beside others that overlap it.

        It is the mean over the time of the edge: with n edges at a time, each has its share of the cores.
        """
        changes: list[tuple[float, int]] = [(edge.end, 0)]
        for other in others:
            changes.append((max(edge.start, other.start), 1))
            changes.append((min(edge.end, other.end), -1))
        changes.sort()
        running = 1  # the edge itself
        work = 0.0
        before = edge.start
        for time, change in changes:
            share = min(1.0, self.cores / running)
            work += share * (time - before)
            running += change
            before = time
        return work / length(edge)


def start_of(edge: Edge) -> float:
    return edge.start


def length(edge: Edge) -> float:
    return edge.end - edge.start
