# SPDX-License-Identifier: Apache-2.0
"""Replay the graph of a program with changed times."""

import math
from bisect import bisect_left
from statistics import median

from raymeter.profile.steps import Steps
from raymeter.simulate.graph import Graph


def replay(graph: Graph, keeps_delays: bool = True) -> list[float]:
    """Return the time of each point, if each comes as early as its edges (and its recorded delay) allow.

    A point without edges keeps its recorded time.
    """
    points = graph.points
    times = [point.time for point in points]
    for number in graph.order():
        point = points[number]
        if not point.edges:
            continue
        earliest = -math.inf
        for edge in point.edges:
            bound = times[edge.source] + edge.seconds
            if bound > earliest:
                earliest = bound
        if keeps_delays:
            earliest += point.delay
        times[number] = earliest
    return times


def step_seconds(graph: Graph, times: list[float], steps: Steps) -> float:
    """Return the length of the median step with these times of the points.

    The bounds of a step are moved as the point that is next to them was.
    """
    clock = MovedClock(graph, times, steps.process)
    lengths = []
    for start, end in steps.times:
        moved_start = clock.move(start)
        moved_end = clock.move(end)
        lengths.append(moved_end - moved_start)
    return median(lengths)


class MovedClock:
    """Say when something that was recorded at a time would happen in a replay."""

    def __init__(self, graph: Graph, times: list[float], process: str) -> None:
        self.graph = graph
        self.times = times
        self.numbers: list[int] = []
        for points in (graph.call_starts, graph.call_ends):
            for (of_process, _), number in points.items():
                if process in ("", of_process):
                    self.numbers.append(number)
        self.numbers.sort(key=graph.time_of)
        self.recorded = [graph.time_of(number) for number in self.numbers]

    def move(self, time: float) -> float:
        """Return the new time: it moves as the closest point of the process does, and not at all without points."""
        position = bisect_left(self.recorded, time)
        first = max(0, position - 1)
        candidates = self.numbers[first : position + 1]
        if not candidates:
            return time
        closest = min(candidates, key=lambda number: abs(self.graph.time_of(number) - time))
        moved = self.times[closest] - self.graph.time_of(closest)
        return time + moved
