"""The forms in which a payload travels where it does not go as it is: arrays, one buffer, bytes, tensors one by one."""

import warnings
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np
import torch

from common.errors import RunFailed
from common.flow.message import PYTHON, Field, Message
from common.payload.leaves import Payload, assemble, leaves_of, map_tensors

# What torch warns of, writing to a channel, to an object in the store or to bytes, nobody does here.
warnings.filterwarnings("ignore", message="The given (NumPy array|buffer) is not writable")


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


def pack(payload: Payload, message: Message, into: list[Any]) -> None:
    """Write every field to its place; `into` are the places, as `places` gives them. A list costs one call."""
    for place, field in zip(into, message.fields, strict=True):
        leaves = leaves_of(payload, field)
        if field.dtype == "str":
            _write(place, np.frombuffer("".join(leaves).encode(), np.uint8))
        elif field.python:
            _write(place, np.array([*chain.from_iterable(leaves)], PYTHON[field.dtype]))
        elif field.ragged:
            torch.cat(leaves, out=place)
        elif isinstance(place, np.ndarray):
            np.copyto(place, leaves[0].numpy())
        else:
            place.copy_(leaves[0])


def _write(place: Any, items: np.ndarray) -> None:
    if isinstance(place, np.ndarray):
        np.copyto(place, items)
    else:
        place.copy_(torch.from_numpy(items))


def places(buffer: torch.Tensor, message: Message) -> list[Any]:
    """Where each field lies in a flat buffer: what is no list of tensors as an array, cheaper to write to, on a CPU."""
    found: list[Any] = []
    for field, part in zip(message.fields, _parts(buffer, message), strict=True):
        array = buffer.is_cpu and (field.python or not field.ragged)
        found.append(part.numpy() if array else part)
    return found


def _parts(buffer: torch.Tensor, message: Message) -> Iterator[torch.Tensor]:
    """Of each field the tensor, or all of its list as one."""
    raw = buffer.view(torch.uint8)
    for field, span in zip(message.fields, message.spans, strict=True):
        part = raw[span].view(getattr(torch, PYTHON.get(field.dtype, field.dtype)))
        yield part if field.ragged else part.view(field.shape)


def unpack(buffer: torch.Tensor, message: Message) -> Payload:
    """The payload whose tensors are views of a flat buffer. A list costs one call, not one a tensor."""
    fields: list[list[Any]] = []
    for field, part in zip(message.fields, _parts(buffer, message), strict=True):
        if field.dtype == "str":
            fields.append(_strings(part, field.lengths))
        elif field.python:
            fields.append(_cut(part.tolist(), field.lengths))
        else:
            fields.append(list(part.split(field.lengths)) if field.ragged else [part])
    return assemble(message, fields)


def _cut(items: Any, lengths: Sequence[int]) -> list[Any]:
    """What follows each other, one by one."""
    return [items[begin:end] for begin, end in pairwise([0, *accumulate(lengths)])]


def _strings(part: torch.Tensor, lengths: Sequence[int]) -> list[str]:
    return [text.decode(errors="replace") for text in _cut(part.cpu().numpy().tobytes(), lengths)]


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
            fields.append(_cut(next(rest).tolist(), field.lengths))
        else:
            fields.append(_strings(next(rest), field.lengths))
    return assemble(message, fields)
