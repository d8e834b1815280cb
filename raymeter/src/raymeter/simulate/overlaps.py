# SPDX-License-Identifier: Apache-2.0
"""Let the calls of an actor run at the same time, where the recording has one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from raymeter.findings import Overlap
from raymeter.simulate.graph import Edge, Graph, Point


@dataclass(frozen=True)
class ReplacedEdges:
    """A point that got other edges, with those that it had before."""

    point: Point
    edges: list[Edge]

    def undo(self) -> None:
        self.point.edges = self.edges


def let_overlap(graph: Graph, overlaps: Sequence[Overlap]) -> list[ReplacedEdges]:
    """Let calls begin before the one before them has ended; return what was replaced, in this order.

    A call that the graph does not connect with the one before it stays as it is.
    """
    replaced = []
    for overlap in overlaps:
        number = graph.starts.get(overlap.task)
        if number is None:
            continue
        point = graph.points[number]
        edges = edges_of_overlap(graph, point, overlap)
        if edges:
            replaced.append(ReplacedEdges(point, point.edges))
            point.edges = edges
    return replaced


def edges_of_overlap(graph: Graph, point: Point, overlap: Overlap) -> list[Edge]:
    """Return the edges of the start of a call that may begin before the one before it ends; [] if they stay.

    If it needs the result of that one, it has another edge from its end, which stays: it is not the last one.
    """
    earlier_start = graph.starts.get(overlap.earlier)
    earlier_end = graph.ready.get(overlap.earlier)
    edges = list(point.edges)
    positions = [position for position, edge in enumerate(edges) if edge.source == earlier_end]
    if earlier_start is None or not positions:
        return []
    last = positions[-1]
    edge = edges[last]
    seconds = edge.seconds + overlap.seconds
    edges[last] = replace(edge, source=earlier_start, seconds=seconds)
    for name in overlap.after:
        ended = graph.ready.get(name)
        if ended is not None:
            edges.append(Edge(ended, 0.0))
    return edges
