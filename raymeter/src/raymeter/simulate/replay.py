"""Replay the graph of a program with changed times."""

from statistics import median

from raymeter.profile.steps import Steps
from raymeter.simulate.graph import Graph


def replay(graph: Graph, keeps_delays: bool = True) -> list[float]:
    """Return the time of each point, if each comes as early as its edges (and its recorded delay) allow.

    A point without edges keeps its recorded time.
    """
    order = sorted(range(len(graph.points)), key=lambda number: graph.points[number].time)
    times = [point.time for point in graph.points]
    for number in order:
        point = graph.points[number]
        if not point.edges:
            continue
        earliest = max(times[edge.source] + edge.seconds for edge in point.edges)
        times[number] = earliest + (point.delay if keeps_delays else 0.0)
    return times


def step_seconds(graph: Graph, times: list[float], steps: Steps) -> float:
    """Return the length of the median step with these times of the points.

    The bounds of a step are moved as the point that is next to them was.
    """
    bounds = sorted({bound for step in steps.times for bound in step})
    moved = dict(zip(bounds, move(graph, times, steps, bounds), strict=True))
    return median(moved[end] - moved[start] for start, end in steps.times)


def move(graph: Graph, times: list[float], steps: Steps, bounds: list[float]) -> list[float]:
    """Return the new time of each bound: that of the point of the steps' process that is closest to it."""
    numbers = [
        number
        for key, number in [*graph.call_starts.items(), *graph.call_ends.items()]
        if not steps.process or key[0] == steps.process
    ]
    numbers.sort(key=lambda number: graph.points[number].time)
    if not numbers:
        return bounds
    moved = []
    position = 0
    for bound in bounds:
        while position + 1 < len(numbers):
            here = abs(graph.points[numbers[position]].time - bound)
            later = abs(graph.points[numbers[position + 1]].time - bound)
            if later > here:
                break
            position += 1
        number = numbers[position]
        moved.append(bound + times[number] - graph.points[number].time)
    return moved
