# SPDX-License-Identifier: Apache-2.0
"""Find loops that ask whether results are ready, and sleep in between, also when they are.

A poll is a ray.wait in a loop that sleeps, as the code of the program shows. Ray's own wait ends as soon as enough
results are ready, so nothing has to sleep. In a replay without the sleeps, the last poll ends when its results are
ready.
"""

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from raymeter.causes.waits import ReadyTimes, with_line_in_steps
from raymeter.findings import Finding, Saving
from raymeter.profile.events import Call
from raymeter.profile.program import Program
from raymeter.profile.sleeps import Sleep, find_sleep
from raymeter.profile.steps import Steps
from raymeter.units import format_milliseconds, significant

CAUSE = "a loop sleeps while results are ready"
MIN_SHARE = 0.8  # of its sleep that a gap between two calls lasts at least
UNKNOWN = (
    "raymeter does not know how long the loop sleeps, and counts all time before each ray.wait."
)

Thread = tuple[str, int, str]  # process, thread and task


@dataclass(frozen=True)
class Poll:
    """A call of ray.wait, and the gap before it, in which its thread has slept."""

    call: Call
    gap_start: float
    slept_seconds: float
    late_seconds: float  # during which all that it returned was ready already

    @property
    def saving(self) -> Saving:
        """Return the saving of the sleep, at the middle of the gap."""
        middle = (self.gap_start + self.call.start) / 2
        call = self.call
        return Saving(call.process, call.thread, middle, self.slept_seconds, "execute")


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each line that polls with sleeps in between, and so sees results late."""
    waits = [call for call in program.recording.calls if call.event == "wait"]
    lines = {call.line for call in with_line_in_steps(waits, steps)}
    findings = []
    for line in sorted(lines):
        sleep = find_sleep(line, program.recording.start)
        if sleep is None:
            continue
        polls = find_polls(program, steps, line, sleep)
        finding = make_finding(steps, line, sleep, polls)
        if finding is not None:
            findings.append(finding)
    return findings


def find_polls(program: Program, steps: Steps, line: str, sleep: Sleep) -> list[Poll]:
    """Return the polls of a line in the steps that come after a sleep."""
    by_thread: dict[Thread, list[Call]] = defaultdict(list)
    for call in program.recording.calls:
        by_thread[call.process, call.thread, call.by].append(call)
    ready = ReadyTimes(program)
    polls = []
    for calls in by_thread.values():
        for last, call in pairwise(calls):
            is_poll = call.event == "wait" and call.line == line
            if not is_poll or steps.of(last.end) is None:
                continue
            gap = call.start - last.end
            slept = gap if sleep.seconds is None else min(gap, sleep.seconds)
            if sleep.seconds is None or gap >= MIN_SHARE * sleep.seconds:
                late = late_seconds(call, ready, call.start - slept)
                polls.append(Poll(call, last.end, slept, late))
    return polls


def late_seconds(call: Call, ready: ReadyTimes, since: float) -> float:
    """Return how long before a poll all that it returned was ready, since the sleep began; 0 if it is not known."""
    times = [ready.of(reference) for reference in call.objects]
    known = [time for time in times if time is not None]
    if not known or len(known) < len(times):
        return 0.0
    latest = max(since, *known)
    return max(0.0, call.start - latest)


def make_finding(steps: Steps, line: str, sleep: Sleep, polls: list[Poll]) -> Finding | None:
    """Return the finding for the polls of a line; None if no result was ready before the end of a sleep."""
    late = sum(poll.late_seconds for poll in polls) / steps.count
    if not late:
        return None
    slept = max(poll.slept_seconds for poll in polls)
    if sleep.seconds is not None:
        slept = sleep.seconds
    count = significant(len(polls) / steps.count, 2)
    return Finding(
        cause=CAUSE,
        title=f"{count} times per step, a loop sleeps for up to {format_milliseconds(slept)} before it asks which "
        f"results are ready. By then, they have been ready for {format_milliseconds(late)} per step",
        line=sleep.line,
        change=describe_change(sleep),
        seconds=late,
        savings=[poll.saving for poll in polls],
        other_lines=[line] if line != sleep.line else [],
        is_limit=sleep.seconds is None,
        price=UNKNOWN if sleep.seconds is None else "",
    )


def describe_change(sleep: Sleep) -> str:
    """Return what to do with a sleep, which may stand there for another reason, such as a limit of a service."""
    if sleep.is_awaited:
        return (
            "If the sleep only waits for results, await them: make `futures = [asyncio.ensure_future(ref) for ref in "
            "refs]` once, and `await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)`."
        )
    return (
        "If the sleep only waits for results, leave it out, and let ray.wait wait: `ray.wait(pending, timeout=...)` "
        "returns as soon as a result is ready. Its timeout may be as long as the sleep, or longer."
    )
