"""Attribute the time of an iteration to stages, edges and causes, from the spans of a traced run."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

import msgspec

from common.analysis.comparison import find_result
from common.analysis.result import Result
from common.errors import RecordError
from common.flows.flow import DRIVER
from common.records.schema import Run

# In the order in which a message passes them, and in which charts stack them.
STAGES = (
    "make", "pack", "device to host", "submit", "serialise", "write", "wait", "transfer", "deserialise",
    "host to device", "unpack", "copy", "compute", "train", "sequence number", "synchronise", "loop",
)  # fmt: skip
# They count only while nothing else happens: a library's send or receive may wait for its peer, a graph's loop runs
# while another process works, and waiting is no work. The first one that happens gets the time.
LAST_STAGES = ("transfer", "loop", "wait")
WAITING_STAGES = ("wait", "loop")
SERIALISATION, PAGE_FAULTS, COPYING = "serialisation, page faults included", "page faults", "copying"
CAUSES = {
    SERIALISATION: ("serialise", "deserialise"),
    PAGE_FAULTS: (),  # known only if the configuration was also traced with --reuse-buffers
    COPYING: ("write", "copy", "transfer", "pack", "unpack", "device to host", "host to device"),
    "waiting": WAITING_STAGES,
}
OTHER_CAUSES = "other"
TYPE_HINT = "TorchTensorType"  # a data path with it does not pickle tensors: Ray's deserialisation copies them
MAX_UNEXPLAINED = 0.05  # of an iteration
Work = tuple[str, str]  # stage, edge


def attribute(run: Run) -> tuple[dict[str, float], float]:
    """Return the mean seconds of each stage per iteration, and the share of the iteration that the stages explain.

    In each thread the innermost span gets the time; threads that work at the same time share it equally. If no
    thread works, the first of LAST_STAGES gets it. Time without a span is not explained.
    """
    work = _attribute_work(run)
    totals = {name: sum(seconds for (stage, _), seconds in work.items() if stage == name) for name in STAGES}
    return {stage: total for stage, total in totals.items() if total}, sum(work.values()) / iteration_seconds(run)


def attribute_to_edges(run: Run) -> dict[str, float]:
    """Return the mean seconds of work for each edge per iteration, and of "wait" if no thread works."""
    totals: dict[str, float] = defaultdict(float)
    for (stage, edge), seconds in _attribute_work(run).items():
        totals["wait" if stage in WAITING_STAGES else edge] += seconds
    return dict(totals)


def attribute_to_causes(result: Result, traced: Sequence[Result]) -> dict[str, float]:
    """Return the mean seconds of each cause per iteration.

    If `traced` has the configuration with --reuse-buffers too, page faults are the difference of `deserialise`.
    """
    stages = attribute(result.traced_run)[0]
    causes = {cause: sum(stages.get(stage, 0.0) for stage in names) for cause, names in CAUSES.items() if names}
    if any(path.startswith(TYPE_HINT) for path in result.traced_run.data_paths.values()):
        copying = stages.get("deserialise", 0.0)
        causes[SERIALISATION] -= copying
        causes[COPYING] += copying
        flags = result.configuration.flags | {"reuse_buffers": True}
        warm = find_result(traced, result.workload, msgspec.structs.replace(result.configuration, flags=flags))
        if warm and flags != result.configuration.flags:
            faults = max(0.0, copying - attribute(warm.traced_run)[0].get("deserialise", 0.0))
            causes[COPYING] -= faults
            causes[PAGE_FAULTS] = faults
    causes[OTHER_CAUSES] = max(0.0, iteration_seconds(result.traced_run) - sum(causes.values()))
    return causes


def iteration_seconds(run: Run) -> float:
    """Return the mean seconds of the middle iterations."""
    return fmean(middle_iterations(run).values())


def middle_iterations(run: Run) -> dict[int, float]:
    """Return number and seconds of the middle half of the iterations by time, because some may have stalled."""
    seconds = [(end - start) * 1e-6 for start, end in run.iterations_us]
    order = sorted(range(len(seconds)), key=seconds.__getitem__)
    left_out = len(order) // 4
    return {number: seconds[number] for number in order[left_out : len(order) - left_out]}


def check_trace(result: Result) -> None:
    """Raise RecordError for a trace that must not be shown: time is not explained, or an edge was not seen."""
    explained, problem = attribute(result.traced_run)[1], _edge_problem(result)
    if not problem and abs(1 - explained) > MAX_UNEXPLAINED:
        problem = f"the stages add up to {explained:.1%} of the iteration"
    if problem:
        raise RecordError(f"{result.label}: {problem}: repeat the trace on an idle machine")


def _edge_problem(result: Result) -> str | None:
    """Return the first edge that its sender or its reader did not see, or that was read before it was sent."""
    run = result.traced_run
    if {span[3] for span in run.spans} == {"in one process"}:  # common/trace/spans.py
        return None
    times: dict[tuple[str, str, int], float] = {}
    for process, _, stage, _, number, start, end in run.spans:
        if stage in ("make", "sequence number"):
            times[process, stage, number] = start if stage == "make" else end
    for edge in result.workload.edges:
        for number, (start, _) in enumerate(run.iterations_us):
            sent = start if edge.source == DRIVER else times.get((edge.source, "make", number))
            read = times.get((edge.reader, "sequence number", number))
            if sent is None or read is None:
                return f"no process saw {edge} in iteration {number}"
            if read < sent:
                return f"{edge} was read before it was sent in iteration {number}: the clocks of the processes differ"
    return None


def _attribute_work(run: Run) -> dict[Work, float]:
    """Return the mean seconds of each stage and edge over the middle iterations."""
    numbers = middle_iterations(run)
    spans_by_iteration = defaultdict(list)
    for process, thread, stage, edge, number, start, end in run.spans:
        if number in numbers:
            spans_by_iteration[number].append(((process, thread), (stage, edge), start, end))
    totals: dict[Work, float] = defaultdict(float)
    for spans in spans_by_iteration.values():
        times = sorted({time for *_, start, end in spans for time in (start, end)})
        for begin, end in pairwise(times):
            for work, share in _share_interval(spans, begin, end).items():
                totals[work] += share * (end - begin) * 1e-6 / len(numbers)
    return totals


def _share_interval(spans: list[tuple[Any, Work, float, float]], begin: float, end: float) -> dict[Work, float]:
    """Return the shares of stages and edges in an interval in which no span begins or ends."""
    innermost: dict[Any, tuple[float, Work]] = {}
    for thread, work, span_start, span_end in spans:
        if span_start <= begin and span_end >= end and (thread not in innermost or span_start >= innermost[thread][0]):
            innermost[thread] = (span_start, work)
    current = [work for _, work in innermost.values()]
    counted = [work for work in current if work[0] not in LAST_STAGES]
    for stage in LAST_STAGES:
        counted = counted or [work for work in current if work[0] == stage]
    return {work: counted.count(work) / len(counted) for work in counted}
