"""A message as torch has it: one tensor, or a dict of tensors, lists of tensors and lists of strings."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np
import torch

from common.errors import RunFailed
from common.flow.flow import Edge
from common.flow.message import ALIGNMENT_BYTES, ITEM_BYTES, PYTHON, Field, Message
from common.payload import pattern

# What torch warns of, writing to a channel, to an object in the store or to bytes, nobody does here.
warnings.filterwarnings("ignore", message="The given (NumPy array|buffer) is not writable")

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


def to_arrays(payload: Payload) -> Any:
    """The payload with numpy arrays for tensors; on a CPU they are the tensors' own memory."""
    return map_tensors(lambda tensor: tensor.cpu().numpy(), payload)


def from_arrays(arrays: Any, device: Any) -> Payload:
    """The payload of what `to_arrays` gave.

    Raises:
        RunFailed: something other than arrays arrived.
    """

    def tensor(array: Any) -> torch.Tensor:
        if not isinstance(array, np.ndarray):
            raise RunFailed(f"expected an array, got {type(array).__name__}")
        return torch.from_numpy(array).to(device)

    return map_tensors(tensor, arrays)


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
    return sum(len(pattern.raw(leaf)) if isinstance(leaf, (str, list)) else leaf.nbytes for leaf in found)


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
        elif isinstance(payload, dict) and list(payload) == [field.name for field in message.fields]:
            continue
        wanted = "a tensor" if message.bare else f"a dict of {', '.join(field.name for field in message.fields)}"
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


def pack(payload: Payload, message: Message, into: list[Any]) -> None:
    """Write every leaf to its place; `into` are the places, as `places` gives them."""
    for place, leaf in zip(into, chain.from_iterable(leaves_of(payload, f) for f in message.fields), strict=True):
        if isinstance(leaf, str):
            place[...] = np.frombuffer(leaf.encode(), np.uint8)
        elif isinstance(leaf, list):
            place[...] = leaf if isinstance(place, np.ndarray) else torch.tensor(leaf)
        elif isinstance(place, np.ndarray):
            np.copyto(place, leaf.numpy())
        else:
            place.copy_(leaf)


def places(buffer: torch.Tensor, message: Message) -> list[Any]:
    """Where each leaf lies in a flat buffer: arrays on a CPU, which are ten times cheaper to write to, else tensors."""
    found: list[Any] = []
    for leaf in message.leaves:
        part = buffer.view(torch.uint8)[leaf.offset : leaf.offset + leaf.bytes]
        part = part.view(getattr(torch, PYTHON.get(leaf.field.dtype, leaf.field.dtype))).reshape(leaf.shape)
        found.append(part.numpy() if buffer.is_cpu else part)
    return found


def unpack(buffer: torch.Tensor, message: Message) -> Payload:
    """The payload whose tensors are views of a flat buffer. A list costs one call, not one a tensor."""
    raw, offset, fields = buffer.view(torch.uint8), 0, []
    for field in message.fields:
        item_bytes = ITEM_BYTES[field.dtype]
        if field.ragged:
            spans = [-(-count * item_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for count in field.lengths]
            end = min(offset + sum(spans), len(raw))
            fields.append(_unpack_list(raw[offset:end], field, spans))
            offset += sum(spans)
        else:
            part = raw[offset : offset + field.bytes].view(getattr(torch, field.dtype))
            fields.append([part.view(field.shape)])
            offset += -(-field.bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return assemble(message, fields)


def _unpack_list(raw: torch.Tensor, field: Field, spans: list[int]) -> list[Any]:
    if field.dtype == "str":
        text, begin, found = raw.cpu().numpy().tobytes(), 0, []
        for count, span in zip(field.lengths, spans, strict=True):
            found.append(text[begin : begin + count].decode(errors="replace"))
            begin += span
        return found
    item_bytes = ITEM_BYTES[field.dtype]
    whole = len(raw) // item_bytes * item_bytes
    spans = [*spans[:-1], whole - sum(spans[:-1])]  # the last one of a message has no padding
    dtype = getattr(torch, PYTHON.get(field.dtype, field.dtype))
    parts = raw[:whole].view(dtype).split([span // item_bytes for span in spans])
    if field.python:
        return [part.tolist() for part in parts]
    if all(len(part) == count for part, count in zip(parts, field.lengths, strict=True)):
        return list(parts)
    return [part[:count] for part, count in zip(parts, field.lengths, strict=True)]


def to_bytes(payload: Payload) -> Any:
    """Plain Python bytes instead of tensors."""
    return map_tensors(lambda tensor: tensor.cpu().numpy().tobytes(), payload)


def from_bytes(blob: Any, message: Message, device: Any) -> Payload:
    """What `to_bytes` was given, as tensors that nobody may write to."""
    if message.bare:
        return _tensor(blob, message.fields[0], message.fields[0].shape, device)
    return assemble(message, [
        [_tensor(part, field, shape, device) for part, shape in zip(leaves_of(blob, field), field.shapes, strict=True)]
        for field in message.fields
    ])  # fmt: skip


def _tensor(part: Any, field: Field, shape: tuple[int, ...], device: Any) -> Any:
    if not part or field.python:  # torch makes no tensor of an empty buffer
        return part if field.python else torch.empty(shape, dtype=getattr(torch, field.dtype), device=device)
    return torch.frombuffer(part, dtype=getattr(torch, field.dtype)).view(shape).to(device)


def to_wire(payload: Payload, message: Message) -> list[torch.Tensor]:
    """Every tensor one by one, for what sends nothing else; a list of strings or numbers is one tensor."""
    if message.bare:
        return [payload]
    found: list[torch.Tensor] = []
    for field in message.fields:
        if not field.python:
            found += leaves_of(payload, field)
        elif field.dtype != "str":
            numbers = list(chain.from_iterable(payload[field.name])) or [0] * sum(field.lengths)
            found.append(torch.tensor(numbers, dtype=getattr(torch, PYTHON[field.dtype])))
        else:
            text = "".join(payload[field.name]).ljust(field.bytes, "\0")
            found.append(torch.from_numpy(np.frombuffer(bytearray(text.encode()), np.uint8)))
    return found


def from_wire(tensors: list[torch.Tensor], message: Message) -> Payload:
    """The payload whose tensors these are."""
    if message.bare:
        return tensors[0]
    rest, fields = iter(tensors), list[list[Any]]()
    for field in message.fields:
        if not field.python:
            fields.append([next(rest) for _ in field.shapes])
        elif field.dtype != "str":
            fields.append([part.tolist() for part in next(rest).split(field.lengths)])
        else:
            text, ends = next(rest).cpu().numpy().tobytes().decode(errors="replace"), [0, *accumulate(field.lengths)]
            fields.append([text[begin:end] for begin, end in pairwise(ends)])
    return assemble(message, fields)
