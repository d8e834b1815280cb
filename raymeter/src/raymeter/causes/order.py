"""Find loops that take results in the order of submission, and wait for a slow one while others are ready.

Source: "Anti-pattern: processing results in submission order using ray.get increases runtime" in Ray's documentation.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from raymeter.causes.waits import ReadyTimes, group_by_lane
from raymeter.findings import Finding, Reorder
from raymeter.profile.events import Call
from raymeter.profile.program import TASK_DIGITS, Program
from raymeter.profile.steps import Steps
from raymeter.units import format_milliseconds, significant

CAUSE = "results in the order of submission"
MIN_RESULTS = 3  # in one step, else there is no order to choose
MIN_READY_SECONDS = 0.001  # by which another result was ready earlier


@dataclass
class Result:
    """A result that a loop gets: when it was ready, what reading it took, and what the loop did with it then."""

    call: Call
    ready: float
    read_seconds: float
    handle_seconds: float


@dataclass
class Loop:
    """The results that a loop gets in one step."""

    results: list[Result]

    @property
    def in_order_of_completion(self) -> list[Result]:
        return sorted(self.results, key=lambda result: result.ready)

    @property
    def recorded_end(self) -> float:
        return self.results[-1].call.end

    @property
    def possible_end(self) -> float:
        """Return when the last result would be there in the order of completion."""
        time = self.results[0].call.start
        for result in self.in_order_of_completion:
            time = max(time, result.ready) + result.read_seconds + result.handle_seconds
        return time - self.results[-1].handle_seconds

    @property
    def saved_seconds(self) -> float:
        return max(0.0, self.recorded_end - self.possible_end)

    @property
    def waits(self) -> int:
        """Return how often the loop waited for a result while a later one was there already."""
        count = 0
        first = math.inf  # of the later results
        for result in reversed(self.results):
            begin = max(first, result.call.start)
            count += result.ready - begin > MIN_READY_SECONDS
            first = min(first, result.ready)
        return count


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each line that waits for one result while others are ready."""
    gets = [call for call in program.recording.calls if is_result(program, call)]
    ready = ReadyTimes(program)
    loops: dict[str, list[Loop]] = defaultdict(list)
    for (_, _, _, line), calls in group_by_lane(gets, steps).items():
        for batch in split(program, steps, calls):
            loop = make_loop(batch, ready)
            if loop.waits and loop.saved_seconds > 0:
                loops[line].append(loop)
    return [make_finding(steps, line, found) for line, found in loops.items()]


def is_result(program: Program, call: Call) -> bool:
    """Return whether a call gets the result of one task."""
    if call.event != "get" or len(call.objects) != 1:
        return False
    return call.objects[0][:TASK_DIGITS] in program.tasks


def split(program: Program, steps: Steps, calls: list[Call]) -> list[list[Call]]:
    """Return the calls that could be in another order.

    They are in one step, for tasks of one name, all of which were submitted before the first one is got.
    """
    batches: list[list[Call]] = []
    last: tuple[int | None, str] | None = None
    for call in calls:
        task = program.tasks[call.objects[0][:TASK_DIGITS]]
        kind = steps.of(call.start), task.name
        is_later = not batches or (task.submitted or 0.0) > batches[-1][0].end
        if kind != last or is_later:
            batches.append([])
        batches[-1].append(call)
        last = kind
    return batches


def make_loop(calls: list[Call], ready: ReadyTimes) -> Loop:
    """Return the results of these calls of which it is known when they were ready; none if they are too few."""
    known = [(call, ready.of(call.objects[0])) for call in calls if call.objects]
    timed = [(call, time) for call, time in known if time is not None]
    if len(timed) < max(MIN_RESULTS, len(calls) / 2):
        return Loop([])
    nexts = [call.start for call, _ in timed[1:]]
    results = []
    for (call, time), following in zip(timed, nexts, strict=False):
        read = max(0.0, call.end - max(call.start, time))
        results.append(Result(call, time, read, max(0.0, following - call.end)))
    last, time = timed[-1]
    typical = median(result.handle_seconds for result in results)
    read = max(0.0, last.end - max(last.start, time))
    results.append(Result(last, time, read, typical))
    return Loop(results)


def make_finding(steps: Steps, line: str, loops: list[Loop]) -> Finding:
    results = [result for loop in loops for result in loop.results]
    seconds = sum(loop.saved_seconds for loop in loops) / steps.count
    waits = sum(loop.waits for loop in loops) / steps.count
    handling = median(result.handle_seconds for result in results)
    return Finding(
        cause=CAUSE,
        title=f"{significant(waits, 2)} times per step, the loop waits for a slow result while others are ready, and "
        f"does {format_milliseconds(handling)} of work with each",
        line=line,
        change="Take each result when it is ready: `ready, pending = ray.wait(pending)` in place of the order of "
        "submission. If the order matters, keep the position of each reference in a dict.",
        seconds=seconds,
        reorders=[item for loop in loops for item in reorder(loop)],
    )


def reorder(loop: Loop) -> list[Reorder]:
    """Let each call of the loop wait for the result that is next in the order of completion."""
    reorders = []
    for result, other in zip(loop.results, loop.in_order_of_completion, strict=True):
        call = result.call
        reorders.append(Reorder(call.process, call.number, other.call.objects[0]))
    return reorders
