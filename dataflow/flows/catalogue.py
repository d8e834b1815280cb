# SPDX-License-Identifier: Apache-2.0
"""List the flows by name: functions whose parameters are the flow's sizes, with their defaults.

Each size is a flag. A user's flow can also be text or a function in another file.
"""

import inspect
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise, permutations
from typing import Any, NamedTuple

from common import sizes as demo_sizes
from dataflow.errors import did_you_mean
from dataflow.flows.chatlearn_messages import of_samples, rlhf, slime
from dataflow.flows.flow import DRIVER, Flow, Task
from dataflow.flows.message import (
    ACKNOWLEDGEMENT,
    ITEM_BYTES,
    NUMBER_BYTES,
    Field,
    Message,
    flat_message,
)
from dataflow.flows.parser import ARROW, load_function, parse_flow, read_flow
from dataflow.study import studies
from dataflow.units import format_bytes


def online_dpo(
    batch_size: int = 1024,
    prompt_seq_len: int = 4096,
    max_new_tokens: int = 0,
    num_samples: int = 2,
) -> Flow:
    """The demo's simulation of ChatLearn's online DPO: one flat int64 tensor per message.

    The sizes are a lower bound of what ChatLearn moves; docs/method.md lists the differences. Raise ValueError if a
    message is empty, or not whole int64 words.
    """
    sizes = demo_sizes.message_bytes(batch_size, prompt_seq_len, num_samples, max_new_tokens)
    tasks = []
    for name in demo_sizes.MODELS:
        task = Task(name, reads=_demo_senders(name), sends=flat_message(sizes[name]))
        tasks.append(task)
    query = flat_message(sizes[DRIVER])
    return Flow("online-dpo", "online DPO", query, tuple(tasks), returns=_demo_senders(DRIVER))


def _demo_senders(reader: str) -> tuple[str, ...]:
    """Return the senders whose messages a model of the demo, or its driver, reads."""
    return tuple(sender for sender, other in demo_sizes.EDGES if other == reader)


def round_trip(message_bytes: int = 1024) -> Flow:
    return chain(message_bytes, 1)


def chain(message_bytes: int = 1024, actors: int = 4) -> Flow:
    """Driver -> actor-1 -> actor-2 -> ... -> driver, the same number of bytes on every edge."""
    message = flat_message(message_bytes)
    path = [DRIVER, *_actor_names(actors)]
    tasks = tuple(Task(name, (before,), message) for before, name in pairwise(path))
    last = path[-1]
    if actors > 1:
        return Flow(f"chain-{actors}", f"chain of {actors}", message, tasks, returns=(last,))
    return Flow("round-trip", "round trip", message, tasks, returns=(last,))


def scatter_gather(message_bytes: int = 1024, actors: int = 4) -> Flow:
    """The driver sends one message to every actor at once and waits for all answers."""
    message = flat_message(message_bytes)
    names = _actor_names(actors)
    answers = tuple(Task(name, (DRIVER,), message) for name in names)
    title = f"scatter-gather of {actors}"
    return Flow(f"scatter-gather-{actors}", title, message, answers, returns=names)


def _actor_names(count: int) -> tuple[str, ...]:
    return tuple(f"actor-{number}" for number in range(1, count + 1))


class Send(NamedTuple):
    """A message that an actor sends when the driver begins. Actors have the numbers from 1."""

    sender: int
    readers: Sequence[int]


def _sends_of_ring(actors: int) -> list[Send]:
    """Each actor sends to the next one, and the last one to the first."""
    sends = [Send(sender, [sender + 1]) for sender in range(1, actors)]
    return [*sends, Send(actors, [1])]


def _sends_of_all_to_all(actors: int) -> list[Send]:
    """Each actor sends another message to each of the others."""
    numbers = range(1, actors + 1)
    return [Send(sender, [reader]) for sender, reader in permutations(numbers, 2)]


def _sends_of_fan_in(actors: int) -> list[Send]:
    """All others send to the last actor."""
    return [Send(sender, [actors]) for sender in range(1, actors)]


def _sends_of_fan_out(actors: int) -> list[Send]:
    """The first actor sends one message, which all others read."""
    return [Send(1, range(2, actors + 1))]


SENDS: dict[str, Callable[[int], list[Send]]] = {
    "ring": _sends_of_ring,
    "all-to-all": _sends_of_all_to_all,
    "fan-in": _sends_of_fan_in,
    "fan-out": _sends_of_fan_out,
}


