# SPDX-License-Identifier: Apache-2.0
"""Build the flow of model weights: trainers send all tensors of a model to rollouts, which serve them.

    driver -- start --> trainer -- all tensors --> rollout-1, rollout-2 -- acknowledgement --> driver

With a bucket size, each bucket of tensors is a message and a task of its own, one after the other.
"""

import math
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

from dataflow.flows.flow import Flow, Task, tasks_in_turn
from dataflow.flows.message import ACKNOWLEDGEMENT, VALUES, Field, Message, model_fields
from dataflow.flows.sizes import of_sizes

MAX_MESSAGES = 2000  # per iteration: each needs its own memory and its own entry in the record
# The end of the name of a field: where the values of changed parameters belong.
INDICES = "_indices"


@dataclass(frozen=True)
class WeightsSizes:
    """The sizes of the flow, with their defaults: the tensors of a model, and between whom they are sent."""

    model: str = "gpt2"
    receivers: int = 2
    senders: int = 1
    bucket_size: int = 0
    sharded: bool = False
    lora_rank: int = 0
    changed: float = 1.0
    model_scale: float = 1.0

    @property
    def title(self) -> str:
        """Return what is sent to whom, as tables show it."""
        scale = f" at scale {self.model_scale:g}" if self.model_scale < 1 else ""
        adapters = f", adapters of rank {self.lora_rank}" if self.lora_rank else ""
        share = f", {self.changed:.2%} changed" if self.changed < 1 else ""
        origin = f" from {self.senders} senders" if self.senders > 1 else ""
        shards = " in shards" if self.sharded else ""
        tensors = f"{self.model}{scale}{adapters}{share}"
        return f"weights of {tensors}{origin} to {self.receivers} receivers{shards}"


def build_weights(sizes: WeightsSizes) -> Flow:
    """Return a flow in which trainers send the tensors of a model to rollouts, which install them and acknowledge.

    Each sender sends its part of the tensors to every receiver; with `sharded`, only to the rollout of its own number.
    `bucket_size` is in bytes; 0: one message per sender. Raise ValueError for an unknown model, and for numbers that do
    not fit.
    """
    senders = sizes.senders
    receivers = sizes.receivers
    if sizes.sharded and senders != receivers:
        raise ValueError(
            f"--sharded: {senders} senders and {receivers} receivers: give the same number of both"
        )
    tensors = model_fields(sizes.model, sizes.model_scale, sizes.lora_rank)
    fields = [replace(field, changed_share=sizes.changed) for field in tensors]
    parts = split_evenly(fields, senders)
    buckets = [cut_into_buckets(part, sizes.bucket_size) for part in parts]
    check_count(sum(map(len, buckets)), receivers)
    sending = sender_tasks(buckets)
    receiving = receiver_tasks(sending, receivers, sizes.sharded)
    returns = tuple(task.name for task in receiving)
    return Flow("weights", sizes.title, ACKNOWLEDGEMENT, (*chain(*sending), *receiving), returns)


weights = of_sizes(WeightsSizes, build_weights)


def check_count(buckets: int, receivers: int) -> None:
    """Raise ValueError if there are more messages than MAX_MESSAGES."""
    if buckets * receivers <= MAX_MESSAGES:
        return
    messages = f"{buckets} buckets and {receivers} receivers"
    raise ValueError(
        f"--bucket-size: {messages} are more than {MAX_MESSAGES} messages: give a larger one"
    )


def sender_tasks(buckets: list[list[Message]]) -> list[list[Task]]:
    """Return the tasks of each sender: one per bucket."""
    if len(buckets) == 1:
        return [tasks_in_turn("trainer", buckets[0])]
    sending = []
    for number, messages in enumerate(buckets, start=1):
        tasks = tasks_in_turn(f"trainer-{number}", messages)
        sending.append(tasks)
    return sending


def receiver_tasks(sending: list[list[Task]], receivers: int, sharded: bool) -> list[Task]:
    """Return the tasks of all receivers: one per message that they read.

    With `sharded`, which needs as many senders as receivers, each reads only the sender of its own number.
    """
    # In the order in which the senders are likely to be ready: the first bucket of each, then the second ones.
    by_turns: list[Task] = []
    for turn in zip_longest(*sending):
        by_turns += [task for task in turn if task]
    receiving = []
    for index in range(receivers):
        sources = sending[index] if sharded else by_turns
        answers = [ACKNOWLEDGEMENT] * len(sources)
        tasks = tasks_in_turn(f"rollout-{index + 1}", answers)
        for task, source in zip(tasks, sources, strict=True):
            receiving.append(replace(task, reads=(source.name,)))
    return receiving


def split_evenly(fields: list[Field], count: int) -> list[list[Field]]:
    """Cut a list of tensors into `count` parts of similar bytes; raise ValueError if a part has no tensor."""
    total = sum(field.bytes for field in fields)
    before = 0
    parts: list[list[Field]] = [[] for _ in range(count)]
    for field in fields:
        middle = before + field.bytes // 2
        index = middle * count // total
        last = count - 1
        parts[min(last, index)].append(field)
        before += field.bytes
    if not all(parts):
        raise ValueError(
            f"--senders {count}: the model has too few tensors of similar size: give fewer senders"
        )
    return parts


def cut_into_buckets(fields: list[Field], bucket_size: int) -> list[Message]:
    """Return messages of at most `bucket_size` bytes, or of one larger tensor, in order; one message for 0."""
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
    return flow.with_messages(changes_message)


def changes_message(message: Message) -> Message:
    """Return the message with only the changed items and their indices; a message without parameters as it is."""
    if not message.is_parameters:
        return message
    fields = []
    for field in message.fields:
        count = count_changed(field)
        values = Field(field.name + VALUES, field.dtype, (count,))
        indices = Field(field.name + INDICES, "int32", (count,))
        fields += [values, indices]
    return Message(tuple(fields))


def count_changed(field: Field) -> int:
    """Return the number of items that an update changes."""
    items = range(math.prod(field.shape))
    return sum(len(items[part]) for part in field.changed_items)
