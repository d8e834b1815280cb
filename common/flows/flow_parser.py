"""Parse a flow that a user writes on the command line: who sends how many bytes to whom.

    rollout-1, rollout-2 -> trainer: 12MB
    actor -> critic, reward: tokens int64 8MB, logprobs float32 4MB; critic, reward -> trainer: 4MB

Semicolons separate the steps. Each sender sends one message, and every reader gets all of it. A size alone is one flat
tensor; fields with a dtype are a dict. The driver starts actors that nobody sends to with 8 bytes. Actors that send
nothing acknowledge to the driver, and the iteration ends when all acknowledgements have arrived. `driver` may stand on
either side.
"""

import re
from graphlib import CycleError, TopologicalSorter

from common.flows.flow import DATASET, DRIVER, PROXY, Flow, Task
from common.flows.message import ACKNOWLEDGEMENT, ITEM_BYTES, PYTHON_DTYPES, Field, Message, flat_message
from common.units import parse_bytes

ARROW = "->"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
DTYPES = [name for name in ITEM_BYTES if name not in PYTHON_DTYPES]
RESERVED_NAMES = (PROXY, DATASET, "query", "result")  # tasks and actors that the suite adds to flows


def parse_flow(text: str) -> Flow:
    """Return the flow that a text describes; raise ValueError with the part that cannot be read."""
    reads: dict[str, list[str]] = {}
    sends: dict[str, Message] = {}
    steps = [step.strip() for step in text.split(";") if step.strip()]
    for step in steps:
        match = re.fullmatch(r"([^:]+?)->([^:]+):(.+)", step)
        if not match:
            raise ValueError(f"cannot read {step!r}: write it as 'rollout-1, rollout-2 -> trainer: 12MB'")
        senders, readers, message = _parse_names(match[1]), _parse_names(match[2]), parse_message(match[3])
        for sender in senders:
            if sends.setdefault(sender, message) != message:
                raise ValueError(f"{sender} sends two different messages: use two names for its two tasks")
            for reader in readers:
                if sender in reads.setdefault(reader, []) or sender == reader:
                    raise ValueError(f"{sender} sends to {reader} twice, or to itself")
                reads[reader].append(sender)
    names = [name for name in dict.fromkeys([*sends, *reads]) if name != DRIVER]
    sources = {name: reads.get(name) or [DRIVER] for name in names}
    try:
        order = [name for name in TopologicalSorter(sources).static_order() if name != DRIVER]
    except CycleError as error:
        raise ValueError(f"{' -> '.join(error.args[1])} is a cycle, and an iteration must end") from None
    last = [name for name in order if name not in sends]
    return Flow(
        name=text,
        title="; ".join(" ".join(step.partition(":")[0].split()) for step in steps),
        query=sends.get(DRIVER, ACKNOWLEDGEMENT),
        tasks=tuple(Task(name, tuple(sources[name]), sends.get(name, ACKNOWLEDGEMENT)) for name in order),
        returns=tuple(dict.fromkeys([*reads.get(DRIVER, []), *last])),
    )


def _parse_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a name: use letters, digits, dashes and underscores, a letter first")
        if name in RESERVED_NAMES:
            raise ValueError(f"the name {name} is reserved: use another one")
    return names


def parse_message(text: str) -> Message:
    """Return the message of `12MB`, or of `tokens int64 8MB, logprobs float32 4MB`."""
    parts = [part.split() for part in text.split(",")]
    if len(parts) == 1 and len(parts[0]) < 3:
        return flat_message(parse_bytes(text))
    fields = []
    for part in parts:
        if len(part) < 3 or part[1] not in DTYPES:
            raise ValueError(f"cannot read {' '.join(part)!r}: give name, dtype ({', '.join(DTYPES)}) and bytes")
        items, remainder = divmod(parse_bytes(" ".join(part[2:])), ITEM_BYTES[part[1]])
        if remainder:
            raise ValueError(f"the bytes of field {part[0]} are not a multiple of the item size of {part[1]}")
        fields.append(Field(part[0], part[1], (items,)))
    return Message(tuple(fields))
