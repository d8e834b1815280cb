"""The flows by name. To add one: write a function here that returns a Flow, and name it in FLOWS.
One can also be written on the command line (common/flow/written.py), or in a file of its own (common/flow/traced.py).

Its parameters are its sizes: each is a flag of every script (common/plan/options.py), with this default.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from common.flow import chatlearn
from common.flow.chatlearn import Batch, batch_of
from common.flow.demo_sizes import Sizes
from common.flow.flow import DRIVER, Flow, Task
from common.flow.message import Field, flat
from common.flow.resized import cut_into, scaled_to
from common.flow.traced import trace_flow
from common.flow.written import ARROW, read_flow
from common.units import format_bytes


def online_dpo(
    batch_size: int = 1024, prompt_seq_len: int = 4096, max_new_tokens: int = 0, num_samples: int = 2
) -> Flow:
    """The demo's simulation of ChatLearn's online DPO: one flat tensor a message."""
    sizes = Sizes(batch_size, prompt_seq_len, max_new_tokens, num_samples)
    return Flow(
        name="online-dpo",
        title="online DPO",
        query=flat(sizes.query_bytes),
        tasks=(
            Task("policy", (DRIVER,), flat(sizes.policy_bytes), "policy inference"),
            Task("reference", ("policy",), flat(sizes.reference_bytes)),
            Task("reward", ("policy", "reference"), flat(sizes.reward_bytes)),
        ),
        returns=("reward",),
    )


def of_batches(build: Callable[[Batch], Flow]) -> Callable[..., Flow]:
    """A flow of ChatLearn's messages, by the samples that each of them has."""

    def flow(
        rows: int = 128, prompt_len: int | str = 512, response_len: int | str = 512, seq_length: int = 1024,
        padding: str = "megatron", as_shipped: bool = False,
    ) -> Flow:  # fmt: skip
        return build(batch_of(rows, prompt_len, response_len, seq_length, padding, as_shipped))

    return flow


def round_trip(payload_bytes: int = 1024) -> Flow:
    """One model that answers the driver."""
    return chain(payload_bytes, 1)


def chain(payload_bytes: int = 1024, roles: int = 4) -> Flow:
    """Driver -> role-1 -> role-2 -> ... -> driver, the same number of bytes on every edge."""
    names = [DRIVER, *(f"role-{index}" for index in range(1, roles + 1))]
    links = tuple(Task(name, (before,), flat(payload_bytes)) for before, name in pairwise(names))
    title = f"chain of {roles}" if roles > 1 else "round trip"
    name = f"chain-{roles}" if roles > 1 else "round-trip"
    return Flow(name, title, flat(payload_bytes), links, returns=(names[-1],))


def scatter_gather(payload_bytes: int = 1024, roles: int = 4) -> Flow:
    """The driver sends one message to every role at once and waits for all their answers."""
    names = tuple(f"role-{index}" for index in range(1, roles + 1))
    answers = tuple(Task(name, (DRIVER,), flat(payload_bytes)) for name in names)
    return Flow(f"scatter-gather-{roles}", f"scatter-gather of {roles}", flat(payload_bytes), answers, returns=names)


ppo = of_batches(chatlearn.ppo)

FLOWS: dict[str, Callable[..., Flow]] = {
    "online-dpo": online_dpo,
    "ppo": ppo,
    "grpo": of_batches(lambda batch: chatlearn.online_dpo(batch, "grpo", "GRPO")),
    "grpo-math": of_batches(chatlearn.grpo_math),
    "dpo": of_batches(chatlearn.dpo),
    "slime": of_batches(chatlearn.lists_of_numbers),
    "round-trip": round_trip,
    "chain": chain,
    "scatter-gather": scatter_gather,
}
# What the demo has as one flat tensor, with ChatLearn's fields: --message fields or packed.
FIELDS = {"online-dpo": of_batches(chatlearn.online_dpo)}
# The microbenchmarks of Ray's compiled-graphs article; the others are rungs of the ladder.
MICROBENCHMARKS = ("round-trip", "chain", "scatter-gather")


