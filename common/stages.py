"""Where the time of a trip goes, from the spans of a traced record. Nothing here is stored."""

from collections import defaultdict
from itertools import pairwise
from typing import Any

# In the order of a message's way; the chart stacks them so.
STAGES = (
    "make", "device to host", "submit", "serialise", "write", "wait", "transfer", "deserialise", "host to device",
    "copy", "stamp", "synchronise", "loop",
)  # fmt: skip
# What counts only where nothing else goes on: a library's send or receive, which may be waiting for its other
# end; the turning of a graph's loop, which a process does while another one works already; and waiting.
LAST = ("transfer", "loop", "wait")
Work = tuple[str, str]  # stage and edge


def attribute(case: dict[str, Any]) -> tuple[dict[str, float], float]:
    """Mean seconds a trip of each stage, and the share of the trips that they explain.

    Every moment of a trip belongs to what is done then: in each thread the innermost span, between
    several at work in equal parts. A moment in which none works belongs to the first of LAST that goes on.
    A moment of which no process says anything is not explained: the sum of the stages falls short of the
    trip by it, and by whatever the clocks of the processes disagree.
    """
    totals: dict[str, float] = defaultdict(float)
    for (stage, _edge), seconds in _totals(case).items():
        totals[stage] += seconds
    explained = sum(totals.values()) * len(case["trips_us"]) / sum(case["seconds"])
    return {stage: totals[stage] for stage in STAGES if totals[stage]}, explained


def by_edge(case: dict[str, Any]) -> dict[str, float]:
    """Mean seconds a trip of the work for each edge; moments in which all wait are "wait", whoever waits."""
    totals: dict[str, float] = defaultdict(float)
    for (stage, edge), seconds in _totals(case).items():
        totals["wait" if stage in ("wait", "loop") else edge] += seconds
    return dict(totals)


def _totals(case: dict[str, Any]) -> dict[tuple[str, str], float]:
    """Mean seconds a trip of each stage and edge."""
    by_trip = defaultdict(list)
    for process, thread, stage, edge, trip, start, end in case["spans"]:
        by_trip[trip].append(((process, thread), (stage, edge), start, end))
    totals: dict[tuple[str, str], float] = defaultdict(float)
    for spans in by_trip.values():
        moments = sorted({moment for *_, start, end in spans for moment in (start, end)})
        for begin, finish in pairwise(moments):
            for work, share in _busy(spans, begin, finish).items():
                totals[work] += share * (finish - begin) * 1e-6 / len(case["trips_us"])
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
