"""List the flows by name: functions whose parameters are the flow's sizes, with their defaults.

Each size is a flag. A user's flow can also be text or a function in another file.
"""

import inspect
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise, permutations
from typing import Any

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
    message is not whole int64 words.
    """
    sizes = demo_sizes.message_bytes(batch_size, prompt_seq_len, num_samples, max_new_tokens)
    reads = {
        name: tuple(sender for sender, reader in demo_sizes.EDGES if reader == name)
        for name in sizes
    }
    tasks = tuple(Task(name, reads[name], flat_message(sizes[name])) for name in demo_sizes.MODELS)
    return Flow(
        "online-dpo", "online DPO", flat_message(sizes[DRIVER]), tasks, returns=reads[DRIVER]
    )


def round_trip(message_bytes: int = 1024) -> Flow:
    return chain(message_bytes, 1)


def chain(message_bytes: int = 1024, actors: int = 4) -> Flow:
    """Driver -> actor-1 -> actor-2 -> ... -> driver, the same number of bytes on every edge."""
    names = [DRIVER, *(f"actor-{index}" for index in range(1, actors + 1))]
    links = tuple(
        Task(name, (before,), flat_message(message_bytes)) for before, name in pairwise(names)
    )
    name, title = (
        (f"chain-{actors}", f"chain of {actors}") if actors > 1 else ("round-trip", "round trip")
    )
    return Flow(name, title, flat_message(message_bytes), links, returns=(names[-1],))


def scatter_gather(message_bytes: int = 1024, actors: int = 4) -> Flow:
    """The driver sends one message to every actor at once and waits for all answers."""
    names = tuple(f"actor-{index}" for index in range(1, actors + 1))
    message = flat_message(message_bytes)
    answers = tuple(Task(name, (DRIVER,), message) for name in names)
    return Flow(
        f"scatter-gather-{actors}", f"scatter-gather of {actors}", message, answers, returns=names
    )


# Actors that send when the driver begins, by the number of all: the sender, and the readers of its message.
SENDS: dict[str, Callable[[int], list[tuple[int, Sequence[int]]]]] = {
    "ring": lambda count: [(sender, [sender % count + 1]) for sender in range(1, count + 1)],
    "all-to-all": lambda count: [
        (sender, [reader]) for sender, reader in permutations(range(1, count + 1), 2)
    ],
    "fan-in": lambda count: [(sender, [count]) for sender in range(1, count)],
    "fan-out": lambda count: [(1, range(2, count + 1))],
}


def pattern(name: str, message_bytes: int = 1024, actors: int = 4) -> Flow:
    """Return the flow of a name in SENDS."""
    if actors < 2:
        raise ValueError(f"--actors {actors}: {name} has at least 2")
    reads, tasks = defaultdict[int, list[str]](list), list[Task]()
    for sender, readers in SENDS[name](actors):
        tasks.append(
            Task(
                f"send-{len(tasks) + 1}", (DRIVER,), flat_message(message_bytes), f"actor-{sender}"
            )
        )
        for reader in readers:
            reads[reader].append(tasks[-1].name)
    tasks += [
        Task(f"receive-{n}", tuple(reads[n]), ACKNOWLEDGEMENT, f"actor-{n}") for n in sorted(reads)
    ]
    returns = tuple(f"receive-{number}" for number in sorted(reads))
    return Flow(f"{name}-{actors}", f"{name} of {actors}", ACKNOWLEDGEMENT, tuple(tasks), returns)


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
    **{name: function for study in studies().values() for name, function in study.flows.items()},
}
# The demo sends flat tensors; with --message fields or packed, the flow has ChatLearn's fields instead.
FLOWS_OF_FIELDS = {"online-dpo": of_samples(partial(rlhf, "online-dpo", "online DPO"))}
ALL_FLOWS = [(name, name, None) for name in FLOWS] + [
    (f"{n} --message fields", n, "fields") for n in FLOWS_OF_FIELDS
]


@cache  # so that the file of a user is read once
def flow_function(name: str, message: str | None = None) -> Callable[..., Flow]:
    """Return the function that builds the flow of this name, text or FILE.py:FUNCTION; raise ValueError for others."""
    if ARROW in name:
        return lambda: parse_flow(name)
    if ".py:" in name:
        return load_function(name)
    if name.endswith(".toml"):
        return lambda: read_flow(name)
    if "=>" in name:
        raise ValueError(f"cannot read '{name}': write '{name.replace('=>', ARROW)}'")
    if name not in FLOWS:
        others = f": give {', '.join(FLOWS)}, 'rollout -> trainer: 12MB', or my_flow.py:my_flow"
        raise ValueError(f"unknown flow {name}{did_you_mean(name, FLOWS) or others}")
    return FLOWS_OF_FIELDS.get(name, FLOWS[name]) if message else FLOWS[name]


def flow_sizes(name: str, message: str | None = None) -> dict[str, Any]:
    """Return the sizes of a flow with their defaults. A flow that is written as text has none."""
    parameters = inspect.signature(flow_function(name, message)).parameters
    return {size: parameter.default for size, parameter in parameters.items()}


def build_flow(name: str, sizes: Mapping[str, Any], message: str | None = None) -> Flow:
    """Return the flow at these sizes. Sizes that are None or missing have the flow's defaults.

    `iteration_bytes` is a size of every flow of flat messages, `fields` (parts of each tensor) of every flow.
    Raise ValueError if the sizes do not make a flow, or if one of them belongs to another flow.
    """
    given = {size: value for size, value in sizes.items() if value is not None}
    iteration_bytes, fields = given.pop("iteration_bytes", None), given.pop("fields", None)
    if fields:
        message = None  # --fields cuts the flat message
    defaults = flow_sizes(name, message)
    for size in given.keys() - defaults.keys():
        owners = [label for label, flow, form in ALL_FLOWS if size in flow_sizes(flow, form)]
        others = f"; {name} has {', '.join(map(flag_name, defaults))}" if defaults else ""
        raise ValueError(
            f"{flag_name(size)} is a size of {', '.join(owners)}: leave it out{others}"
        )
    flow = flow_function(name, message)(**given)
    if iteration_bytes and not flow.is_flat:
        raise ValueError(f"--iteration-bytes changes flat messages, and {name} has messages of fields: leave it out, "
                         "and use --batch-size")  # fmt: skip
    if iteration_bytes:
        flow = scale_flow(flow, iteration_bytes)
    return cut_messages(flow, fields) if fields else flow


def scale_flow(flow: Flow, iteration_bytes: int) -> Flow:
    """Return the flat flow with about `iteration_bytes` per iteration: each message keeps its share, in int64 words.

    Acknowledgements keep their 8 bytes, unless the flow has no other messages.
    """
    smallest = NUMBER_BYTES * len(flow.edges)
    if iteration_bytes < smallest:
        raise ValueError(f"--iteration-bytes {iteration_bytes}: {flow.name} has {len(flow.edges)} messages of at least "
                         f"8 bytes per iteration: give {smallest} or more")  # fmt: skip
    kept = (
        {ACKNOWLEDGEMENT} if any(message != ACKNOWLEDGEMENT for message in flow.messages) else set()
    )
    kept_bytes = sum(edge.bytes for edge in flow.edges if edge.message in kept)
    factor = (iteration_bytes - kept_bytes) / (flow.bytes_per_iteration - kept_bytes)

    def scale(message: Message) -> Message:
        count = NUMBER_BYTES * max(1, round(message.bytes * factor / NUMBER_BYTES))
        return message if message in kept else flat_message(count)

    return flow.with_messages(scale)


def cut_messages(flow: Flow, count: int) -> Flow:
    """Return the flow with each tensor cut into `count` tensors of nearly equal size. Lists stay as they are."""

    def cut(message: Message) -> Message:
        fields: list[Field] = []
        for field in message.fields:
            items, remainder = divmod(field.bytes // ITEM_BYTES[field.dtype], count)
            if field.is_list or message == ACKNOWLEDGEMENT:
                fields.append(field)
            elif items:
                name, lengths = (
                    field.name or "part",
                    [items + (n < remainder) for n in range(count)],
                )
                fields += [
                    Field(f"{name}_{n}", field.dtype, (length,)) for n, length in enumerate(lengths)
                ]
            else:
                raise ValueError(f"--fields {count}: {flow.name} has a tensor of only {field.bytes} bytes: give fewer "
                                 "fields or a larger --iteration-bytes")  # fmt: skip
        return Message(tuple(fields))

    return flow.with_messages(cut)


def describe_flows() -> str:
    """Return each flow with its bytes and its sizes. --dry-run shows the messages."""
    lines = []
    for label, name, message in ALL_FLOWS:
        flow = build_flow(name, {}, message)
        sizes = ", ".join(
            f"{flag_name(size)} {value}"
            for size, value in flow_sizes(name, message).items()
            if value
        )
        lines.append(
            f"{label}: {flow.title}, {format_bytes(flow.bytes_per_iteration)} per iteration ({sizes})"
        )
    return "\n".join([*lines, "--dry-run shows the messages of a flow."])


def flag_name(option: str) -> str:
    return "--" + option.replace("_", "-")
