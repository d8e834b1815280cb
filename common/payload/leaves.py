"""A message as torch has it: one tensor, or a dict of tensors, lists of tensors and lists of strings."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import torch

from common.errors import RunFailed
from common.flow.flow import Edge
from common.flow.message import Field, Message

Payload = Any  # a torch.Tensor, or dict[str, Tensor | list[Tensor] | list[str] | list[list[int | float]]]


def map_tensors(function: Callable[[Any], Any], payload: Payload) -> Any:
    """The payload with `function` of each of its tensors; strings and numbers stay."""
    if not isinstance(payload, dict):
        return function(payload)
    return {name: _map_field(function, value) for name, value in payload.items()}


def _map_field(function: Callable[[Any], Any], value: Any) -> Any:
    if not isinstance(value, list):
        return function(value)
    return value if isinstance(value[0], (str, list)) else [function(tensor) for tensor in value]


def to_host(payload: Payload) -> Payload:
    return map_tensors(lambda tensor: tensor.cpu(), payload)


def to_device(payload: Payload, device: Any) -> Payload:
    return map_tensors(lambda tensor: tensor.to(device), payload)


def cut(payload: Payload, rows: int) -> list[Payload]:
    """A dict of fields of B rows in pieces of so many rows, the last one perhaps of fewer: views."""
    count = len(next(iter(payload.values())))
    return [{name: value[start : start + rows] for name, value in payload.items()} for start in range(0, count, rows)]


def join(pieces: Sequence[Payload]) -> Payload:
    """Pieces put together again, tensors by a copy."""
    return {
        name: torch.cat([piece[name] for piece in pieces]) if isinstance(value, torch.Tensor)
        else [leaf for piece in pieces for leaf in piece[name]]
        for name, value in pieces[0].items()
    }  # fmt: skip


def payload_bytes(payload: Payload) -> int:
    """What its tensors and strings take."""
    values = payload.values() if isinstance(payload, dict) else [payload]
    found = chain.from_iterable(value if isinstance(value, list) else [value] for value in values)
    return sum(
        len(leaf.encode()) if isinstance(leaf, str) else 8 * len(leaf) if isinstance(leaf, list) else leaf.nbytes
        for leaf in found
    )


def assemble(message: Message, fields: Iterable[list[Any]]) -> Payload:
    """The payload of these leaves, a list a field."""
    found = [leaves if field.ragged else leaves[0] for field, leaves in zip(message.fields, fields, strict=True)]
    return found[0] if message.bare else {field.name: value for field, value in zip(message.fields, found, strict=True)}


def leaves_of(payload: Payload, field: Field) -> list[Any]:
    """The tensors (or strings) of one field."""
    value = payload[field.name] if field.name else payload
    return value if field.ragged else [value]


def refuse_other(inputs: Sequence[Payload], edges: Sequence[Edge]) -> None:
    """A compiled graph hands a failed deserialisation to the method as its argument, so every input is looked at.

    Raises:
        RunFailed: this is not one payload an edge, of its message's fields.
    """
    if len(inputs) != len(edges):
        raise RunFailed(f"expected {', '.join(map(str, edges))}; got {len(inputs)} messages")
    for edge, payload in zip(edges, inputs, strict=True):
        message = edge.message
        if message.bare:
            if isinstance(payload, torch.Tensor):
                continue
        elif isinstance(payload, dict) and list(payload) == message.names:
            continue
        wanted = "a tensor" if message.bare else f"a dict of {', '.join(message.names)}"
        raise RunFailed(f"expected {wanted} for {edge}; got {type(payload).__name__}")


def like(message: Message, device: Any) -> Payload:
    """Warm memory that a payload fits into; strings and numbers have none."""
    return assemble(message, [
        [""] * len(field.lengths) if field.dtype == "str" else [[]] * len(field.lengths) if field.python
        else [torch.ones(shape, dtype=getattr(torch, field.dtype), device=device) for shape in field.shapes]
        for field in message.fields
    ])  # fmt: skip


def copy(payload: Payload, into: Payload) -> Payload:
    """Every tensor copied into the memory of `like`; strings are Python's own already."""
    if not isinstance(payload, dict):
        return _copy(payload, into)
    return {
        name: value if isinstance(value, list) and isinstance(value[0], (str, list))
        else [_copy(*pair) for pair in zip(value, into[name], strict=True)] if isinstance(value, list)
        else _copy(value, into[name])
        for name, value in payload.items()
    }  # fmt: skip


def _copy(tensor: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
    """A tensor of another type is no copy, but itself, so that the check sees it."""
    return into.copy_(tensor) if (tensor.dtype, tensor.shape) == (into.dtype, into.shape) else tensor
