"""Attribute the time of an iteration to stages and causes, from the spans of a traced run."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, pairwise, product
from statistics import fmean, median

from dataflow.analysis.result import Result
from dataflow.errors import RecordError
from dataflow.flows.flow import DRIVER
from dataflow.records.schema import Run, Span
from dataflow.trace.spans import STAGES

PAGE_FAULTS = "page faults"  # their time is not part of the stage in which they happened
# They count only while nothing else happens: a library's send or receive may wait for its peer, a graph's loop runs
# while another process works, and waiting is no work. The first one that happens gets the time.
LAST_STAGES = ("transfer", "loop", "wait")
SERIALISATION, COPYING, OTHER = "serialisation", "copying", "other"
CAUSES = (SERIALISATION, PAGE_FAULTS, COPYING, "sending", "waiting", OTHER)  # as charts stack them
TYPE_HINT = "TorchTensorType"  # a data path with it does not pickle tensors: Ray's deserialisation copies them
MAX_UNEXPLAINED = 0.05  # of an iteration
MAX_CLOCK_ERROR = 0.05  # of a time that begins on one node and ends on another


def attribute(run: Run) -> tuple[dict[str, float], float]:
    """Return the mean seconds of each stage per iteration, and the share of the iteration that the stages explain.

    In each thread the innermost span gets the time; threads that work at the same time share it equally. The time of
    page faults is their number in a span times `fault_seconds`, at most the time of the span.
    """
    iterations, seconds_per_fault = middle_iterations(run), fault_seconds(run)
    totals = dict.fromkeys(STAGES, 0.0)
    for number in iterations:
        spans = [span for span in run.spans if span[3] == number]
        shares: list[tuple[Span, float]] = []
        own_seconds: dict[Span, float] = defaultdict(float)  # outside of inner spans
        for begin, end in pairwise(sorted({time for span in spans for time in span[4:6]})):
            innermost, working = _working(spans, begin, end)
            for span in innermost:
                own_seconds[span] += (end - begin) * 1e-6
            shares += [(span, (end - begin) * 1e-6 / len(working)) for span in working]
        for span, seconds in shares:
            in_faults = min(1.0, span[6] * seconds_per_fault / own_seconds[span])
            totals[span[2]] += (1 - in_faults) * seconds / len(iterations)
            totals[PAGE_FAULTS] += in_faults * seconds / len(iterations)
    return {stage: total for stage, total in totals.items() if total}, sum(
        totals.values()
    ) / iteration_seconds(run)


def fault_seconds(run: Run) -> float:
    """Return the seconds that a page fault costs in this run: (cold copy - warm copy) / page faults of a cold copy."""
    warm = run.memcpy_before_seconds + run.memcpy_after_seconds
    cold = run.cold_copy_before_seconds + run.cold_copy_after_seconds
    if not run.cold_copy_faults or not warm or not cold:
        return 0.0
    return max(0.0, median(cold) - median(warm)) / run.cold_copy_faults


def attribute_to_causes(run: Run) -> dict[str, float]:
    """Return the mean seconds of each cause per iteration."""
    causes = dict.fromkeys(CAUSES[:-1], 0.0)
    is_copied = any(path.startswith(TYPE_HINT) for path in run.data_paths.values())
    for stage, seconds in attribute(run)[0].items():
        cause = COPYING if is_copied and stage == "deserialise" else STAGES[stage].get("cause")
        if cause:
            causes[cause] += seconds
    causes[OTHER] = max(0.0, iteration_seconds(run) - sum(causes.values()))
    return causes


def mean_over_runs(
    function: Callable[[Run], Mapping[str, float]], runs: Sequence[Run]
) -> dict[str, float]:
    parts = [function(run) for run in runs]
    return {
        name: fmean(part.get(name, 0.0) for part in parts) for name in dict.fromkeys(chain(*parts))
    }


def iteration_seconds(run: Run) -> float:
    """Return the mean seconds of the middle iterations."""
    return fmean(middle_iterations(run).values())


def middle_iterations(run: Run) -> dict[int, float]:
    """Return number and seconds of the middle half of the iterations by time, because some may have stalled."""
    seconds = {
        number: (end - start) * 1e-6 for number, (start, end) in enumerate(run.iterations_us)
    }
    order, left_out = sorted(seconds, key=seconds.__getitem__), len(seconds) // 4
    return {number: seconds[number] for number in order[left_out : len(order) - left_out]}


def clock_error_seconds(result: Result) -> float:
    """Return the largest error of a time between two nodes. The driver's node has the driver's clock."""
    errors = [[cost.clock_error_seconds for node, cost in run.node_costs.items() if node != "0"]
              for run in result.shown_runs]  # fmt: skip
    return max((sum(sorted(of_run)[-2:]) for of_run in errors), default=0.0)


def is_within_clock_error(result: Result, seconds: float) -> bool:
    """Return whether a time between processes is too short for the clocks of the nodes."""
    return clock_error_seconds(result) > MAX_CLOCK_ERROR * abs(seconds)


def check_trace(result: Result) -> None:
    """Raise RecordError if a message was not seen, or read before it was sent, or if stages do not explain the time."""
    problems = []
    for run in result.shown_runs:
        made = {
            (actor, number): start
            for actor, _, stage, number, start, *_ in run.spans
            if stage == "make"
        }
        read = {
            (actor, number): end
            for actor, _, stage, number, _, end, _ in run.spans
            if stage == "sequence number"
        }
        # In a single process, the driver's spans are those of all actors.
        edges = () if result.transport.requirements.single_process else result.workload.edges
        for edge, (number, (begin, _)) in product(edges, enumerate(run.iterations_us)):
            sent = begin if edge.source == DRIVER else made.get((edge.source, number))
            received = read.get((edge.reader, number))
            if sent is None or received is None:
                problems.append(f"no process saw {edge} in iteration {number}")
            elif received < sent - 1e6 * clock_error_seconds(result):
                early = f"{edge} was read before it was sent in iteration {number}"
                problems.append(f"{early}: the clocks of the processes differ")
        explained = attribute(run)[1]
        if abs(1 - explained) > MAX_UNEXPLAINED:
            problems.append(f"the stages add up to {explained:.1%} of the iteration")
    if problems:
        raise RecordError(f"{result.label}: {problems[0]}: repeat the trace on an idle machine")


def _working(spans: Sequence[Span], begin: float, end: float) -> tuple[list[Span], list[Span]]:
    """Return each thread's innermost span in an interval without begins and ends of spans, and those that share it."""
    open_spans = sorted(
        (span for span in spans if span[4] <= begin and span[5] >= end), key=lambda span: span[4]
    )
    innermost = [
        *{span[:2]: span for span in open_spans}.values()
    ]  # of each thread, the one that began last
    working = [span for span in innermost if span[2] not in LAST_STAGES]
    for stage in LAST_STAGES:
        working = working or [span for span in innermost if span[2] == stage]
    return innermost, working
