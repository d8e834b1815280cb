# SPDX-License-Identifier: Apache-2.0
"""Recognise statements and functions that make the calls of several passes: they are steps as a whole."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from raymeter.profile.counted import TASK_DIGITS
from raymeter.profile.cuts import MIN_COVERED, MIN_STEPS, SHORTEST_SECONDS, Cut, key_of
from raymeter.profile.events import Call
from raymeter.profile.starts import Starting

MIN_CALLS_OF_RUN = 2  # of a library's function, in the mean
MIN_PASSES = 1.5  # of a loop, in the mean, in one run of the function that makes its calls


def join_passes_of_one_statement(cut: Cut) -> Cut:
    """Return steps that are whole statements, if one statement makes all calls of a pass; else the same cut.

    Such a statement, as in `list(pool.map(...))`, submits a task for each that has ended. There must be fewer steps
    then, but at least MIN_STEPS.
    """
    lines = {line for _, line in cut.content}
    if len(lines) > 1:
        return cut
    calls_of_line = [call for call in cut.calls if call.line in lines]
    for starts in (starts_of_statement(calls_of_line), starts_when_idle(cut.calls, lines)):
        if MIN_STEPS <= len(starts) < len(cut.starts):
            return replace(cut, starts=starts)
    return cut


def cut_at_statement(
    calls: Sequence[Call], begin: float, end: float, starting: Starting
) -> Cut | None:
    """Return steps that are runs of one statement which makes all calls in a part of a thread's time; None without.

    Such a statement is a loop over what a library gives, as in `for batch in dataset.iter_batches()`, in another loop:
    no line calls Ray between two of its runs. From `begin` to `end`, the thread calls Ray. The one that takes most of
    this time is returned, if that is MIN_COVERED of it. Time before the first run in which workers start does not
    count, also if no call waits for them: a library waits in ways of its own.
    """
    by_line: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_line[call.line].append(call)
    best: Cut | None = None
    for own in by_line.values():
        starts = starts_of_statement(own)
        if len(starts) < MIN_STEPS:
            starts = starts_of_runs(own)
        if len(starts) < MIN_STEPS:
            continue
        first = starts[0]
        last_end = max(call.end for call in own)
        seconds = end - begin - starting.seconds_between(begin, first)
        covered = (last_end - first) / max(SHORTEST_SECONDS, seconds)
        content = frozenset(map(key_of, own))
        cut = Cut(key_of(own[0]), calls, starts, last_end, content, alike=1.0, covered=covered)
        if best is None or covered > best.covered:
            best = cut
    return best if best is not None and best.covered >= MIN_COVERED else None


def starts_of_statement(calls: Sequence[Call]) -> list[float]:
    """Return when a statement begins again: it first calls a library, and later asks it for the next result.

    These are two instructions. Return [] if there is only one.
    """
    submissions = [call for call in calls if call.event == "call" and call.instruction >= 0]
    if not submissions:
        return []
    first = submissions[0].instruction
    starts = [submissions[0].start]
    for last, call in pairwise(submissions):
        if call.instruction == first and last.instruction != first:
            starts.append(call.start)
    return starts


def starts_of_runs(calls: Sequence[Call]) -> list[float]:
    """Return when a line begins to run a function of a library, which then calls Ray several times.

    Return [] if most runs make one call, as a row of calls of Ray itself does, or if runs are not known.
    """
    starts: list[float] = []
    last = 0
    known = [call for call in calls if call.entry]
    for call in known:
        if call.entry != last:
            starts.append(call.start)
        last = call.entry
    return starts if len(known) >= MIN_CALLS_OF_RUN * len(starts) else []


def starts_when_idle(calls: Sequence[Call], lines: set[str]) -> list[float]:
    """Return when a task is submitted and no other one runs: where no result is left to be taken, a pass begins."""
    taken: set[str] = set()
    for call in calls:
        taken.update(tasks_taken(call))
    running: set[str] = set()
    starts: list[float] = []
    for call in calls:
        if call.task in taken:
            if not running and call.line in lines:
                starts.append(call.start)
            running.add(call.task)
        running.difference_update(tasks_taken(call))
    return starts


def in_frames(cut: Cut) -> Cut | None:
    """Return steps that are runs of the function, or of the comprehension, that makes all calls of several passes.

    Return None if it is not known which calls one run has made, or if there is one run for each pass, or for all.
    """
    starts = set(cut.starts)
    firsts = [call for call in cut.in_steps if call.start in starts]
    depth = min(len(call.frames) for call in firsts)
    for level in range(depth):
        begun = [firsts[0]]
        for call in firsts:
            if call.frames[level] != begun[-1].frames[level]:
                begun.append(call)
        if len(begun) < MIN_STEPS:
            return None
        if MIN_PASSES * len(begun) <= len(firsts):
            return replace(cut, starts=[call.start for call in begun], is_function=True)
    return None


def tasks_taken(call: Call) -> list[str]:
    """Return the tasks whose results a call takes."""
    if call.event != "get":
        return []
    return [reference[:TASK_DIGITS] for reference in call.objects]
