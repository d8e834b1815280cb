"""The forms in which a payload travels where it does not go as it is: arrays, one buffer, bytes, tensors one by one."""

import warnings
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np
import torch

from common.errors import RunFailed
from common.flow.message import ALIGNMENT_BYTES, ITEM_BYTES, PYTHON, Field, Message
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
