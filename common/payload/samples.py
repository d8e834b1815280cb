"""A message as samples: split into its rows, padded again into micro-batches, and the check that none was lost."""

from collections.abc import Sequence
from typing import Any

import torch

from common.flow.flow import Edge
from common.flow.message import Field
from common.payload import pattern
from common.payload.leaves import Payload

Batch = dict[str, Any]


def split(messages: Sequence[Payload]) -> list[Batch]:
    """The rows of what a flow returned, merged, each a dict: views. Of two fields of a name the later one is taken."""
    merged = {name: value for message in messages for name, value in message.items()}
    return [{name: value[row] for name, value in merged.items()} for row in range(len(next(iter(merged.values()))))]


def padded(samples: Sequence[Batch]) -> Batch:
    """Samples as one dict of fields: tensors of unequal length are filled with zeros, the others stay a list."""
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


def micro_batches(messages: Sequence[Payload], rows: int) -> list[Batch]:
    """What a trainer makes of the messages of one trip: memory of its own, so nothing of another's is held."""
    samples = split(messages)
    return [padded(samples[start : start + rows]) for start in range(0, len(samples), rows)]


def wrong_bytes(
    batches: Sequence[Batch], edges: Sequence[Edge], number: int, slots: int, digests: dict[str, list[list[int]]]
) -> dict[str, int]:
    """Micro-batches put together again, against what was sent as this number: wrong bytes by field."""
    wrong: dict[str, int] = {}
    slot = number % slots
    sent = {field.name: (edge, index, field) for edge in edges for index, field in enumerate(edge.message.fields)}
    for name, (edge, index, field) in sent.items():
        found = _joined(batches, field)
        if [leaf.shape if hasattr(leaf, "shape") else (len(leaf),) for leaf in found] != field.shapes:
            bad = max(1, field.bytes)
        else:
            bad = pattern.count_wrong_bytes(found, field, number, edge.source, slot, digests[edge.source][slot][index])
            bad += _not_zero(batches, field)
        if bad:
            wrong[f"{edge}, micro-batches, {name}"] = bad
    return wrong


def _joined(batches: Sequence[Batch], field: Field) -> list[Any]:
    """One field of all samples, without what padding added."""
    rows = [row for batch in batches for row in batch[field.name]]
    if field.python:
        return rows
    if not field.ragged:
        alike = {row.shape for row in rows}
        return [torch.stack(rows).cpu().numpy()] if len(alike) == 1 else []
    if len(rows) != len(field.lengths):
        return []
    return [row[:count].cpu().numpy() for row, count in zip(rows, field.lengths, strict=True)]


def _not_zero(batches: Sequence[Batch], field: Field) -> int:
    """Bytes of padding that are something else."""
    if field.python or not field.ragged:
        return 0
    rows = [row for batch in batches for row in batch[field.name]]
    padding = [row[count:].contiguous().view(torch.uint8) for row, count in zip(rows, field.lengths, strict=True)]
    return sum(int(each.count_nonzero()) for each in padding)
