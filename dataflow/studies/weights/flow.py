"""Build the flow of model weights: trainers send all tensors of a model to rollouts, which serve them.

    driver -- start --> trainer -- all tensors --> rollout-1, rollout-2 -- acknowledgement --> driver

With a bucket size, each bucket of tensors is a message and a task of its own, one after the other.
"""

from dataclasses import replace
from itertools import zip_longest

from dataflow.flows.flow import DRIVER, Flow, Task
from dataflow.flows.message import ACKNOWLEDGEMENT, Field, Message
from dataflow.flows.models import model_fields

MAX_MESSAGES = 2000  # per iteration: each needs its own memory and its own entry in the record


def weights(
    model: str = "gpt2", receivers: int = 2, senders: int = 1, bucket_size: int = 0, sharded: bool = False,
    lora_rank: int = 0, changed: float = 1.0, scale: float = 1.0,
) -> Flow:  # fmt: skip
    """Trainers send the tensors of a model to rollouts, which install them and acknowledge.

    Each sender sends its part of the tensors to every receiver; with `sharded`, only to the receiver with the same
    number.
    Raise ValueError for an unknown model, and for numbers that do not fit.
    """
    if sharded and senders != receivers:
        raise ValueError(f"--sharded: {senders} senders and {receivers} receivers: give the same number of both")
    tasks: list[Task] = []
    names = [f"trainer-{index}" if senders > 1 else "trainer" for index in range(1, senders + 1)]
    fields = [replace(field, changed_share=changed) for field in model_fields(model, scale, lora_rank)]
    parts = split_evenly(fields, senders)
    buckets = [cut_into_buckets(part, bucket_size) for part in parts]
    if sum(map(len, buckets)) * receivers > MAX_MESSAGES:
        raise ValueError(f"--bucket-size: {sum(map(len, buckets))} buckets and {receivers} receivers are more than "
                         f"{MAX_MESSAGES} messages: give a larger one")  # fmt: skip
    for name, messages in zip(names, buckets, strict=True):
        previous = DRIVER
        for index, message in enumerate(messages):
            task = f"{name}.{index}" if len(messages) > 1 else name
            tasks.append(Task(task, (previous,), message, actor=name))
            previous = task
    by_sender = [[task for task in tasks if task.actor == name] for name in names]
    returns: list[str] = []
    # In the order in which the senders are likely to be ready: the first bucket of each, then the second ones.
    sources = [task for turn in zip_longest(*by_sender) for task in turn if task]
    for index in range(1, receivers + 1):
        actor = f"rollout-{index}"
        if sharded:
            sources = by_sender[index - 1]
        for number, source in enumerate(sources):
            task = f"{actor}.{number}" if len(sources) > 1 else actor
            tasks.append(Task(task, (source.name,), ACKNOWLEDGEMENT, actor=actor))
            returns.append(task)
    details = {
        f" at scale {scale:g}": scale < 1,
        f", adapters of rank {lora_rank}": lora_rank,
        f", {changed:.2%} changed": changed < 1,
        f" from {senders} senders": senders > 1,
        f" to {receivers} receivers": True,
        " in shards": sharded,
    }
    title = f"weights of {model}" + "".join(text for text, is_shown in details.items() if is_shown)
    return Flow("weights", title, ACKNOWLEDGEMENT, tuple(tasks), tuple(returns))


def split_evenly(fields: list[Field], count: int) -> list[list[Field]]:
    """Cut a list of tensors into `count` parts of similar bytes; raise ValueError if a part has no tensor."""
    total, before = sum(field.bytes for field in fields), 0
    parts: list[list[Field]] = [[] for _ in range(count)]
    for field in fields:
        parts[min(count - 1, (before + field.bytes // 2) * count // total)].append(field)
        before += field.bytes
    if not all(parts):
        raise ValueError(f"--senders {count}: the model has too few tensors of similar size: give fewer senders")
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
