# SPDX-License-Identifier: Apache-2.0
"""Say whether a step waits for a thread of a library, which no call of Ray shows.

A loop over the batches of a dataset is one: threads of Ray Data submit its tasks and wait for them, and the loop waits
for these threads. A replay takes that for work of the loop.
"""

from raymeter.profile.library_threads import WAITS, is_users
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps

WAITING = (*WAITS, "next")


def waits_unseen(program: Program, steps: Steps) -> bool:
    """Return whether threads of libraries wait for Ray during the steps, for longer than the thread of the steps."""
    own_seconds = 0.0
    others_seconds = 0.0
    for call in program.recording.calls:
        if call.process != steps.process or call.event not in WAITING:
            continue
        if steps.of(call.start) is None:
            continue
        if call.thread == steps.thread:
            own_seconds += call.seconds
        elif not is_users(call.line):
            others_seconds += call.seconds
    return others_seconds > own_seconds
