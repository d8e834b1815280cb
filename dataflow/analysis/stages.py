"""Attribute the time of an iteration to stages and causes, from the spans of a traced run."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median

from dataflow.analysis.links import clock_error_seconds
from dataflow.analysis.result import Result
from dataflow.errors import RecordError
from dataflow.flows.flow import DRIVER
from dataflow.records.schema import Run, Span

# In the order in which a message passes them, and in which charts stack them.
PAGE_FAULTS = "page faults"  # their time is not part of the stage in which they happened
STAGES = (
    "make", "pack", "device to host", "submit", "serialise", "write", "wait", "transfer", "deserialise",
    "host to device", "unpack", "copy", PAGE_FAULTS, "compute", "train", "sequence number", "synchronise", "loop",
)  # fmt: skip
# They count only while nothing else happens: a library's send or receive may wait for its peer, a graph's loop runs
# while another process works, and waiting is no work. The first one that happens gets the time.
LAST_STAGES = ("transfer", "loop", "wait")
SERIALISATION, COPYING, OTHER_CAUSES = "serialisation", "copying", "other"
CAUSES = {
    SERIALISATION: ("serialise", "deserialise"),
    PAGE_FAULTS: (PAGE_FAULTS,),
    COPYING: ("write", "copy", "pack", "unpack", "device to host", "host to device"),
    "sending": ("transfer",),
    "waiting": ("wait", "loop"),
}
ALL_CAUSES = (*CAUSES, OTHER_CAUSES)
TYPE_HINT = "TorchTensorType"  # a data path with it does not pickle tensors: Ray's deserialisation copies them
MAX_UNEXPLAINED = 0.05  # of an iteration


def attribute(run: Run) -> tuple[dict[str, float], float]:
    """Return the mean seconds of each stage per iteration, and the share of the iteration that the stages explain.

    In each thread the innermost span gets the time; threads that work at the same time share it equally. If no
    thread works, the first of LAST_STAGES gets it. Time without a span is not explained. The time of page faults is
    their number in a span times `fault_seconds`, at most the time of the span.
    """
    iterations, seconds_per_fault = middle_iterations(run), fault_seconds(run)
    totals = dict.fromkeys(STAGES, 0.0)
    for number in iterations:
        spans = [span for span in run.spans if span[3] == number]
        times = sorted({time for span in spans for time in span[4:6]})
        intervals = [((end - begin) * 1e-6, *_working(spans, begin, end)) for begin, end in pairwise(times)]
        own_seconds: dict[Span, float] = defaultdict(float)  # outside of inner spans
        for length, innermost, _ in intervals:
            for span in innermost:
                own_seconds[span] += length
        for length, _, working in intervals:
            for span in working:
                seconds = length / len(working) / len(iterations)
                in_faults = min(1.0, span[6] * seconds_per_fault / own_seconds[span])
                totals[span[2]] += (1 - in_faults) * seconds
                totals[PAGE_FAULTS] += in_faults * seconds
    return {stage: total for stage, total in totals.items() if total}, sum(totals.values()) / iteration_seconds(run)


def fault_seconds(run: Run) -> float:
    """Return the seconds that a page fault costs in this run: (cold copy - warm copy) / page faults of a cold copy."""
    warm = run.memcpy_before_seconds + run.memcpy_after_seconds
    cold = run.cold_copy_before_seconds + run.cold_copy_after_seconds
    if not run.cold_copy_faults or not warm or not cold:
        return 0.0
    return max(0.0, median(cold) - median(warm)) / run.cold_copy_faults


def attribute_to_causes(run: Run) -> dict[str, float]:
    """Return the mean seconds of each cause per iteration."""
    stages = attribute(run)[0]
    causes = {cause: sum(stages.get(stage, 0.0) for stage in names) for cause, names in CAUSES.items()}
    if any(path.startswith(TYPE_HINT) for path in run.data_paths.values()):
        causes[SERIALISATION] -= stages.get("deserialise", 0.0)
        causes[COPYING] += stages.get("deserialise", 0.0)
    causes[OTHER_CAUSES] = max(0.0, iteration_seconds(run) - sum(causes.values()))
    return causes


def mean_over_runs(function: Callable[[Run], Mapping[str, float]], runs: Sequence[Run]) -> dict[str, float]:
    """Return the mean of the seconds that `function` returns for each run."""
    totals: dict[str, float] = defaultdict(float)
    for run in runs:
        for name, seconds in function(run).items():
            totals[name] += seconds / len(runs)
    return dict(totals)


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
    for run in result.shown_runs:
        explained, problem = attribute(run)[1], _edge_problem(result, run)
        if not problem and abs(1 - explained) > MAX_UNEXPLAINED:
            problem = f"the stages add up to {explained:.1%} of the iteration"
        if problem:
            raise RecordError(f"{result.label}: {problem}: repeat the trace on an idle machine")


def _edge_problem(result: Result, run: Run) -> str | None:
    """Return the first edge that its sender or its reader did not see, or that was read before it was sent."""
    if result.transport.requirements.single_process:  # the driver's spans are those of all actors
        return None
    made = {(process, number): start for process, _, stage, number, start, *_ in run.spans if stage == "make"}
    read = {(process, number): end for process, _, stage, number, _, end, _ in run.spans if stage == "sequence number"}
    for edge in result.workload.edges:
        for number, (begin, _) in enumerate(run.iterations_us):
            sent = begin if edge.source == DRIVER else made.get((edge.source, number))
            received = read.get((edge.reader, number))
            if sent is None or received is None:
                return f"no process saw {edge} in iteration {number}"
            if received < sent - 1e6 * clock_error_seconds(result):
                return f"{edge} was read before it was sent in iteration {number}: the clocks of the processes differ"
    return None


def _working(spans: Sequence[Span], begin: float, end: float) -> tuple[list[Span], list[Span]]:
    """Return the innermost span of each thread in an interval in which no span begins or ends, and those that share it.

    These work, or else they are of the first of LAST_STAGES.
    """
    innermost: dict[tuple[str, int], Span] = {}
    for span in spans:
        process, thread, _, _, start, stop, _ = span
        key = process, thread
        if start <= begin and stop >= end and (key not in innermost or start >= innermost[key][4]):
            innermost[key] = span
    working = [span for span in innermost.values() if span[2] not in LAST_STAGES]
    for stage in LAST_STAGES:
        working = working or [span for span in innermost.values() if span[2] == stage]
    return [*innermost.values()], working
