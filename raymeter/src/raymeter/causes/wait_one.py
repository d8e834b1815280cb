"""Find loops that call ray.wait for one result at a time, while each call looks at many references.

Source: "Pattern: using ray.wait to limit the number of pending tasks" in Ray's documentation, whose window is small.
"""

from bisect import bisect_left
from itertools import accumulate
from statistics import mean

from raymeter.causes.savings import total
from raymeter.causes.waits import Counts, ReadyTimes, find_gaps, group_by_line
from raymeter.findings import Finding, Saving
from raymeter.profile.events import Call
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.units import format_milliseconds, significant

CAUSE = "ray.wait of one of many"
MIN_REFERENCES = 50  # that a call looks at, in the mean
MIN_CALLS = 20  # per step
MAX_READY_SHARE = 0.1  # of its references that a call returns
MAX_BATCH = 100  # results that one call may return instead
MIN_KNOWN = 0.5  # of the calls, whose results have a known time


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each line that takes few of many results at a time, again and again."""
    waits = [call for call in program.recording.calls if call.event == "wait" and call.ready]
    ready = ReadyTimes(program)
    counts = Counts(program)
    findings = []
    for line, calls in group_by_line(waits, steps).items():
        factor = counts.factor("wait", line)
        is_often = factor * len(calls) >= MIN_CALLS * steps.count
        if is_often and takes_few_of_many(calls):
            finding = make_finding(program, steps, calls, ready, factor)
            findings += [finding] if finding is not None else []
    return findings


def takes_few_of_many(calls: list[Call]) -> bool:
    looked_at = mean(call.count for call in calls)
    taken = mean(call.ready for call in calls)
    return looked_at >= MIN_REFERENCES and taken <= MAX_READY_SHARE * looked_at


def work_of(call: Call, ready: ReadyTimes) -> float | None:
    """Return the time of a call after its results were ready; None if it is not known when they were."""
    times = [ready.of(reference) for reference in call.objects]
    known = [time for time in times if time is not None]
    if not known:
        return None
    return max(0.0, call.end - max(call.start, *known) - call.own_seconds)


def make_finding(
    program: Program, steps: Steps, calls: list[Call], ready: ReadyTimes, factor: float
) -> Finding | None:
    looked_at = mean(call.count for call in calls)
    taken = mean(call.ready for call in calls)
    batch = min(MAX_BATCH, MAX_READY_SHARE * max(call.count for call in calls))
    share = max(0.0, 1 - taken / batch)
    work = [(call, work_of(call, ready)) for call in calls]
    known = [(call, seconds) for call, seconds in work if seconds is not None]
    if len(known) < MIN_KNOWN * len(calls):
        return None
    savings = [save_call(call, share * factor * seconds) for call, seconds in known]
    seconds = total(savings) / steps.count
    savings += save_dispatch(program, savings)
    per_step = significant(factor * len(calls) / steps.count)
    return Finding(
        cause=CAUSE,
        title=f"{per_step} times per step, ray.wait looks at {significant(looked_at, 2)} references to return "
        f"{significant(taken, 2)}: {format_milliseconds(seconds)} of work",
        line=calls[0].line,
        change=f"Take several results at once: `ray.wait(pending, num_returns=min({batch:.0f}, len(pending)))`, with a "
        "timeout if they come slowly. Or keep fewer tasks in flight: submit the next one when one has ended.",
        seconds=seconds,
        savings=savings,
    )


def save_call(call: Call, seconds: float) -> Saving:
    """Return a saving of the last part of a call, which is not waiting any more."""
    start = call.end - min(call.seconds, seconds) / 2
    return Saving(call.process, call.thread, start, seconds, "work")


def save_dispatch(program: Program, savings: list[Saving]) -> list[Saving]:
    """Return by how much earlier waiting tasks would begin.

    While a thread looks at references, it takes one of the cores from what begins and ends tasks.
    """
    cores = max(process.cores for process in program.recording.processes)
    starts = [saving.start for saving in savings]
    sums = [0.0, *accumulate(saving.seconds for saving in savings)]
    found = []
    for gap in find_gaps(program):
        first = bisect_left(starts, gap.start)
        last = bisect_left(starts, gap.end)
        seconds = min(gap.seconds, sums[last] - sums[first]) / cores
        middle = (gap.start + gap.end) / 2
        found.append(Saving(gap.process, 0, middle, seconds, "dispatch"))
    return [saving for saving in found if saving.seconds > 0]
