# SPDX-License-Identifier: Apache-2.0
"""Find the critical path of a step: the chain of work and waits that its length is made of.

It is followed back from the end of the step. What ends last before a point is what the point waited for.
"""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass

from raymeter.profile.steps import Steps
from raymeter.report.timeline import Span, Timeline
from raymeter.simulate.graph import Edge, Graph

MIN_SECONDS = 1e-6  # shorter parts of the path are left out
MAX_NESTED = 64  # spans that are looked at to find the one around a time
WORK = {  # what a process does in a part of the graph
    "call": "sends",
    "deserialise": "reads",
    "store": "stores the result",
    "execute": "runs",
    "fetch": "gets the code",
    "restore": "reads from disk",
    "start": "starts a process",
    "dispatch": "begins",
    "": "waits",  # for a free worker, for a reply, or for what was not recorded
}


@dataclass(frozen=True)
class Link:
    """A part of the path. `part` is that of the edge of the graph, or "" for a wait that nothing explains."""

    process: str
    part: str
    start: float
    end: float
    span: Span | None = None  # the call or task that it belongs to
    edge: Edge | None = None

    @property
    def seconds(self) -> float:
        return self.end - self.start


class SpanIndex:
    """Find the call or task that a process was in at a time."""

    def __init__(self, timeline: Timeline) -> None:
        self.spans: dict[str, list[Span]] = defaultdict(list)
        self.starts: dict[str, list[float]] = defaultdict(list)
        for span in timeline.spans:
            if span.kind not in ("send", "read"):
                self.spans[span.process].append(span)
                self.starts[span.process].append(span.start)

    def around(self, process: str, time: float) -> Span | None:
        """Return the span that began last of those around a time."""
        position = bisect_right(self.starts[process], time)
        first = max(0, position - MAX_NESTED)
        for span in reversed(self.spans[process][first:position]):
            if span.end >= time:
                return span
        return None


class PathFinder:
    """Find the critical paths of the steps of a program."""

    def __init__(self, graph: Graph, steps: Steps, timeline: Timeline) -> None:
        self.graph = graph
        self.steps = steps
        self.index = SpanIndex(timeline)

    def find(self, number: int) -> list[Link]:
        """Return the links of the path of a step, the first one first; [] if the step has no point.

        It begins later than the step if nothing is known to come before a point.
        """
        points = self.graph.points
        start, end = self.steps.times[number]
        point = self.last_point(start, end)
        process = self.steps.process
        links: list[Link] = []
        while point is not None and points[point].time > start:
            edge = self.binding_edge(point)
            if edge is None:
                break
            process = edge.process or process
            arrived = points[point].time
            left = max(start, points[edge.source].time)
            ready = min(arrived, left + edge.seconds) if edge.part else left
            links.append(Link(process, "", ready, arrived))
            links.append(self.make_work(edge, left, ready))
            point = edge.source
        kept = [link for link in links if link.seconds > MIN_SECONDS]
        return kept[::-1]

    def last_point(self, start: float, end: float) -> int | None:
        """Return the last point of the step in its own process; None if there is none.

        Calls inside of other calls do not count: nothing comes before them in the graph.
        """
        points = self.graph.points
        numbers: list[int] = []
        for key, number in self.graph.call_starts.items():
            is_own = key[0] == self.steps.process or not self.steps.process
            if is_own and points[number].edges:
                numbers += [number, self.graph.call_ends[key]]
        inside = [number for number in numbers if start <= points[number].time <= end]
        return max(inside, key=lambda number: points[number].time, default=None)

    def binding_edge(self, point: int) -> Edge | None:
        """Return the edge that a point waited for: the one that ends last; None if nothing comes before the point."""
        points = self.graph.points
        edges = points[point].edges
        return max(edges, key=lambda edge: points[edge.source].time + edge.seconds, default=None)

    def make_work(self, edge: Edge, start: float, end: float) -> Link:
        """Return the work of an edge, with the call or task that it belongs to."""
        span = self.index.around(edge.process, (start + end) / 2)
        return Link(edge.process, edge.part, start, end, span, edge)
