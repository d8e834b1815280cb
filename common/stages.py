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


def attribute(case: dict[str, Any]) -> tuple[dict[str, float], float]:
    """Mean seconds a trip of each stage, and the share of the trips that they explain.

    Every moment of a trip belongs to what is done then: in each thread the innermost span, between
    several at work in equal parts. A moment in which none works belongs to the first of LAST that goes on.
    A moment of which no process says anything is not explained: the sum of the stages falls short of the
    trip by it, and by whatever the clocks of the processes disagree.
    """
    by_trip = defaultdict(list)
    for process, thread, stage, _edge, trip, start, end in case["spans"]:
        by_trip[trip].append(((process, thread), stage, start, end))
    totals: dict[str, float] = defaultdict(float)
    for spans in by_trip.values():
        moments = sorted({moment for *_, start, end in spans for moment in (start, end)})
        for begin, finish in pairwise(moments):
            for stage, share in _busy(spans, begin, finish).items():
                totals[stage] += share * (finish - begin) * 1e-6
    trips = len(case["trips_us"])
    explained = sum(totals.values()) / sum(case["seconds"])
    return {stage: totals[stage] / trips for stage in STAGES if totals[stage]}, explained


def _busy(spans: list[tuple[Any, str, float, float]], begin: float, finish: float) -> dict[str, float]:
    """Which stages the moments between two boundaries belong to, and with what share."""
    innermost: dict[Any, tuple[float, str]] = {}
    for thread, stage, start, end in spans:
        if start <= begin and end >= finish and (thread not in innermost or start >= innermost[thread][0]):
            innermost[thread] = (start, stage)
    stages = [stage for _, stage in innermost.values()]
    working = [stage for stage in stages if stage not in LAST] or [stage for stage in LAST if stage in stages][:1]
    return {stage: working.count(stage) / len(working) for stage in working}
