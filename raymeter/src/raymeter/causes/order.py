# SPDX-License-Identifier: Apache-2.0
"""Find loops that take results in the order of submission, and wait for a slow one while others are ready.

Source: "Anti-pattern: processing results in submission order using ray.get increases runtime" in Ray's documentation.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from raymeter.causes.waits import ReadyTimes, group_by_lane
from raymeter.findings import Finding, Reorder
from raymeter.profile.events import Call, Task
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
        first = self.results[0]
        last = self.results[-1]
        time = first.call.start
        for result in self.in_order_of_completion:
            begin = max(time, result.ready)
            time = begin + result.read_seconds + result.handle_seconds
        return time - last.handle_seconds

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
            wait = result.ready - begin  # while a later one was there
            if wait > MIN_READY_SECONDS:
                count += 1
            first = min(first, result.ready)
        return count


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each line that waits for one result while others are ready."""
    gets = [call for call in program.recording.calls if is_result(program, call)]
    ready = ReadyTimes(program)
    loops: dict[str, list[Loop]] = defaultdict(list)
    for lane, calls in group_by_lane(gets, steps).items():
        _, _, _, line = lane
        for batch in split(program, steps, calls):
            loop = make_loop(batch, ready)
            if loop.waits and loop.saved_seconds > 0:
                loops[line].append(loop)
    return [make_finding(steps, line, found) for line, found in loops.items()]


def is_result(program: Program, call: Call) -> bool:
    """Return whether a call gets the result of one task."""
    if call.event != "get" or len(call.objects) != 1:
        return False
    return task_of(call) in program.tasks


def task_of(call: Call) -> str:
    """Return the task that made the object which a call gets."""
    reference = call.objects[0]
    return reference[:TASK_DIGITS]


def split(program: Program, steps: Steps, calls: list[Call]) -> list[list[Call]]:
    """Return the calls in batches, in each of which they could be in another order. A batch may have one call.

    They are in one step, for tasks of one name, all of which were submitted before the get of the first one ended.
    """
    batches: list[list[Call]] = []
    last: tuple[int | None, str] | None = None
    for call in calls:
        task = program.tasks[task_of(call)]
        kind = steps.of(call.start), task.name
        if kind != last or is_submitted_after_first(task, batches[-1]):
            batches.append([])
        batches[-1].append(call)
        last = kind
    return batches


def is_submitted_after_first(task: Task, batch: list[Call]) -> bool:
    """Return whether a task was submitted after the first get of a batch had ended."""
    first = batch[0]
    submitted = task.submitted or 0.0
    return submitted > first.end


def make_loop(calls: list[Call], ready: ReadyTimes) -> Loop:
    """Return the results of these calls of which it is known when they were ready; none if they are too few."""
    timed = find_ready_times(calls, ready)
    min_results = max(MIN_RESULTS, len(calls) / 2)
    if len(timed) < min_results:
        return Loop([])
    results = []
    for (call, time), (following, _) in pairwise(timed):
        handling = max(0.0, following.start - call.end)
        results.append(make_result(call, time, handling))
    typical = median(result.handle_seconds for result in results)
    last, time = timed[-1]
    results.append(make_result(last, time, typical))
    return Loop(results)


def find_ready_times(calls: list[Call], ready: ReadyTimes) -> list[tuple[Call, float]]:
    """Return the calls whose results are known to have been ready at some time, with this time."""
    timed = []
    for call in calls:
        time = ready.of(call.objects[0])
        if time is not None:
            timed.append((call, time))
    return timed


def make_result(call: Call, ready: float, handle_seconds: float) -> Result:
    """Return the result that a call gets, which it can read from when it is ready."""
    begin = max(call.start, ready)
    read_seconds = max(0.0, call.end - begin)
    return Result(call, ready, read_seconds, handle_seconds)


def make_finding(steps: Steps, line: str, loops: list[Loop]) -> Finding:
    """Return the finding for loops of a line that get results in the order of submission; `loops` is not empty.

    It removes no work: the results are handled in another order, which is why it has no savings. Each loop has results.
    """
    results: list[Result] = []
    reorders: list[Reorder] = []
    for loop in loops:
        results += loop.results
        reorders += reorder(loop)
    seconds = sum(loop.saved_seconds for loop in loops)
    waits = sum(loop.waits for loop in loops)
    waits_per_step = significant(waits / steps.count, 2)
    handling = median(result.handle_seconds for result in results)
    work = format_milliseconds(handling)
    return Finding(
        cause=CAUSE,
        title=f"{waits_per_step} times per step, the loop waits for a slow result while others are ready, and "
        f"does {work} of work with each",
        line=line,
        change="Take each result when it is ready: `ready, pending = ray.wait(pending)` in place of the order of "
        "submission. If the order matters, keep the position of each reference in a dict.",
        seconds=seconds / steps.count,
        reorders=reorders,
    )


def reorder(loop: Loop) -> list[Reorder]:
    """Let each call of the loop wait for the result that is next in the order of completion."""
    reorders = []
    for result, other in zip(loop.results, loop.in_order_of_completion, strict=True):
        call = result.call
        wanted = other.call.objects[0]
        reorders.append(Reorder(call.process, call.number, wanted))
    return reorders
