# SPDX-License-Identifier: Apache-2.0
"""Find the sleep in a loop that asks again and again whether results are ready."""

import ast
from dataclasses import dataclass

from raymeter.profile.expressions import (
    INNER_FUNCTIONS,
    last_name,
    repeated_parts,
    spans,
    walk_outside,
)
from raymeter.profile.source_code import loops_around, split_line

SLEEP = "sleep"
WAIT = "wait"
TIMEOUT = "timeout"
NOT_IN_EACH_PASS = (*INNER_FUNCTIONS, ast.ExceptHandler)  # in which a sleep waits for no result


@dataclass(frozen=True)
class Sleep:
    """A call of time.sleep or asyncio.sleep. `seconds` is None if the code has no number there."""

    line: str
    seconds: float | None
    is_awaited: bool


def find_sleep(line: str, start: float) -> Sleep | None:
    """Return the only sleep of the innermost loop around a line which asks whether results are ready.

    None if there is no loop, no sleep or several of them, or no text, and if ray.wait itself waits there, without a
    timeout: then the sleep has another reason. A file that was changed after `start` is not read.
    """
    loops = loops_around(line, start)
    if not loops:
        return None
    nodes = list(walk_outside(repeated_parts(loops[0].node), NOT_IN_EACH_PASS))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    sleeps = [call for call in calls if last_name(call.func) == SLEEP]
    file, number = split_line(line)
    waits = [call for call in calls if last_name(call.func) == WAIT and spans(call, number)]
    if len(sleeps) != 1 or (waits and not any(map(has_timeout, waits))):
        return None
    call = sleeps[0]
    awaited = [node.value for node in nodes if isinstance(node, ast.Await)]
    return Sleep(f"{file}:{call.lineno}", seconds_of(call), call in awaited)


def has_timeout(call: ast.Call) -> bool:
    """Return whether a call of ray.wait may end before a result is ready."""
    names = [keyword.arg for keyword in call.keywords]
    return TIMEOUT in names or None in names  # None: `**options`


def seconds_of(call: ast.Call) -> float | None:
    """Return the number that is the first argument of a call; None if it is none."""
    first = call.args[0] if call.args else None
    if isinstance(first, ast.Constant) and isinstance(first.value, (int, float)):
        return float(first.value)
    return None
