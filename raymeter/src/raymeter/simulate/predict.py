"""Predict what each change does to the median step, one after the other."""

from collections import defaultdict
from collections.abc import Sequence

from raymeter.findings import Advice, Finding, Prediction, Saving
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.simulate.graph import Edge, Graph, build, find_work
from raymeter.simulate.replay import replay, step_seconds

MAX_ERROR = 0.10  # of the replayed step without changes
MIN_SHARE = 0.03  # of a step that a change must save
MAX_ADVICE = 3
PARTS = {  # of savings -> of edges of the graph
    "call": ("call",),
    "serialise": ("call", "store", "execute"),
    "write": ("call", "store"),
    "store": ("store",),
    "deserialise": ("deserialise",),
    "execute": ("execute",),
    "fetch": ("fetch",),
    "wait": ("deserialise",),
    "restore": ("restore",),
}


def predict(program: Program, steps: Steps, findings: Sequence[Finding]) -> list[Advice]:
    """Return the findings that gain most, each with its prediction on top of those before it."""
    graph = build(program)
    fits = explains(graph, steps)
    before = step_seconds(graph, replay(graph), steps)
    remaining = list(findings)
    advice: list[Advice] = []
    while remaining and len(advice) < MAX_ADVICE:
        after = before
        best = remaining[0]
        for finding in remaining:
            seconds = simulate(graph, steps, finding)
            if seconds < after:
                after = seconds
                best = finding
        if before - after < MIN_SHARE * steps.seconds:
            break
        prediction = Prediction(before, after, is_upper_limit=not fits)
        advice.append(Advice(best, prediction))
        remaining.remove(best)
        shorten(graph, best.savings)  # and it stays so for the next ones
        before = after
    return advice


def explains(graph: Graph, steps: Steps) -> bool:
    """Return whether a replay without unexplained delays takes as long as the recorded step."""
    if not graph.is_complete:
        return False
    replayed = step_seconds(graph, replay(graph, keeps_delays=False), steps)
    return abs(replayed - steps.seconds) <= MAX_ERROR * steps.seconds


def simulate(graph: Graph, steps: Steps, finding: Finding) -> float:
    """Return the median step with the change of a finding. The graph is as before afterwards."""
    changed = shorten(graph, finding.savings)
    seconds = step_seconds(graph, replay(graph), steps)
    for edge, earlier in changed:
        edge.seconds = earlier
    return seconds


def shorten(graph: Graph, savings: Sequence[Saving]) -> list[tuple[Edge, float]]:
    """Shorten the work of the graph; return the edges with what they had, the last change first."""
    work = work_by_process(graph)
    changed: list[tuple[Edge, float]] = []
    for saving in savings:
        edges, starts = work.get(saving.process, ([], []))
        found = find_work(edges, starts, saving.start)
        matching = [edge for edge in found if matches(edge, saving)]
        for edge in narrowest(matching):
            earlier = edge.seconds
            changed.append((edge, earlier))
            edge.seconds = max(0.0, earlier - saving.seconds)
    return changed[::-1]


def work_by_process(graph: Graph) -> dict[str, tuple[list[Edge], list[float]]]:
    """Return the edges with work of each process, sorted by their starts, and the starts."""
    by_process: dict[str, list[Edge]] = defaultdict(list)
    for point in graph.points:
        for edge in point.edges:
            if edge.part:
                by_process[edge.process].append(edge)
    result = {}
    for process, edges in by_process.items():
        edges.sort(key=lambda edge: edge.start)
        starts = [edge.start for edge in edges]
        result[process] = edges, starts
    return result


def matches(edge: Edge, saving: Saving) -> bool:
    """Return whether a saving can be in this work. Phases of tasks have no thread."""
    if edge.part not in PARTS[saving.part]:
        return False
    return not edge.thread or not saving.thread or edge.thread == saving.thread


def narrowest(edges: list[Edge]) -> list[Edge]:
    """Return the edges of the event that overlap least: those that begin last."""
    if not edges:
        return []
    last = max(edge.start for edge in edges)
    return [edge for edge in edges if edge.start == last]
