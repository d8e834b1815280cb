# SPDX-License-Identifier: Apache-2.0
"""Predict what each change does to the median step, one after the other."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby

from raymeter.findings import Advice, Finding, Prediction, Reorder, Saving
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.simulate.contention import find_relief
from raymeter.simulate.graph import CLOCK_SECONDS, Edge, Graph, Point, build
from raymeter.simulate.overlaps import ReplacedEdges, let_overlap
from raymeter.simulate.replay import replay, step_seconds
from raymeter.simulate.work import Work

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
    "fetch": ("fetch", "start"),  # a worker that starts fetches the code then
    "start": ("start",),
    "wait": ("deserialise",),
    "restore": ("restore",),
    "dispatch": ("dispatch",),
    "work": ("call", "deserialise", "execute"),
    "answer": ("call", "deserialise", "execute"),
    "send": ("call", "execute"),
}
SPREAD = ("work", "answer")  # of calls of which only some were recorded
MAX_SPREAD = 64  # edges over which these are spread
MAX_LEFT_OUT = 2_048  # edges over which the saving of messages is spread that were not written


@dataclass(frozen=True)
class Change:
    """An edge that was changed, with what it had before."""

    edge: Edge
    seconds: float
    source: int


@dataclass(frozen=True)
class ChangedDelay:
    """A point whose delay was changed, with the one that it had before."""

    point: Point
    delay: float


@dataclass(frozen=True)
class Changes:
    """What was changed in a graph, in this order."""

    delays: list[ChangedDelay]
    edges: list[Change]
    replaced: list[ReplacedEdges] = field(default_factory=list)  # before the edges were changed

    def undo(self) -> None:
        """Let the graph be as it was before."""
        for changed in self.delays:
            changed.point.delay = changed.delay
        for change in reversed(self.edges):
            change.edge.seconds = change.seconds
            change.edge.source = change.source
        for replaced in reversed(self.replaced):
            replaced.undo()


def predict(program: Program, steps: Steps, findings: Sequence[Finding]) -> list[Advice]:
    """Return at most MAX_ADVICE findings that gain most, each with its prediction on top of those before it.

    Return [] if none saves MIN_SHARE of a step. Predictions are upper limits if the graph does not explain the step.
    """
    graph = build(program)
    simulation = Simulation(graph, steps)
    is_limit = not simulation.explains_steps
    before = step_seconds(graph, replay(graph), steps)
    remaining = list(findings)
    advice: list[Advice] = []
    while remaining and len(advice) < MAX_ADVICE:
        saved = [simulation.saved_by(finding) for finding in remaining]
        most = max(saved)
        if most < MIN_SHARE * steps.seconds:
            break
        best = remaining.pop(saved.index(most))
        is_limit = is_limit or best.is_limit  # and so is all that comes on top of it
        after = max(0.0, before - most)
        is_upper_limit = is_limit and not best.is_least
        prediction = Prediction(before, after, False, is_upper_limit, best.is_least)
        advice.append(Advice(best, prediction))
        simulation.keep(best)  # for the next ones
        before = after
    simulation.undo()
    return advice


class Simulation:
    """Say what a finding saves of the median step, on top of those that are kept.

    A delay is time before a point that nothing recorded explains. It stays if the step is explained without it. If not,
    it may be a consequence of what a finding removes. So the graph is replayed without delays, too, and the larger
    saving counts.
    """

    def __init__(self, graph: Graph, steps: Steps) -> None:
        self.graph = graph
        self.steps = steps
        self.explains_steps = explains(graph, steps)
        self.before = self.replay_step()
        self.kept: list[Changes] = []

    def replay_step(self) -> list[float]:
        """Return the median step with delays; if they do not explain it, also the one without them."""
        ways = [True] if self.explains_steps else [True, False]
        lengths = []
        for keeps_delays in ways:
            times = replay(self.graph, keeps_delays)
            lengths.append(step_seconds(self.graph, times, self.steps))
        return lengths

    def saved_by(self, finding: Finding) -> float:
        """Return the seconds that a finding saves, at least those that no replay shows. The graph stays as it was."""
        changes = apply(self.graph, finding)
        after = self.replay_step()
        changes.undo()
        saved = [was - now for was, now in zip(self.before, after, strict=True)]
        return max(finding.unseen_seconds, *saved)

    def keep(self, finding: Finding) -> None:
        """Let the change of a finding stay."""
        self.kept.append(apply(self.graph, finding))
        self.before = self.replay_step()

    def undo(self) -> None:
        """Let the graph be as it was before the first finding was kept."""
        for changes in reversed(self.kept):
            changes.undo()


def explains(graph: Graph, steps: Steps) -> bool:
    """Return whether a replay without unexplained delays takes as long as the recorded step."""
    if not graph.is_complete:
        return False
    replayed = step_seconds(graph, replay(graph, keeps_delays=False), steps)
    return abs(replayed - steps.seconds) <= MAX_ERROR * steps.seconds


def simulate(graph: Graph, steps: Steps, finding: Finding) -> float:
    """Return the median step with the change of a finding. The graph is as before afterwards."""
    changes = apply(graph, finding)
    seconds = step_seconds(graph, replay(graph), steps)
    changes.undo()
    return seconds


def apply(graph: Graph, finding: Finding) -> Changes:
    """Change the graph as a finding says."""
    replaced = let_overlap(graph, finding.overlaps)
    delays = shorten_starts(graph, finding)
    return Changes(delays, shorten_and_reorder(graph, finding), replaced)


def shorten_starts(graph: Graph, finding: Finding) -> list[ChangedDelay]:
    """Shorten the time between what a task needs and its start, of which fewer tasks need less; return what it was."""
    changed: list[ChangedDelay] = []
    for task, share in finding.fewer_tasks.items():
        if task in graph.starts:
            number = graph.starts[task]
            point = graph.points[number]
            changed.append(ChangedDelay(point, point.delay))
            point.delay *= 1 - share
    return changed


def shorten_and_reorder(graph: Graph, finding: Finding) -> list[Change]:
    """Change the edges of the graph as a finding says; return what was changed, in this order."""
    changes = shorten(graph, finding.savings)
    changes += relieve(graph, changes)
    changes += reorder(graph, finding.reorders)
    return changes


def relieve(graph: Graph, changes: Sequence[Change]) -> list[Change]:
    """Shorten what has a core for itself now; return what was changed, in this order."""
    before: dict[int, float] = {}
    for change in changes:
        before.setdefault(id(change.edge), change.seconds)
    relieved: list[Change] = []
    for relief in find_relief(graph, before):
        edge = relief.edge
        relieved.append(Change(edge, edge.seconds, edge.source))
        edge.seconds = relief.seconds
    return relieved


def reorder(graph: Graph, reorders: Sequence[Reorder]) -> list[Change]:
    """Let waits be for other objects; return what was changed: nothing for an object that was not recorded."""
    changes: list[Change] = []
    for item in reorders:
        key = item.process, item.number
        target = graph.ready_point(item.object)
        start = graph.call_starts[key]
        end = graph.call_ends[key]
        wait = graph.points[end]
        for edge in wait.edges:
            if target is not None and edge.source != start:
                changes.append(Change(edge, edge.seconds, edge.source))
                edge.source = target
    return changes


def shorten(graph: Graph, savings: Sequence[Saving]) -> list[Change]:
    """Shorten the work of the graph; return what was changed, in this order.

    A saving changes nothing if its process has no work of its part at its time. No work takes less than 0 seconds.
    """
    work_of = work_by_process(graph)
    nothing = Work([])
    changes: list[Change] = []
    for saving in savings:
        work = work_of.get(saving.process, nothing)
        if saving.part in SPREAD or saving.is_spread:
            changes += spread(work, saving)
            continue
        matching = [edge for edge in work.at(saving.start) if matches(edge, saving)]
        whole = centred(matching, saving.start) if saving.part == "store" else []
        for edge in whole or narrowest(matching):
            changes.append(Change(edge, edge.seconds, edge.source))
            edge.seconds = max(0.0, edge.seconds - saving.seconds)
    return changes


def spread(work: Work, saving: Saving) -> list[Change]:
    """Shorten the work of a thread from a time on, one event after the other, until all is saved."""
    running = work.at(saving.start)
    following = work.after(saving.start, MAX_LEFT_OUT if saving.is_spread else MAX_SPREAD)
    later = (edge for edge in chain(running, following) if matches(edge, saving))
    changes: list[Change] = []
    left = saving.seconds
    for _, event in groupby(later, key=lambda edge: (edge.start, edge.end)):
        same = list(event)  # a wait has an edge from its start, and one from what it waits for
        saved = min(left, same[0].seconds)
        if saved <= 0:
            continue  # earlier savings have taken all of it
        for edge in same:
            changes.append(Change(edge, edge.seconds, edge.source))
            edge.seconds = max(0.0, edge.seconds - saved)
        left -= saved
        if left <= 0:
            break
    return changes


def work_by_process(graph: Graph) -> dict[str, Work]:
    """Return the edges with work of each process."""
    by_process: dict[str, list[Edge]] = defaultdict(list)
    for point in graph.points:
        for edge in point.edges:
            if edge.part:
                by_process[edge.process].append(edge)
    return {process: Work(edges) for process, edges in by_process.items()}


def matches(edge: Edge, saving: Saving) -> bool:
    """Return whether a saving can be in this work. Phases of tasks have no thread."""
    if edge.part not in PARTS[saving.part]:
        return False
    return not edge.thread or not saving.thread or edge.thread == saving.thread


def centred(edges: list[Edge], time: float) -> list[Edge]:
    """Return the edges of the event whose middle is at this time: that of the result to which a saving belongs.

    Threads of a process store results at the same time, so the one that begins last may be another one.
    """
    around = [edge for edge in edges if abs(middle_of(edge) - time) <= CLOCK_SECONDS]
    if not around:
        return []
    closest = min(around, key=lambda edge: abs(middle_of(edge) - time))
    bounds = closest.start, closest.end
    return [edge for edge in around if (edge.start, edge.end) == bounds]


def middle_of(edge: Edge) -> float:
    return (edge.start + edge.end) / 2


def narrowest(edges: list[Edge]) -> list[Edge]:
    """Return the edges of the event that overlap least: those that begin last."""
    if not edges:
        return []
    last = max(edge.start for edge in edges)
    return [edge for edge in edges if edge.start == last]
