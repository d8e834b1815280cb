# SPDX-License-Identifier: Apache-2.0
"""Compute the share of a step that would not be there if moving large messages took no time."""

from collections import defaultdict

from raymeter.causes.savings import save_reading, save_sending, total
from raymeter.findings import Prediction, Saving
from raymeter.profile.groups import moved_in_steps
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.profile.unseen_waits import waits_unseen
from raymeter.simulate.graph import build
from raymeter.simulate.predict import Changes, explains, shorten
from raymeter.simulate.replay import replay, step_seconds


def without_data(program: Program, steps: Steps) -> Prediction:
    """Return the median step as it was recorded, and with messages that take no time.

    The difference is less than the work of moving them if other processes do that work while the step waits for
    something else. If the graph does not explain the step, all work in the thread of the step counts, and the
    difference is an upper limit. The same is so for a whole program, and for a step that waits for a library's threads:
    threads may wait for each other without Ray. Then the work of the thread counts that moves most.
    """
    savings: list[Saving] = []
    for message in moved_in_steps(program.messages, steps):
        savings += save_sending(program, message)
        savings += save_reading(message)
    graph = build(program)
    before = step_seconds(graph, replay(graph), steps)
    fits = explains(graph, steps)
    changes = Changes([], shorten(graph, savings))
    after = step_seconds(graph, replay(graph), steps)
    changes.undo()
    is_limit = not fits
    if steps.is_whole_program or waits_unseen(program, steps):
        least = before - busiest_thread_seconds(savings) / steps.count
        is_limit = is_limit or least < after
        after = min(after, least)
    elif not fits:
        own = [saving for saving in savings if is_in_step(saving, steps)]
        after = min(after, before - total(own) / steps.count)
    return Prediction(before, max(0.0, min(before, after)), is_upper_limit=is_limit)


def busiest_thread_seconds(savings: list[Saving]) -> float:
    """Return the time of the thread that sends and reads messages for the longest time."""
    seconds: dict[tuple[str, int], float] = defaultdict(float)
    for saving in savings:
        seconds[saving.process, saving.thread] += saving.seconds
    return max(seconds.values(), default=0.0)


def is_in_step(saving: Saving, steps: Steps) -> bool:
    """Return whether the thread of the step does this work itself."""
    if not steps.process:
        return True
    return (saving.process, saving.thread) == (steps.process, steps.thread)
