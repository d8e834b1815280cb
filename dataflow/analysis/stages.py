# SPDX-License-Identifier: Apache-2.0
"""Attribute the time of an iteration to stages and causes, from the spans of a traced run."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, pairwise
from statistics import fmean, median
from typing import NamedTuple

from dataflow.analysis.result import Result
from dataflow.errors import RecordError
from dataflow.flows.flow import DRIVER
from dataflow.records.schema import Run
from dataflow.trace.spans import STAGES

PAGE_FAULTS = "page faults"  # their time is not part of the stage in which they happened
# They count only while nothing else happens: a library's send or receive may wait for its peer, a graph's loop runs
# while another process works, and waiting is no work. The first one that happens gets the time.
LAST_STAGES = ("transfer", "loop", "wait")
SERIALISATION = "serialisation"
COPYING = "copying"
OTHER = "other"
CAUSES = (SERIALISATION, PAGE_FAULTS, COPYING, "sending", "waiting", OTHER)  # as charts stack them
TYPE_HINT = "TorchTensorType"  # a data path with it does not pickle tensors: Ray's deserialisation copies them
MAX_UNEXPLAINED = 0.05  # of an iteration
MAX_CLOCK_ERROR = 0.05  # of a time that begins on one node and ends on another


class TracedSpan(NamedTuple):
    """One entry of `Run.spans`."""

    process: str
    thread: int
    stage: str
    iteration: int
    begin_us: float
    end_us: float
    faults: int  # outside of inner spans


Spans = list[TracedSpan]
Moments = dict[tuple[str, int], float]  # process and iteration -> µs


class Interval(NamedTuple):
    """A part of an iteration in which no span begins or ends."""

    seconds: float
    innermost: Spans  # of each thread


def attribute(run: Run) -> tuple[dict[str, float], float]:
    """Return the mean seconds of each stage per iteration, and the share of the iteration that the stages explain.

    In each thread the innermost span gets the time; threads that work at the same time share it equally. The time of
    page faults is their number in a span times `fault_seconds`, at most the time of the span.
    """
    iterations = middle_iterations(run)
    count = len(iterations)
    seconds_per_fault = fault_seconds(run)
    all_spans = _spans_of(run)
    totals = dict.fromkeys(STAGES, 0.0)
    for number in iterations:
        spans = [span for span in all_spans if span.iteration == number]
        for stage, seconds in _stage_seconds(spans, seconds_per_fault):
            totals[stage] += seconds / count
    attributed_seconds = sum(totals.values())
    total_seconds = iteration_seconds(run)
    explained_share = attributed_seconds / total_seconds
    seen = {stage: total for stage, total in totals.items() if total}
    return seen, explained_share


def _spans_of(run: Run) -> Spans:
    """Return the spans of a run with names for their values."""
    return [TracedSpan(*values) for values in run.spans]


def _stage_seconds(spans: Spans, seconds_per_fault: float) -> list[tuple[str, float]]:
    """Return the parts of the time of an iteration, as stage and seconds. Most stages have several parts."""
    intervals = _cut_into_intervals(spans)
    own_seconds = _own_seconds(intervals)
    parts = []
    for span, seconds in _share_intervals(intervals):
        seconds_in_faults = span.faults * seconds_per_fault
        fault_share = min(1.0, seconds_in_faults / own_seconds[span])
        work_share = 1 - fault_share
        work = (span.stage, work_share * seconds)
        faults = (PAGE_FAULTS, fault_share * seconds)
        parts += [work, faults]
    return parts


def _cut_into_intervals(spans: Spans) -> list[Interval]:
    """Return the intervals between all begins and ends of spans, in order."""
    begins = {span.begin_us for span in spans}
    ends = {span.end_us for span in spans}
    begun_at: dict[float, Spans] = defaultdict(list)
    for span in spans:
        begun_at[span.begin_us].append(span)
    intervals = []
    open_spans: Spans = []  # in the order of their begins
    times = sorted(begins | ends)
    for begin, end in pairwise(times):
        open_spans = [span for span in open_spans if span.end_us > begin]
        open_spans += [span for span in begun_at[begin] if span.end_us > begin]
        seconds = (end - begin) * 1e-6
        innermost = _innermost_spans(open_spans)
        interval = Interval(seconds, innermost)
        intervals.append(interval)
    return intervals


def _own_seconds(intervals: list[Interval]) -> dict[TracedSpan, float]:
    """Return the seconds of each span outside of the spans inside it."""
    own_seconds: dict[TracedSpan, float] = defaultdict(float)
    for interval in intervals:
        for span in interval.innermost:
            own_seconds[span] += interval.seconds
    return own_seconds


def _share_intervals(intervals: list[Interval]) -> list[tuple[TracedSpan, float]]:
    """Return the seconds that each working span gets in each interval."""
    shares = []
    for interval in intervals:
        working = _working_spans(interval.innermost)
        for span in working:
            seconds = interval.seconds / len(working)
            shares.append((span, seconds))
    return shares


def _innermost_spans(open_spans: Spans) -> Spans:
    """Return each thread's innermost span of those that are open, which are in the order of their begins."""
    last_begun = {}  # by thread
    for span in open_spans:
        thread = (span.process, span.thread)
        last_begun[thread] = span
    return list(last_begun.values())


