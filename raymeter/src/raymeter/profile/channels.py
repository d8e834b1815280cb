# SPDX-License-Identifier: Apache-2.0
"""Make one get of the calls with which a compiled graph polls one of its channels.

Ray waits for a channel with many short calls, each of which fails if nothing was written. The first message that is
larger than a channel replaces it by another one, and readers then get both.
"""

from dataclasses import replace

from raymeter.profile.counted import TASK_DIGITS
from raymeter.profile.events import Call

FIRST_CHANNEL = 100_000_000  # number of the first object that is a channel

Thread = tuple[str, int]  # process and thread


def join_polls(calls: list[Call]) -> list[Call]:
    """Return the calls in the order of time, with one get in place of a row of polls and the get that ends it.

    A row of polls that no get of its thread ends is one get that has failed, from the first poll to the last.
    """
    written = {call.object for call in calls if call.event == "channel"}
    rows: dict[Thread, Call] = {}  # of polls, each as one call
    joined: list[Call] = []
    for call in calls:
        thread = call.process, call.thread
        row = rows.pop(thread, None)
        if is_poll(call, written):
            rows[thread] = ended_at(row, call.end) if row is not None else call
        elif row is None:
            joined.append(call)
        elif call.event == "get":
            joined.append(begun_at(call, row.start))
        else:
            joined += [row, call]
    joined += rows.values()
    joined.sort(key=lambda call: call.start)
    return joined


def is_poll(call: Call, written: set[str]) -> bool:
    """Return whether a call gets nothing of a channel, or only learns that another channel replaces it."""
    if call.event != "get" or call.count != 1 or call.deserialise_seconds:
        return False
    reference = call.objects[0] if call.objects else ""
    if not is_channel(reference):
        return False
    return call.has_failed or reference not in written


def is_channel(reference: str) -> bool:
    """Return whether an object is a channel, by its number in the task that made it."""
    digits = reference[TASK_DIGITS:]
    try:
        number = int.from_bytes(bytes.fromhex(digits), "little")
    except ValueError:
        return False
    return number >= FIRST_CHANNEL


def begun_at(call: Call, start: float) -> Call:
    """Return a call that has begun earlier."""
    return replace(call, start=start, seconds=call.end - start)


def ended_at(call: Call, end: float) -> Call:
    """Return a call that has ended later."""
    return replace(call, seconds=end - call.start)