def function_of(name: str, message: str | None = None) -> Callable[..., Flow]:
    """What builds a flow, by its name, its file, or its text.

    message: "fields" or "packed" where the demo's flat tensors shall be ChatLearn's fields.

    Raises:
        ValueError: there is no such flow.
    """
    if ARROW in name:
        return lambda: read_flow(name)
    if ".py:" in name:
        return of_batches(lambda batch: trace_flow(name, batch))
    if name not in FLOWS:
        known = ", ".join(FLOWS)
        raise ValueError(f"there is no flow {name}: give {known}, 'rollout -> trainer: 12MB', or my_flow.py:my_flow")
    return FIELDS[name] if name in FIELDS and message in ("fields", "packed") else FLOWS[name]


def sizes_of(name: str, message: str | None = None) -> dict[str, Any]:
    """The sizes that a flow has, with their defaults; one that is written out has none.

    Raises:
        ValueError: there is no such flow.
    """
    parameters = inspect.signature(function_of(name, message)).parameters
    return {size: parameter.default for size, parameter in parameters.items()}


def build_flow(name: str, given: Mapping[str, Any], message: str | None = None) -> Flow:
    """The flow at these sizes; what is None or missing is the flow's own. `payload` and `fields` are any flow's.

    Raises:
        ValueError: the sizes do not make a flow, or one is another flow's.
    """
    asked = {size: value for size, value in given.items() if value is not None}
    trip_bytes, fields = asked.pop("payload", None), asked.pop("fields", None)
    message = None if fields else message  # what is cut is the flat message
    known = sizes_of(name, message)
    for size in asked.keys() - known.keys():
        owners = [flow for flow in FLOWS if size in sizes_of(flow)]
        owners += [f"{flow} --message fields" for flow in FIELDS if size in sizes_of(flow, "fields")]
        own = f", or give {name} {', '.join(map(flag_of, known))}" if known else ""
        raise ValueError(f"{flag_of(size)} is for {', '.join(owners)}: leave it out{own}")
    flow = function_of(name, message)(**{**known, **asked})
    flow = scaled_to(flow, trip_bytes) if trip_bytes else flow
    return cut_into(flow, fields) if fields else flow


def flow_of_edges(name: str, edges: Sequence[tuple[str, str, int]]) -> Flow:
    """A flow of flat messages with these edges, as a record has them."""
    bytes_of = {source: count for source, _, count in edges}
    readers = dict.fromkeys(reader for _, reader, _ in edges if reader != DRIVER)
    reads = {reader: tuple(source for source, other, _ in edges if other == reader) for reader in [*readers, DRIVER]}
    tasks = tuple(Task(task, reads[task], flat(bytes_of[task])) for task in readers)
    return Flow(name, name, flat(bytes_of[DRIVER]), tasks, returns=reads[DRIVER])


def describe_flows() -> str:
    """Each flow with who reads from whom, its messages, fields and bytes."""
    lines = []
    for name, message in [*((flow, None) for flow in FLOWS), *((flow, "fields") for flow in FIELDS)]:
        flow = build_flow(name, {}, message)
        sizes = ", ".join(f"{flag_of(size)} {value}" for size, value in sizes_of(name, message).items() if value)
        lines.append(f"{name}{' --message fields' if message else ''}: {flow.title}, "
                     f"{format_bytes(flow.bytes_per_trip)} a trip ({sizes})")  # fmt: skip
        lines += describe_messages(flow)
    return "\n".join(lines)


def describe_messages(flow: Flow) -> list[str]:
    """Of each message who reads it, its bytes and its fields."""
    lines = []
    for sender in (DRIVER, *(task.name for task in flow.tasks)):
        readers, emits = ", ".join(edge.reader for edge in flow.edges_from(sender)), flow.message(sender)
        lines.append(f"  {f'{sender} -> {readers}':42} {format_bytes(emits.bytes):>10}")
        lines += [f"      {field.name:28} {field.dtype:8} {_shape(field)}" for field in emits.fields if field.name]
    return lines


def _shape(field: Field) -> str:
    return (
        f"{len(field.lengths)} x [{min(field.lengths)}..{max(field.lengths)}]" if field.ragged else str([*field.shape])
    )


def flag_of(size: str) -> str:
    """How a size is called on the command line."""
    return "--" + size.replace("_", "-")