def pattern(name: str, message_bytes: int = 1024, actors: int = 4) -> Flow:
    """Return the flow of a name in SENDS; raise ValueError for fewer than 2 actors, or less than 1 byte."""
    if actors < 2:
        raise ValueError(f"--actors {actors}: {name} has at least 2")
    message = flat_message(message_bytes)
    tasks = []
    reads = defaultdict[int, list[str]](list)  # what each reader reads
    for index, (sender, readers) in enumerate(SENDS[name](actors), start=1):
        task = Task(f"send-{index}", reads=(DRIVER,), sends=message, actor=f"actor-{sender}")
        tasks.append(task)
        for reader in readers:
            reads[reader].append(task.name)
    returns = []
    for reader, names in sorted(reads.items()):
        task = Task(
            f"receive-{reader}",
            reads=tuple(names),
            sends=ACKNOWLEDGEMENT,
            actor=f"actor-{reader}",
        )
        tasks.append(task)
        returns.append(task.name)
    title = f"{name} of {actors}"
    return Flow(
        f"{name}-{actors}",
        title,
        query=ACKNOWLEDGEMENT,
        tasks=tuple(tasks),
        returns=tuple(returns),
    )


def flows_of_studies() -> dict[str, Callable[..., Flow]]:
    flows: dict[str, Callable[..., Flow]] = {}
    for study in studies().values():
        flows |= study.flows
    return flows


FLOWS: dict[str, Callable[..., Flow]] = {
    "online-dpo": online_dpo,
    "ppo": of_samples(partial(rlhf, "ppo", "RLHF (PPO)", has_value=True)),
    "grpo": of_samples(partial(rlhf, "grpo", "GRPO")),
    "grpo-math": of_samples(partial(rlhf, "grpo-math", "GRPO, math", has_rule=True)),
    "slime": of_samples(slime),
    "round-trip": round_trip,
    "chain": chain,
    "scatter-gather": scatter_gather,
    **{name: partial(pattern, name) for name in SENDS},
    **flows_of_studies(),
}
# The demo sends flat tensors; with --message fields or packed, the flow has ChatLearn's fields instead.
FLOWS_OF_FIELDS = {"online-dpo": of_samples(partial(rlhf, "online-dpo", "online DPO"))}


class Listed(NamedTuple):
    """A flow in lists of all flows."""

    label: str
    name: str
    message: str | None  # the value of --message, if the flow has other messages with it


ALL_FLOWS = [
    *(Listed(name, name, None) for name in FLOWS),
    *(Listed(f"{name} --message fields", name, "fields") for name in FLOWS_OF_FIELDS),
]


@cache  # so that the file of a user is read once
def flow_function(name: str, message: str | None = None) -> Callable[..., Flow]:
    """Return the function that builds the flow of this name, text, FILE.toml or FILE.py:FUNCTION.

    A text or a TOML file is read when that function is called, and FILE.py is run at once. Raise ValueError for an
    unknown name, or if FILE.py cannot be used. message: that of --message, with which some flat flows get fields.
    """
    if ARROW in name:
        return lambda: parse_flow(name)
    if ".py:" in name:
        return load_function(name)
    if name.endswith(".toml"):
        return lambda: read_flow(name)
    if "=>" in name:
        raise ValueError(f"cannot read '{name}': write '{name.replace('=>', ARROW)}'")
    if ": " in name:
        raise ValueError(
            f"cannot read '{name}': a flow needs an arrow, as 'rollout -> trainer: 12MB'"
        )
    if name not in FLOWS:
        others = f": give {', '.join(FLOWS)}, 'rollout -> trainer: 12MB', or my_flow.py:my_flow"
        raise ValueError(f"unknown flow {name}{did_you_mean(name, FLOWS) or others}")
    if message and name in FLOWS_OF_FIELDS:
        return FLOWS_OF_FIELDS[name]
    return FLOWS[name]


def flow_sizes(name: str, message: str | None = None) -> dict[str, Any]:
    """Return the sizes of a flow with their defaults. A flow that is written as text has none."""
    parameters = inspect.signature(flow_function(name, message)).parameters
    return {size: parameter.default for size, parameter in parameters.items()}


