"""Build the flow of model weights: trainers send all tensors of a model to rollouts, which serve them.

    driver -- start --> trainer -- all tensors --> rollout-1, rollout-2 -- acknowledgement --> driver

With a bucket size, each bucket of tensors is a message and a task of its own, one after the other.
"""

import math
from dataclasses import replace
from itertools import chain, zip_longest

from dataflow.flows.flow import Flow, Task, tasks_in_turn
from dataflow.flows.message import ACKNOWLEDGEMENT, VALUES, Field, Message, model_fields

MAX_MESSAGES = 2000  # per iteration: each needs its own memory and its own entry in the record
INDICES = (
    "_indices"  # the end of the name of a field: where the values of changed parameters belong
)


def weights(
    model: str = "gpt2", receivers: int = 2, senders: int = 1, bucket_size: int = 0, sharded: bool = False,
    lora_rank: int = 0, changed: float = 1.0, model_scale: float = 1.0,
) -> Flow:  # fmt: skip
    """Trainers send the tensors of a model to rollouts, which install them and acknowledge.

    Each sender sends its part of the tensors to every receiver; with `sharded`, only to the rollout of its own number.
    `bucket_size` is in bytes; 0: one message per sender. Raise ValueError for an unknown model, and for numbers that do
    not fit.
    """
    if sharded and senders != receivers:
        raise ValueError(
            f"--sharded: {senders} senders and {receivers} receivers: give the same number of both"
        )
    fields = model_fields(model, model_scale, lora_rank)
    parts = split_evenly([replace(field, changed_share=changed) for field in fields], senders)
    buckets = [cut_into_buckets(part, bucket_size) for part in parts]
    count = sum(map(len, buckets))
    if count * receivers > MAX_MESSAGES:
        raise ValueError(f"--bucket-size: {count} buckets and {receivers} receivers are more than {MAX_MESSAGES} "
                         "messages: give a larger one")  # fmt: skip
    actors = [f"trainer-{index + 1}" for index in range(senders)] if senders > 1 else ["trainer"]
    sending = [
        tasks_in_turn(actor, messages) for actor, messages in zip(actors, buckets, strict=True)
    ]
    # In the order in which the senders are likely to be ready: the first bucket of each, then the second ones.
    by_turns = [task for turn in zip_longest(*sending) for task in turn if task]
    receiving: list[Task] = []
    for index in range(receivers):
        sources = sending[index] if sharded else by_turns
        tasks = tasks_in_turn(f"rollout-{index + 1}", [ACKNOWLEDGEMENT] * len(sources))
        receiving += [
            replace(task, reads=(source.name,)) for task, source in zip(tasks, sources, strict=True)
        ]
    returns = tuple(task.name for task in receiving)
    scale = f" at scale {model_scale:g}" if model_scale < 1 else ""
    adapters = f", adapters of rank {lora_rank}" if lora_rank else ""
    share = f", {changed:.2%} changed" if changed < 1 else ""
    origin = f" from {senders} senders" if senders > 1 else ""
    shards = " in shards" if sharded else ""
    title = f"weights of {model}{scale}{adapters}{share}{origin} to {receivers} receivers{shards}"
    return Flow("weights", title, ACKNOWLEDGEMENT, (*chain(*sending), *receiving), returns)


def split_evenly(fields: list[Field], count: int) -> list[list[Field]]:
    """Cut a list of tensors into `count` parts of similar bytes; raise ValueError if a part has no tensor."""
    total, before = sum(field.bytes for field in fields), 0
    parts: list[list[Field]] = [[] for _ in range(count)]
    for field in fields:
        parts[min(count - 1, (before + field.bytes // 2) * count // total)].append(field)
        before += field.bytes
    if not all(parts):
        raise ValueError(
            f"--senders {count}: the model has too few tensors of similar size: give fewer senders"
        )
    return parts


def cut_into_buckets(fields: list[Field], bucket_size: int) -> list[Message]:
    """Return messages of at most `bucket_size` bytes, or of one larger tensor; one message for 0."""
    buckets: list[list[Field]] = [[]]
    size = 0
    for field in fields:
        if bucket_size and buckets[-1] and size + field.bytes > bucket_size:
            buckets.append([])
            size = 0
        buckets[-1].append(field)
        size += field.bytes
    return [Message(tuple(bucket)) for bucket in buckets]


def changes_flow(flow: Flow) -> Flow:
    """Return the flow whose messages of parameters have only the changed items, and their indices."""

    def change(message: Message) -> Message:
        fields = []
        for field in message.fields if message.is_parameters else ():
            count = sum(len(range(math.prod(field.shape))[part]) for part in field.changed_items)
            fields.append(Field(field.name + VALUES, field.dtype, (count,)))
            fields.append(Field(field.name + INDICES, "int32", (count,)))
        return Message(tuple(fields)) if fields else message

    return flow.with_messages(change)
