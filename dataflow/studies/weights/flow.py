"""Build the flow of model weights: trainers send all tensors of a model to rollouts, which serve them.

    driver -- start --> trainer -- all tensors --> rollout-1, rollout-2 -- acknowledgement --> driver

With a bucket size, each bucket of tensors is a message and a task of its own, one after the other.
"""

import tomllib
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from dataflow.errors import did_you_mean
from dataflow.flows.flow import DRIVER, Flow, Task
from dataflow.flows.message import ACKNOWLEDGEMENT, Field, Message
from dataflow.units import parse_bytes

MODELS = tomllib.loads(Path(__file__).with_name("models.toml").read_text(encoding="utf-8"))
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


def model_fields(model: str, scale: float, lora_rank: int = 0) -> list[Field]:
    """Return the tensors of a model, or two adapter matrices per matrix of a layer. A size is one flat tensor.

    With a scale, the first dimension of each tensor is smaller.
    """
    if lora_rank and model not in MODELS:
        raise ValueError(f"--lora-rank: a --model of {model} has no matrices: leave it out")
    if model not in MODELS:
        try:
            items = round(parse_bytes(model) * scale) // 8
        except ValueError:
            raise ValueError(f"unknown --model {model}{did_you_mean(model, MODELS)}: give {', '.join(MODELS)}, or the "
                             "size of one flat tensor, such as 1GiB") from None  # fmt: skip
        if not items:
            raise ValueError(
                f"--model {model}: one flat tensor has at least 8 bytes: give {', '.join(MODELS)}, or more"
            )
        return [Field("flat", "int64", (items,), is_parameter=True)]
    shapes, layers = MODELS[model], range(MODELS[model]["layers"])
    lines = [] if lora_rank else list(shapes["once"])
    for layer in layers:
        lines += [f"{layer}.{line}" for line in shapes["layer"]]
        lines += [f"{layer}.{expert}.{line}" for expert in range(shapes.get("experts", 0)) for line in shapes["expert"]]
    fields = []
    for line in lines:
        name, first, *rest = line.split()
        rows, columns = max(1, round(int(first) * scale)), [*map(int, rest)]
        if not lora_rank:
            fields.append(Field(name, shapes["dtype"], (rows, *columns), is_parameter=True))
        elif columns:
            fields.append(Field(f"{name}.lora_A", shapes["dtype"], (lora_rank, *columns), is_parameter=True))
            fields.append(Field(f"{name}.lora_B", shapes["dtype"], (rows, lora_rank), is_parameter=True))
    return fields


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