def build_flow(name: str, sizes: Mapping[str, Any], message: str | None = None) -> Flow:
    """Return the flow at these sizes. Sizes that are None or missing have the flow's defaults.

    `iteration_bytes` is a size of every flow of flat messages, `fields` (parts of each tensor) of every flow.
    Raise ValueError for an unknown flow, if the sizes do not make a flow, or if one of them belongs to another flow.
    """
    given = {size: value for size, value in sizes.items() if value is not None}
    iteration_bytes = given.pop("iteration_bytes", None)
    fields = given.pop("fields", None)
    given.pop("changing_sizes", None)  # the flow has the mean sizes: changing_sizes.py
    if fields:
        message = None  # --fields cuts the flat message
    _check_sizes(given, name, message)
    build = flow_function(name, message)
    flow = build(**given)
    if iteration_bytes and not flow.is_flat:
        raise ValueError(
            f"--iteration-bytes changes flat messages, and {name} has messages of fields: leave it "
            "out, and use --batch-size"
        )
    if iteration_bytes:
        flow = scale_flow(flow, iteration_bytes)
    if fields:
        flow = cut_messages(flow, fields)
    return flow


def _check_sizes(given: Mapping[str, Any], name: str, message: str | None) -> None:
    """Raise ValueError for a size that this flow does not have."""
    sizes = flow_sizes(name, message)
    for size in given:
        if size in sizes:
            continue
        owners = [flow.label for flow in ALL_FLOWS if size in flow_sizes(flow.name, flow.message)]
        text = f"{flag_name(size)} is a size of {', '.join(owners)}: leave it out"
        if sizes:
            flags = ", ".join(flag_name(other) for other in sizes)
            text += f"; {name} has {flags}"
        raise ValueError(text)


def scale_flow(flow: Flow, iteration_bytes: int) -> Flow:
    """Return the flat flow with about `iteration_bytes` per iteration: each message keeps its share, in int64 words.

    Acknowledgements keep their 8 bytes, unless the flow has no other messages. Raise ValueError if there
    is less than a word per message.
    """
    smallest = NUMBER_BYTES * len(flow.edges)
    if iteration_bytes < smallest:
        raise ValueError(
            f"--iteration-bytes {iteration_bytes}: {flow.name} has {len(flow.edges)} messages of at "
            f"least 8 bytes per iteration: give {smallest} or more"
        )
    others = [edge for edge in flow.edges if edge.message != ACKNOWLEDGEMENT]
    scaled = others or flow.edges
    scaled_bytes = sum(edge.bytes for edge in scaled)
    kept_bytes = flow.bytes_per_iteration - scaled_bytes
    factor = (iteration_bytes - kept_bytes) / scaled_bytes

    def scale(message: Message) -> Message:
        if others and message == ACKNOWLEDGEMENT:
            return message
        words = round(message.bytes * factor / NUMBER_BYTES)
        return flat_message(NUMBER_BYTES * max(1, words))

    return flow.with_messages(scale)


def cut_messages(flow: Flow, count: int) -> Flow:
    """Return the flow with each tensor cut into `count` tensors of nearly equal size. Lists stay as they are.

    Raise ValueError if a tensor has fewer items.
    """

    def cut(message: Message) -> Message:
        if message == ACKNOWLEDGEMENT:
            return message
        fields: list[Field] = []
        for field in message.fields:
            fields += [field] if field.is_list else _cut_field(field, count, flow.name)
        return Message(tuple(fields))

    return flow.with_messages(cut)


def _cut_field(field: Field, count: int, flow_name: str) -> list[Field]:
    """Return `count` flat tensors that together have the items of a tensor. The first ones may have one item more.

    Raise ValueError if the tensor has fewer items than `count`.
    """
    items = field.bytes // ITEM_BYTES[field.dtype]
    if items < count:
        raise ValueError(
            f"--fields {count}: {flow_name} has a tensor of only {field.bytes} bytes: give fewer "
            "fields or a larger --iteration-bytes"
        )
    shortest, remainder = divmod(items, count)
    name = field.name or "part"
    parts = []
    for index in range(count):
        length = shortest + 1 if index < remainder else shortest
        part = Field(f"{name}_{index}", field.dtype, shape=(length,))
        parts.append(part)
    return parts


def describe_flows() -> str:
    """Return each flow with its bytes and its sizes. --dry-run shows the messages."""
    lines = []
    for label, name, message in ALL_FLOWS:
        flow = build_flow(name, {}, message)
        defaults = flow_sizes(name, message).items()
        sizes = ", ".join(f"{flag_name(size)} {value}" for size, value in defaults if value)
        total = format_bytes(flow.bytes_per_iteration)
        lines.append(f"{label}: {flow.title}, {total} per iteration ({sizes})")
    return "\n".join([*lines, "--dry-run shows the messages of a flow."])


def flag_name(option: str) -> str:
    return "--" + option.replace("_", "-")
