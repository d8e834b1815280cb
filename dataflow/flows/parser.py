"""Read a flow that is written as text."""

import re
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

from dataflow.flows.flow import DRIVER, PROXY, Flow, Task, check_name
from dataflow.flows.message import ACKNOWLEDGEMENT, ITEM_BYTES, PYTHON_DTYPES, Field, Message, flat_message
from dataflow.units import parse_bytes

ARROW = "->"
FIELD_DTYPES = list(ITEM_BYTES)
MAX_TENSORS = 100_000  # of a message that is written as text
RESERVED_NAMES = (PROXY, "query", "result")  # tasks and actors that the suite adds to flows


def check_reserved(names: Iterable[str]) -> None:
    for name in names:
        if name in RESERVED_NAMES:
            raise ValueError(f"the name {name} is reserved: use another one")


def parse_flow(text: str) -> Flow:
    """Return the flow that a text describes; raise ValueError with the part that cannot be read.

        rollout-1, rollout-2 -> trainer: 12MB
        actor -> critic, reward: tokens int64 8MB, logprobs float32 4MB; critic, reward -> trainer: 4MB
        trainer -> rollout: 300 x bfloat16 4MB

    Semicolons separate the steps. Each sender sends one message, and every reader gets all of it. A size alone is one
    flat tensor; fields with a dtype are a dict, in which `300 x` is a list of tensors. `driver` may stand on either
    side. It starts actors that nobody sends to with 8 bytes. Actors that send nothing acknowledge to it, and the
    iteration ends with the last acknowledgement.
    """
    reads: dict[str, list[str]] = {}
    sends: dict[str, Message] = {}
    steps = [step.strip() for step in text.split(";") if step.strip()]
    for step in steps:
        match = re.fullmatch(rf"([^:]+?){ARROW}([^:]+):(.+)", step)
        if not match:
            raise ValueError(f"cannot read {step!r}: write it as 'rollout-1, rollout-2 -> trainer: 12MB'")
        senders, readers, message = _parse_names(match[1]), _parse_names(match[2]), _parse_message(match[3])
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
        check_name(name)
    check_reserved(names)
    return names


def _parse_size(text: str) -> int:
    """Return the bytes of a size with a unit; raise ValueError for a number alone, which could mean megabytes."""
    if re.fullmatch(r"\s*[\d.]+\s*", text):
        raise ValueError(f"the size {text.strip()} has no unit: is it {text.strip()} B or {text.strip()} MB?")
    return parse_bytes(text)


def _parse_message(text: str) -> Message:
    if re.fullmatch(r"\s*[\d.]+\s*[A-Za-z]*\s*", text):
        return flat_message(_parse_size(text))
    fields: list[Field] = []
    tensors = 0
    for part in map(str.strip, text.split(",")):
        match = re.fullmatch(rf"(?:(\S+)\s+)??(?:(\d+)\s*x\s+)?({'|'.join(FIELD_DTYPES)})\s+(.+)", part)
        if not match or not (match[1] or match[2]):
            dtypes = ", ".join(FIELD_DTYPES)
            raise ValueError(f"cannot read {part!r}: give name, dtype ({dtypes}) and bytes, or 300 x float32 4KB")
        name, dtype, count = match[1] or "tensors", match[3], int(match[2] or 1)
        if not name.isidentifier():
            raise ValueError(f"{name} is not the name of a field: use letters, digits and underscores, a letter first")
        items, remainder = divmod(_parse_size(match[4]), ITEM_BYTES[dtype])
        if remainder or not count:
            raise ValueError(f"field {name}: give at least 1 tensor, and a multiple of the item size of {dtype}")
        tensors += count
        if tensors > MAX_TENSORS:
            raise ValueError(f"{text.strip()!r} has more than {MAX_TENSORS} tensors: give fewer and larger ones")
        is_list = match[2] or dtype in PYTHON_DTYPES  # strings and numbers are in lists
        fields.append(Field(name, dtype, lengths=(items,) * count) if is_list else Field(name, dtype, (items,)))
    return Message(tuple(fields))
