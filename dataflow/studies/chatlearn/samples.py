"""Split messages into samples, pad samples into micro-batches, and verify that each sample arrived once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dataflow.endpoints.payload import Digests, count_wrong_bytes
from dataflow.endpoints.tensors import Payload, to_array
from dataflow.flows.flow import Edge
from dataflow.flows.message import Field

Batch = dict[str, Any]


def split_samples(messages: Sequence[Payload]) -> list[Batch]:
    """Return one dict of views per sample, with the fields of all messages; of equal names, the last message's."""
    merged = {name: value for message in messages for name, value in message.items()}
    count = len(next(iter(merged.values())))
    return [{name: value[index] for name, value in merged.items()} for index in range(count)]


def pad_samples(samples: Sequence[Batch]) -> Batch:
    """Return samples as one dict of fields. Flat tensors are filled with zeros to equal lengths; strings stay lists."""
    batch: Batch = {}
    for name, first in samples[0].items():
        values = [sample[name] for sample in samples]
        if isinstance(first, (str, list)):
            batch[name] = values
        elif first.dim() == 1:
            batch[name] = torch.nn.utils.rnn.pad_sequence(values, batch_first=True)
        else:
            batch[name] = torch.stack(values)
    return batch


def make_micro_batches(messages: Sequence[Payload], batch_size: int) -> list[Batch]:
    """Return a trainer's micro-batches of one iteration's messages, as copies, so that no message is held."""
    samples = split_samples(messages)
    return [pad_samples(samples[start : start + batch_size]) for start in range(0, len(samples), batch_size)]


def verify_micro_batches(
    batches: Sequence[Batch], edges: Sequence[Edge], number: int, digests: Digests
) -> dict[str, int]:
    """Compare micro-batches with the messages `number` that were sent, and return the wrong bytes by field."""
    wrong = {}
    sent = {field.name: (edge, index, field) for edge in edges for index, field in enumerate(edge.message.fields)}
    for name, (edge, index, field) in sent.items():
        slot = number % len(digests[edge.source])
        tensors, count = _remove_padding([value for batch in batches for value in batch[name]], field)
        if [tensor.shape if hasattr(tensor, "shape") else (len(tensor),) for tensor in tensors] == field.shapes:
            expected = digests[edge.source][slot][index]
            count += count_wrong_bytes(tensors, field, number, edge.source, slot, expected)
        else:
            count = max(1, field.bytes)
        if count:
            wrong[f"{edge}, micro-batches, {name}"] = count
    return wrong


def _remove_padding(values: list[Any], field: Field) -> tuple[list[Any], int]:
    """Return one field of all samples as it was sent, and the number of bytes in the padding that are not zero."""
    if field.is_python:
        return values, 0
    arrays = list(map(to_array, values))
    if not field.is_list:
        return [np.stack(arrays)] if len({array.shape for array in arrays}) == 1 else [], 0
    if len(arrays) != len(field.lengths):
        return [], 0
    pairs = list(zip(arrays, field.lengths, strict=True))
    wrong = sum(int(np.count_nonzero(array[length:].view(np.uint8))) for array, length in pairs)
    return [array[:length] for array, length in pairs], wrong
