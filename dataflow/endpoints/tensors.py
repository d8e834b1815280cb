# SPDX-License-Identifier: Apache-2.0
"""Handle a message as torch tensors: walk over it, check it, copy it, pack it, list its tensors, and convert it."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, islice, pairwise
from operator import methodcaller
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dataflow.errors import RunFailed
from dataflow.flows.flow import Edge
from dataflow.flows.message import ITEM_BYTES, Field, Message

# By the bytes of an item.
INTEGERS = {
    1: torch.uint8,
    2: torch.int16,
    4: torch.int32,
    8: torch.int64,
}
# A tensor, or dict[str, Tensor | list[Tensor] | list[str] | list[list[int | float]]].
Payload = Any

# Readers get views of channels, of the object store and of bytes, which nobody may write to. Nothing here does.
warnings.filterwarnings("ignore", message="The given NumPy array is not writable")


def map_tensors(function: Callable[[Any], Any], payload: Payload) -> Any:
    """Return the payload with `function(tensor)` in place of each tensor. Strings and numbers stay as they are.

    A list is never empty. The functions of codecs return arrays or bytes for tensors.
    """
    if isinstance(payload, dict):
        return {name: map_tensors(function, value) for name, value in payload.items()}
    if not isinstance(payload, list):
        return function(payload)
    if isinstance(payload[0], (str, list)):
        return payload
    return [function(tensor) for tensor in payload]


def list_tensors(payload: Payload) -> list[Tensor]:
    """Return all tensors of a payload, in the order of its fields."""
    tensors: list[Tensor] = []
    map_tensors(tensors.append, payload)
    return tensors


def to_array(tensor: Tensor) -> np.ndarray:
    """Return a tensor as an array, which shares its memory if that is on the host. bfloat16 becomes uint16."""
    tensor = tensor.cpu()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.uint16)
    return tensor.numpy()


def first_rows(tensor: Tensor, rows: int) -> Tensor:
    """Return the first rows of a tensor on a CPU, which share its memory.

    It is no view for torch: its storage ends with these rows, because pickle writes the whole storage of a tensor.
    """
    dtype = str(tensor.dtype).removeprefix("torch.")
    return from_array(to_array(tensor)[:rows], dtype)


def from_array(array: np.ndarray, dtype: str) -> Tensor:
    """Return an array as a tensor of this dtype, which shares its memory."""
    tensor = torch.from_numpy(array)
    if dtype == "bfloat16":
        return tensor.view(torch.bfloat16)
    return tensor


def torch_dtype(name: str) -> torch.dtype:
    return getattr(torch, name)


def synchronise() -> None:
    """Wait for this process's own GPU, on which its tensors lie. To ask another one would take memory of it."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def assemble(message: Message, fields: Iterable[list[Any]]) -> Payload:
    """Return the payload whose fields have these tensors (or strings), one list per field."""
    values = {}
    for field, tensors in zip(message.fields, fields, strict=True):
        values[field.name] = tensors if field.is_list else tensors[0]
    if message.is_flat:
        return values[""]
    return values


def tensors_of(payload: Payload, field: Field) -> list[Any]:
    """Return the tensors, strings or lists of numbers of a field. A field that is no list has one tensor."""
    value = payload[field.name] if field.name else payload
    if field.is_list:
        return value
    return [value]


def flat_items(payload: Payload, field: Field) -> Tensor:
    """Return a field of one contiguous tensor as a flat view of integers: a NaN is not equal to itself."""
    (tensor,) = tensors_of(payload, field)
    integer = INTEGERS[ITEM_BYTES[field.dtype]]
    return tensor.reshape(-1).view(integer)


def check_inputs(inputs: Sequence[Payload], edges: Sequence[Edge]) -> None:
    """Raise RunFailed if the inputs are not one payload per edge, with the fields of its message."""
    # They can be anything: a compiled graph passes a failed deserialisation to the method as its argument.
    if len(inputs) != len(edges):
        names = ", ".join(map(str, edges))
        raise RunFailed(f"expected {names}; got {len(inputs)} messages")
    for edge, payload in zip(edges, inputs, strict=True):
        if _is_like(payload, edge.message):
            continue
        expected = _describe(edge.message)
        raise RunFailed(f"expected {expected} for {edge}; got {type(payload).__name__}")


