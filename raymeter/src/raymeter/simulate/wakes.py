# SPDX-License-Identifier: Apache-2.0
"""Find what a coroutine waited for: the task that began in its event loop when it went on.

A coroutine that awaits a queue or an event of its actor waits for another method. Ray records no such dependency, so it
is found by time: most waits of a method must end when another method has just begun, and that must not be chance.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean

from raymeter.profile.events import Run
from raymeter.profile.program import Program

WAKE_SECONDS = 0.003  # after the start of another method
MIN_WAITING = 0.005  # of a coroutine
MAX_OWN_SHARE = 0.1  # of its time in which it computes, which another method does not shorten
MIN_WAITS = 3  # of a method
MIN_SHARE = 0.8  # of its waits that end so
MAX_CHANCE = 0.3  # that a wait would end so if the others began at any time

Method = tuple[str, str]  # actor and name
Start = tuple[float, str]  # time and task


@dataclass(frozen=True)
class Wake:
    """A task that began when another one went on, and the chance that one would have."""

    task: str
    by: str
    chance: float


def find_wakes(program: Program, execution_starts: Mapping[str, float]) -> dict[str, str]:
    """Return for runs of coroutines, by their task, the task that woke each of them: at most one, at its end.

    `execution_starts` are the times at which tasks began to run. A method whose wakes may be chance is left out.
    """
    waits = find_waits(program, execution_starts)
    actors = {actor for actor, _ in waits}
    starts: dict[str, list[Start]] = defaultdict(list)
    for name, begin in execution_starts.items():
        actor = program.tasks[name].actor
        if actor in actors:
            start = begin, name
            starts[actor].append(start)
    wakes: list[Wake] = []
    for method, runs in waits.items():
        actor, _ = method
        of_actor = sorted(starts[actor])
        wakes += find_wakes_of_method(runs, of_actor)
    return {wake.task: wake.by for wake in wakes}


def find_waits(program: Program, execution_starts: Mapping[str, float]) -> dict[Method, list[Run]]:
    """Return the runs of each method that is a coroutine in which it awaits something for most of its time."""
    waits: dict[Method, list[Run]] = defaultdict(list)
    for run in program.recording.runs:
        is_known = run.kind == "coroutine" and run.by in execution_starts
        waiting = run.seconds - run.code_seconds
        most = MAX_OWN_SHARE * run.seconds
        computes = run.code_seconds > most
        if is_known and not computes and waiting >= MIN_WAITING:
            task = program.tasks[run.by]
            method = task.actor, task.name
            waits[method].append(run)
    return waits


def find_wakes_of_method(waits: list[Run], starts: list[Start]) -> list[Wake]:
    """Return what woke the runs of a method; nothing for fewer than 3 or 80 % of its runs, or if it may be chance."""
    wakes = [find_wake(run, starts) for run in waits]
    found = [wake for wake in wakes if wake is not None]
    enough = MIN_SHARE * len(waits)
    if len(found) < max(MIN_WAITS, enough):
        return []
    chance = mean(wake.chance for wake in found)
    if chance > MAX_CHANCE:
        return []
    return found


def find_wake(run: Run, starts: list[Start]) -> Wake | None:
    """Return the last task that began during a run, if this was at most WAKE_SECONDS before its end."""
    first = bisect_right(starts, run.start, key=time_of)
    after = bisect_right(starts, run.end, key=time_of)
    count = after - first
    if not count:
        return None
    last = after - 1
    begin, name = starts[last]
    seconds = run.end - begin
    if name == run.by or seconds > WAKE_SECONDS:
        return None
    per_second = count / run.seconds
    chance = per_second * WAKE_SECONDS
    return Wake(run.by, name, chance)


def time_of(start: Start) -> float:
    time, _ = start
    return time