def _working_spans(innermost: Spans) -> Spans:
    """Return the spans that share the time of an interval: those of LAST_STAGES only if there are no others."""
    working = [span for span in innermost if span.stage not in LAST_STAGES]
    for stage in LAST_STAGES:
        if not working:
            working = [span for span in innermost if span.stage == stage]
    return working


def fault_seconds(run: Run) -> float:
    """Return the seconds that a page fault costs in this run: (cold copy - warm copy) / page faults of a cold copy."""
    warm = run.memcpy_before_seconds + run.memcpy_after_seconds
    cold = run.cold_copy_before_seconds + run.cold_copy_after_seconds
    faults = run.cold_copy_faults
    if not faults or not warm or not cold:
        return 0.0
    extra_seconds = median(cold) - median(warm)
    return max(0.0, extra_seconds) / faults


def attribute_to_causes(run: Run) -> dict[str, float]:
    """Return the mean seconds of each cause per iteration."""
    causes = dict.fromkeys(CAUSES[:-1], 0.0)
    stages, _ = attribute(run)
    for stage, seconds in stages.items():
        cause = _cause_of(stage, run)
        if cause:
            causes[cause] += seconds
    attributed_seconds = sum(causes.values())
    other_seconds = iteration_seconds(run) - attributed_seconds
    causes[OTHER] = max(0.0, other_seconds)
    return causes


def _cause_of(stage: str, run: Run) -> str | None:
    """Return the cause of the time of a stage; None: it has no cause of its own."""
    paths = run.data_paths.values()
    is_copied = any(path.startswith(TYPE_HINT) for path in paths)
    if is_copied and stage == "deserialise":
        return COPYING
    return STAGES[stage].get("cause")


def mean_over_runs(
    function: Callable[[Run], Mapping[str, float]], runs: Sequence[Run]
) -> dict[str, float]:
    """Return the mean of each value over the runs. A value that a run does not have counts as 0."""
    of_runs = [function(run) for run in runs]
    means = {}
    for name in dict.fromkeys(chain(*of_runs)):
        values = [of_run.get(name, 0.0) for of_run in of_runs]
        means[name] = fmean(values)
    return means


def iteration_seconds(run: Run) -> float:
    """Return the mean seconds of the middle iterations."""
    return fmean(middle_iterations(run).values())


def middle_iterations(run: Run) -> dict[int, float]:
    """Return number and seconds of the middle half of the iterations by time, because some may have stalled."""
    seconds: dict[int, float] = {}
    for number, (start, end) in enumerate(run.iterations_us):
        seconds[number] = (end - start) * 1e-6
    fastest_first = sorted(seconds, key=seconds.__getitem__)
    count = len(seconds)
    left_out = count // 4  # at each end
    middle = fastest_first[left_out : count - left_out]
    return {number: seconds[number] for number in middle}


def clock_error_seconds(result: Result) -> float:
    """Return the largest error of a time between two nodes. The driver's node has the driver's clock."""
    largest = 0.0
    for run in result.shown_runs:
        costs = [cost for node, cost in run.node_costs.items() if node != "0"]
        errors = sorted(cost.clock_error_seconds for cost in costs)
        two_largest = errors[-2:]
        largest = max(largest, sum(two_largest))
    return largest


def is_within_clock_error(result: Result, seconds: float) -> bool:
    """Return whether a time between processes is too short for the clocks of the nodes."""
    return clock_error_seconds(result) > MAX_CLOCK_ERROR * abs(seconds)


def check_trace(result: Result) -> None:
    """Raise RecordError if a message was not seen, or read before it was sent, or if stages do not explain the time."""
    problems = []
    for run in result.shown_runs:
        problems += _find_wrong_orders(result, run)
        _, explained = attribute(run)
        if abs(1 - explained) > MAX_UNEXPLAINED:
            problems.append(f"the stages add up to {explained:.1%} of the iteration")
    if problems:
        raise RecordError(f"{result.label}: {problems[0]}: repeat the trace on an idle machine")


def _find_wrong_orders(result: Result, run: Run) -> list[str]:
    """Return a sentence for each message that was not seen, or was read before its sender began to make it.

    The error of the clocks is allowed. In one process nothing is checked, because the driver has all spans.
    """
    if result.transport.requirements.single_process:
        return []  # the driver's spans are those of all actors
    made_us, read_us = _message_times(run)
    tolerated_us = 1e6 * clock_error_seconds(result)
    for number, (begin, _) in enumerate(run.iterations_us):
        made_us[DRIVER, number] = begin
    problems = []
    for edge in result.workload.edges:
        for number in range(len(run.iterations_us)):
            sender = (edge.source, number)
            reader = (edge.reader, number)
            began_to_make = made_us.get(sender)
            had_read = read_us.get(reader)
            if began_to_make is None or had_read is None:
                problems.append(f"no process saw {edge} in iteration {number}")
            elif had_read < began_to_make - tolerated_us:
                early = f"{edge} was read before it was sent in iteration {number}"
                problems.append(f"{early}: the clocks of the processes differ")
    return problems


def _message_times(run: Run) -> tuple[Moments, Moments]:
    """Return when each process began to make its message, and when it had read its inputs."""
    made_us: Moments = {}
    read_us: Moments = {}
    for span in _spans_of(run):
        message = (span.process, span.iteration)
        if span.stage == "make":
            made_us[message] = span.begin_us
        elif span.stage == "sequence number":
            read_us[message] = span.end_us
    return made_us, read_us