def _is_like(payload: Any, message: Message) -> bool:
    """Return whether this is a tensor, or has the names of the message's fields in their order."""
    if message.is_flat:
        return isinstance(payload, Tensor)
    return isinstance(payload, dict) and list(payload) == message.names


def _describe(message: Message) -> str:
    if message.is_flat:
        return "a tensor"
    return f"a dict of {', '.join(message.names)}"


def like(message: Message, device: Any) -> Payload:
    """Return a payload to copy into. Its pages are in memory already; strings and lists of numbers are empty."""
    return _make_payload(message, device, torch.ones)


def unwritten(message: Message, device: Any) -> Payload:
    """Return the same in new memory, to which nobody has written, so each of its pages can be a page fault."""
    return _make_payload(message, device, torch.empty)


def _make_payload(message: Message, device: Any, make: Callable[..., Tensor]) -> Payload:
    """Return a payload whose tensors are made by a function of torch. Strings and lists of numbers are empty."""
    fields = []
    for field in message.fields:
        if field.is_python:
            items: list[Any] = [""] * len(field.lengths)
        else:
            dtype = torch_dtype(field.dtype)
            items = [make(shape, dtype=dtype, device=device) for shape in field.shapes]
        fields.append(items)
    return assemble(message, fields)


def copy(payload: Payload, into: Payload) -> Payload:
    """Return the payload with all tensors copied into the memory of `into` (see `like`). Strings are not copied.

    A payload with other dtypes or shapes is returned as it is.
    """
    sources = list_tensors(payload)
    targets = list_tensors(into)
    received = [(tensor.dtype, tensor.shape) for tensor in sources]
    expected = [(tensor.dtype, tensor.shape) for tensor in targets]
    if received != expected:
        return payload  # the verification finds it
    # One call, because models have thousands of small tensors.
    torch._foreach_copy_(targets, sources)
    copies = iter(targets)
    return map_tensors(lambda _: next(copies), payload)


def split_buffer(buffer: Tensor, message: Message) -> list[Tensor]:
    """Return each field's part of a flat buffer as one tensor; a list of tensors is flat."""
    raw = buffer.view(torch.uint8)
    parts = []
    for field, span in zip(message.fields, message.spans, strict=True):
        dtype = torch_dtype(field.packed_dtype)
        part = raw[span].view(dtype)
        if not field.is_list:
            part = part.view(field.shape)
        parts.append(part)
    return parts


def pack(payload: Payload, message: Message, parts: Sequence[Tensor]) -> None:
    """Write every field to its part of a buffer, as `split_buffer` returns them. A list takes one call."""
    for part, field in zip(parts, message.fields, strict=True):
        tensors = _sent_tensors(payload, field)
        if field.is_list:
            torch.cat(tensors, out=part)
        else:
            part.copy_(tensors[0])


def unpack(buffer: Tensor, message: Message) -> Payload:
    """Return the payload whose tensors are views of a flat buffer. Strings and lists of numbers are copies."""
    parts = split_buffer(buffer, message)
    return assemble(message, map(_split, parts, message.fields))


def _split(part: Tensor, field: Field) -> list[Any]:
    """Return what follows each other in the part of a field. A list of tensors takes one call, not one per tensor."""
    if not field.is_list:
        return [part]
    if not field.is_python:
        return list(part.split(field.lengths))
    borders = pairwise([0, *accumulate(field.lengths)])
    if field.dtype == "str":
        text = part.cpu().numpy().tobytes()
        return [text[begin:end].decode(errors="replace") for begin, end in borders]
    numbers = part.tolist()
    return [numbers[begin:end] for begin, end in borders]


