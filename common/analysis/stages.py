"""Where the time of a trip goes, from the spans of a traced run. Nothing here is stored."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from common.analysis.results import Result
from common.flow.flow import DRIVER
from common.record.schema import Edge, Run

# In the order of a message's way; the chart stacks them so.
STAGES = (
    "make", "pack", "device to host", "submit", "serialise", "write", "wait", "transfer", "deserialise",
    "host to device", "unpack", "copy", "compute", "train", "stamp", "synchronise", "loop",
)  # fmt: skip
# What counts only where nothing else goes on: a library's send or receive, which may be waiting for its other
# end; the turning of a graph's loop, which a process does while another one works already; and waiting.
LAST = ("transfer", "loop", "wait")
Work = tuple[str, str]  # stage and edge
CAUSES = {
    "serialisation, page faults included": ("serialise", "deserialise"),
    "page faults": (),  # only where the row was traced WARM too; elsewhere they are inside the others
    "copying": ("write", "copy", "transfer", "pack", "unpack", "device to host", "host to device"),
    "waiting": ("wait", "loop"),
}
WARM = "--reuse-buffers"  # what a row lacks with it is the page faults of its readers, and nothing else
HINT = "TorchTensorType"  # with it a graph does not pickle tensors: what Ray deserialises then is copied out


def attribute(run: Run) -> tuple[dict[str, float], float]:
    """Mean seconds of each stage over the middle trips, and the share of these trips that they explain.

    Every moment of a trip belongs to what is done then: in each thread the innermost span, between
    several at work in equal parts. A moment in which none works belongs to the first of LAST that goes on.
    A moment of which no process says anything is not explained, and the sum of the stages falls short of the
    trip by it. As the driver's waiting covers most of a trip, this alone does not show that every role was
    heard; see `defect`.
    """
    totals: dict[str, float] = defaultdict(float)
    for (stage, _edge), seconds in _totals(run).items():
        totals[stage] += seconds
    explained = sum(totals.values()) / trip_seconds(run)
    return {stage: totals[stage] for stage in STAGES if totals[stage]}, explained


def by_cause(result: Result, traced: Sequence[Result]) -> dict[str, float]:
    """Mean seconds a trip of those of CAUSES that can be told, and of "other", which is the rest of it.

    Args:
        result: a row that was traced.
        traced: rows beside it, of which one may be the same WARM.
    """
    run = result.traced_run
    stages = attribute(run)[0]
    found = {cause: sum(stages.get(stage, 0.0) for stage in own) for cause, own in CAUSES.items() if own}
    if any(path.startswith(HINT) for path in run.path.values()):
        copied_out = stages.get("deserialise", 0.0)
        warm = [attribute(o.traced_run)[0].get("deserialise", 0.0) for o in traced if o.name == f"{result.name} {WARM}"]
        faults = max(0.0, copied_out - warm[0]) if warm else 0.0
        found |= {"serialisation, page faults included": found["serialisation, page faults included"] - copied_out, "copying": found["copying"] + copied_out - faults}
        found |= {"page faults": faults} if warm else {}
    return found | {"other": max(0.0, trip_seconds(run) - sum(found.values()))}


def trip_seconds(run: Run) -> float:
    """Mean time of the middle trips, by the driver's clock."""
    trips = middle_trips(run)
    return sum(_seconds(run)[trip] for trip in trips) / len(trips)


def _seconds(run: Run) -> list[float]:
    """Of what was traced: each trip, or each episode where trips overlap."""
    return [(end - start) * 1e-6 for start, end in run.trips_us]


def by_edge(run: Run) -> dict[str, float]:
    """Mean seconds a trip of the work for each edge; moments in which all wait are "wait", whoever waits."""
    totals: dict[str, float] = defaultdict(float)
    for (stage, edge), seconds in _totals(run).items():
        totals["wait" if stage in ("wait", "loop") else edge] += seconds
    return dict(totals)


def middle_trips(run: Run) -> list[int]:
    """The trips of the two middle quarters by their time: one that stalled would hide where the others' time goes."""
    seconds = _seconds(run)
    order = sorted(range(len(seconds)), key=seconds.__getitem__)
    left_out = len(order) // 4
    return order[left_out : len(order) - left_out]


def defect(run: Run, edges: Sequence[Edge]) -> str | None:
    """Why a trace is not to be believed: an edge that no reader or sender saw, or one read before it was sent."""
    if {span[3] for span in run.spans} == {"in one process"}:
        return None
    ends: dict[tuple[str, str, int], float] = {}
    for process, _, stage, _, trip, start, end in run.spans:
        if stage in ("make", "stamp"):
            ends[process, stage, trip] = end if stage == "stamp" else start
    for edge in edges:
        for trip in range(len(run.trips_us)):
            sent = run.trips_us[trip][0] if edge.source == DRIVER else ends.get((edge.source, "make", trip))
            read = ends.get((edge.reader, "stamp", trip))
            name = f"{edge.source} -> {edge.reader} in trip {trip}"
            if sent is None or read is None:
                return f"nobody saw {name}"
            if read < sent:
                return f"{name} was read before it was sent: the clocks of the processes disagree"
    return None


def _totals(run: Run) -> dict[tuple[str, str], float]:
    """Mean seconds of each stage and edge over the middle trips."""
    trips = middle_trips(run)
    by_trip = defaultdict(list)
    for process, thread, stage, edge, trip, start, end in run.spans:
        if trip in trips:
            by_trip[trip].append(((process, thread), (stage, edge), start, end))
    totals: dict[tuple[str, str], float] = defaultdict(float)
    for spans in by_trip.values():
        moments = sorted({moment for *_, start, end in spans for moment in (start, end)})
        for begin, finish in pairwise(moments):
            for work, share in _busy(spans, begin, finish).items():
                totals[work] += share * (finish - begin) * 1e-6 / len(trips)
    return totals


def _busy(spans: list[tuple[Any, Work, float, float]], begin: float, finish: float) -> dict[Work, float]:
    """Which stages and edges the moments between two boundaries belong to, and with what share."""
    innermost: dict[Any, tuple[float, Work]] = {}
    for thread, work, start, end in spans:
        if start <= begin and end >= finish and (thread not in innermost or start >= innermost[thread][0]):
            innermost[thread] = (start, work)
    going_on = [work for _, work in innermost.values()]
    working = [work for work in going_on if work[0] not in LAST]
    for stage in LAST:
        working = working or [work for work in going_on if work[0] == stage]
    return {work: working.count(work) / len(working) for work in working}
