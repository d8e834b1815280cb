# SPDX-License-Identifier: Apache-2.0
"""Leave out calls of Ray that are made inside of another one."""

from raymeter.profile.events import Call

CLOCK_SECONDS = 1e-6  # by which the end of a call may be rounded


def outermost(calls: list[Call]) -> list[Call]:
    """Return the calls of a thread that are not inside of another one.

    In a method of ray.util.queue, for example, ray.get is.
    """
    kept: list[Call] = []
    for call in sorted(calls, key=lambda call: (call.start, -call.seconds)):
        if not kept or call.start >= kept[-1].end - CLOCK_SECONDS:
            kept.append(call)
    return kept