def _sent_tensors(payload: Payload, field: Field) -> list[Tensor]:
    """Return the tensors of a field. Strings or numbers become one flat tensor: of zeros for those of `like`."""
    items = tensors_of(payload, field)
    if not field.is_python:
        return items
    if field.dtype == "str":
        text = "".join(items).encode() or bytes(field.bytes)
        array = np.frombuffer(text, np.uint8)
    else:
        numbers = [*chain.from_iterable(items)] or [0] * sum(field.lengths)
        array = np.array(numbers, field.packed_dtype)
    return [torch.from_numpy(array)]


def to_tensor_list(payload: Payload, message: Message) -> list[Tensor]:
    """Return all tensors one by one, for libraries that send nothing else."""
    if message.is_flat:
        return [payload]
    tensors: list[Tensor] = []
    for field in message.fields:
        tensors += _sent_tensors(payload, field)
    return tensors


def from_tensor_list(tensors: list[Tensor], message: Message) -> Payload:
    """Return the payload of the tensors that `to_tensor_list` returned, or of such as are like them."""
    if message.is_flat:
        return tensors[0]
    remaining = iter(tensors)
    fields = []
    for field in message.fields:
        sent = 1 if field.is_python else len(field.shapes)
        items = list(islice(remaining, sent))
        if field.is_python:
            (part,) = items
            items = _split(part, field)
        fields.append(items)
    return assemble(message, fields)


@dataclass(frozen=True)
class Codec:
    """Convert payloads to the form in which a transport carries them, and back. Ray sends both functions to actors."""

    encode: Callable[[Payload], Any]  # payload -> the data to send
    # The data, its message, the reader's device -> payload.
    decode: Callable[[Any, Message, Any], Payload]

    def decode_all(
        self, received: Sequence[Any], edges: Sequence[Edge], device: Any
    ) -> list[Payload]:
        """Return the payloads of the data that has arrived over a task's edges."""
        payloads = []
        for data, edge in zip(received, edges, strict=True):
            payload = self.decode(data, edge.message, device)
            payloads.append(payload)
        return payloads


def _unchanged(payload: Payload, *_: Any) -> Payload:
    return payload


def _to_device(payload: Payload, message: Message, device: Any) -> Payload:
    return map_tensors(lambda tensor: tensor.to(device), payload)


def _to_bytes(tensor: Tensor) -> bytes:
    return to_array(tensor).tobytes()


def _to_tensors(data: Any, message: Message, device: Any) -> Payload:
    """Return the payload of arrays or bytes. Its tensors share their memory on a CPU."""
    fields = []
    for field in message.fields:
        items = tensors_of(data, field)
        if field.is_python:
            fields.append(items)
            continue
        if isinstance(items[0], bytes):
            items = _to_arrays(items, field)
        tensors = [from_array(array, field.dtype).to(device) for array in items]
        fields.append(tensors)
    return assemble(message, fields)


def _to_arrays(items: list[bytes], field: Field) -> list[np.ndarray]:
    """Return the arrays of a field whose tensors were sent as bytes, which they share."""
    arrays = []
    for item, shape in zip(items, field.shapes, strict=True):
        array = np.frombuffer(item, field.array_dtype)
        arrays.append(array.reshape(shape))
    return arrays


UNCHANGED = Codec(_unchanged, _unchanged)
# methodcaller looks a method up when it is called, and so finds those that --trace has replaced.
_to_contiguous = partial(map_tensors, methodcaller("contiguous"))
_to_host = partial(map_tensors, methodcaller("cpu"))
# For transports that send no other tensors.
DENSE = Codec(_to_contiguous, _unchanged)
# The reader copies from host memory to its device.
HOST = Codec(_to_host, _to_device)
# numpy arrays, which share the tensors' memory on a CPU.
ARRAYS = Codec(partial(map_tensors, to_array), _to_tensors)
# Python bytes: nobody may write to their readers' tensors.
BYTES = Codec(partial(map_tensors, _to_bytes), _to_tensors)
