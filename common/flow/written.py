"""A flow of one's own, written on the command line: who sends how many bytes to whom.

    rollout-1, rollout-2 -> trainer: 12MB
    actor -> critic, reward: tokens int64 8MB, logprobs float32 4MB; critic, reward -> trainer: 4MB

Steps are parted by semicolons. Each sender emits one message, and every reader gets all of it: bytes alone are one
flat tensor, fields with a dtype a dict of them. Who is sent nothing is called by the driver with one word; who sends
nothing answers the driver with one, and the trip ends when every answer is there. `driver` may stand on either side.
"""

import re
from graphlib import CycleError, TopologicalSorter

from common.flow.flow import DATASET, DRIVER, TRAINER, Flow, Task
from common.flow.message import ITEM_BYTES, PYTHON, WORD, Field, Message, flat
from common.units import parse_bytes

ARROW = "->"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
TAKEN = (TRAINER, DATASET, "query", "result")  # by actors that stand in for the driver, or behind it


def read_flow(text: str) -> Flow:
    """The flow that a text describes.

    Raises:
        ValueError: it describes none; the message quotes what cannot be read.
    """
    reads: dict[str, list[str]] = {}
    emits: dict[str, Message] = {}
    steps = [step.strip() for step in text.split(";") if step.strip()]
    for step in steps:
        found = re.fullmatch(r"([^:]+?)->([^:]+):(.+)", step)
        if not found:
            raise ValueError(f"cannot read {step!r}: write it as 'rollout-1, rollout-2 -> trainer: 12MB'")
        senders, readers, message = _names(found[1]), _names(found[2]), read_message(found[3])
        for sender in senders:
            if emits.setdefault(sender, message) != message:
                raise ValueError(f"{sender} emits two messages: who is called twice needs two names")
            for reader in readers:
                if sender in reads.setdefault(reader, []) or sender == reader:
                    raise ValueError(f"{sender} sends to {reader} twice, or to itself")
                reads[reader].append(sender)
    names = [name for name in dict.fromkeys([*emits, *reads]) if name != DRIVER]
    before = {name: reads.get(name) or [DRIVER] for name in names}
    try:
        order = [name for name in TopologicalSorter(before).static_order() if name != DRIVER]
    except CycleError as error:
        raise ValueError(f"{' -> '.join(error.args[1])} goes round in a circle: a trip must end") from None
    last = [name for name in order if name not in emits]
    title = "; ".join(" ".join(step.partition(":")[0].split()) for step in steps)
    return Flow(
        name=text,
        title=title,
        query=emits.get(DRIVER, WORD),
        tasks=tuple(Task(name, tuple(before[name]), emits.get(name, WORD)) for name in order),
        returns=tuple(dict.fromkeys([*reads.get(DRIVER, []), *last])),
    )


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name: give letters, digits and dashes")
        if name in TAKEN:
            raise ValueError(f"the name {name} is taken: give another one")
    return names


def read_message(text: str) -> Message:
    """`12MB`, or `tokens int64 8MB, logprobs float32 4MB`."""
    parts = [part.split() for part in text.split(",")]
    if len(parts) == 1 and len(parts[0]) < 3:
        return flat(parse_bytes(text))
    fields = []
    for part in parts:
        if len(part) < 3 or part[1] not in ITEM_BYTES or part[1] in PYTHON:
            known = ", ".join(name for name in ITEM_BYTES if name not in PYTHON)
            raise ValueError(f"cannot read the field {' '.join(part)!r}: give name, dtype ({known}) and bytes")
        items, rest = divmod(parse_bytes(" ".join(part[2:])), ITEM_BYTES[part[1]])
        if rest:
            raise ValueError(f"the bytes of field {part[0]} do not fill whole items of {part[1]}")
        fields.append(Field(part[0], part[1], (items,)))
    return Message(tuple(fields))
