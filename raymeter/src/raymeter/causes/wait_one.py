# SPDX-License-Identifier: Apache-2.0
"""Find loops that call ray.wait for one result at a time, while each call looks at many references.

Source: "Pattern: using ray.wait to limit the number of pending tasks" in Ray's documentation, whose window is small.
"""

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from statistics import mean

from raymeter.causes.savings import total
from raymeter.causes.waits import ReadyTimes, find_gaps, group_by_line
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


@dataclass(frozen=True)
class Loop:
    """The calls of ray.wait from one line."""

    calls: list[Call]  # that were written

    @property
    def count(self) -> float:
        """Return how many calls were made."""
        return sum(call.weight for call in self.calls)

    @property
    def looked_at(self) -> float:
        """Return at how many references a call looks."""
        return mean(call.count for call in self.calls)

    @property
    def taken(self) -> float:
        """Return how many results a call takes."""
        return mean(call.ready for call in self.calls)

    @property
    def batch(self) -> float:
        """Return how many results one call may take instead."""
        most = max(call.count for call in self.calls)
        return min(MAX_BATCH, MAX_READY_SHARE * most)

    def takes_few_of_many(self) -> bool:
        looked_at = self.looked_at
        return looked_at >= MIN_REFERENCES and self.taken <= MAX_READY_SHARE * looked_at


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each line that takes few of many results at a time, again and again."""
    ready = ReadyTimes(program)
    findings = []
    for loop in find_loops(program, steps):
        work = known_work(loop, ready)
        if len(work) >= MIN_KNOWN * len(loop.calls):
            finding = make_finding(program, steps, loop, work)
            findings.append(finding)
    return findings


def find_loops(program: Program, steps: Steps) -> list[Loop]:
    """Return the lines that take few of many results often."""
    waits = [call for call in program.recording.calls if call.event == "wait" and call.ready]
    loops = []
    for calls in group_by_line(waits, steps).values():
        loop = Loop(calls)
        is_often = loop.count >= MIN_CALLS * steps.count
        if is_often and loop.takes_few_of_many():
            loops.append(loop)
    return loops


def known_work(loop: Loop, ready: ReadyTimes) -> list[tuple[Call, float]]:
    """Return the calls for which it is known when their results were ready, each with its time after that."""
    work = []
    for call in loop.calls:
        seconds = work_of(call, ready)
        if seconds is not None:
            work.append((call, seconds))
    return work


def work_of(call: Call, ready: ReadyTimes) -> float | None:
    """Return the time of a call after its results were ready; None if it is not known when they were."""
    times = [ready.of(reference) for reference in call.objects]
    known = [time for time in times if time is not None]
    if not known:
        return None
    start = max(call.start, *known)
    seconds = call.end - start - call.own_seconds
    return max(0.0, seconds)


def make_finding(
    program: Program, steps: Steps, loop: Loop, work: list[tuple[Call, float]]
) -> Finding:
    """Return the finding for a loop of ray.wait.

    work: its calls, with the seconds that each one took after a result was ready.
    """
    batch = loop.batch
    savings = save_work(loop, work)
    seconds = total(savings) / steps.count
    savings += save_dispatch(program, savings)
    per_step = significant(loop.count / steps.count)
    looked_at = significant(loop.looked_at, 2)
    taken = significant(loop.taken, 2)
    return Finding(
        cause=CAUSE,
        title=f"{per_step} times per step, ray.wait looks at {looked_at} references to return "
        f"{taken}: {format_milliseconds(seconds)} of work",
        line=loop.calls[0].line,
        change=f"Take several results at once: `ray.wait(pending, num_returns=min({batch:.0f}, len(pending)))`, with a "
        "timeout if they come slowly. Or keep fewer tasks in flight: submit the next one when one has ended.",
        seconds=seconds,
        savings=savings,
    )


def save_work(loop: Loop, work: list[tuple[Call, float]]) -> list[Saving]:
    """Return what the calls take less if each of them returns a batch."""
    share = max(0.0, 1 - loop.taken / loop.batch)
    savings = []
    for call, seconds in work:
        saved = share * call.weight * seconds
        saving = save_call(call, saved)
        savings.append(saving)
    return savings


def save_call(call: Call, seconds: float) -> Saving:
    """Return a saving of the last part of a call, which is not waiting any more."""
    length = min(call.seconds, seconds)
    middle = call.end - length / 2
    return Saving(call.process, call.thread, middle, seconds, "work")


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
        saved = sums[last] - sums[first]
        seconds = min(gap.seconds, saved) / cores
        if seconds > 0:
            middle = (gap.start + gap.end) / 2
            saving = Saving(gap.process, 0, middle, seconds, "dispatch")
            found.append(saving)
    return found
