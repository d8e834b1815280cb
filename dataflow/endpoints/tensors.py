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

from dataflow.errors import RunFailed
from dataflow.flows.flow import Edge
from dataflow.flows.message import ARRAY_DTYPES, ITEM_BYTES, PYTHON_DTYPES, Field, Message

INTEGERS = {
    1: torch.uint8,
    2: torch.int16,
    4: torch.int32,
    8: torch.int64,
}  # by the bytes of an item
Payload = (
    Any  # a torch.Tensor, or dict[str, Tensor | list[Tensor] | list[str] | list[list[int | float]]]
)

# Readers get views of channels, of the object store and of bytes, which nobody may write to. Nothing here does.
warnings.filterwarnings("ignore", message="The given NumPy array is not writable")


def map_tensors(function: Callable[[Any], Any], payload: Payload) -> Any:
    """Return the payload with `function(tensor)` in place of each tensor. Strings and numbers stay as they are."""
    if isinstance(payload, dict):
        return {name: map_tensors(function, value) for name, value in payload.items()}
    if isinstance(payload, list):
        return (
            payload
            if isinstance(payload[0], (str, list))
            else [function(tensor) for tensor in payload]
        )
    return function(payload)


def list_tensors(payload: Payload) -> list[torch.Tensor]:
    tensors: list[torch.Tensor] = []
    map_tensors(tensors.append, payload)
    return tensors


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor as an array, which shares its memory if that is on the host. bfloat16 becomes uint16."""
    tensor = tensor.cpu()
    return tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def from_array(array: np.ndarray, dtype: str) -> torch.Tensor:
    """Return an array as a tensor of this dtype, which shares its memory."""
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor


def synchronise() -> None:
    """Wait for every GPU that this process has used."""
    if torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            torch.cuda.synchronize(index)


def assemble(message: Message, fields: Iterable[list[Any]]) -> Payload:
    """Return the payload whose fields have these tensors (or strings), one list per field."""
    values = [
        tensors if field.is_list else tensors[0]
        for field, tensors in zip(message.fields, fields, strict=True)
    ]
    return values[0] if message.is_flat else dict(zip(message.names, values, strict=True))


def tensors_of(payload: Payload, field: Field) -> list[Any]:
    value = payload[field.name] if field.name else payload
    return value if field.is_list else [value]


def flat_items(payload: Payload, field: Field) -> torch.Tensor:
    """Return a field of one contiguous tensor as a flat view of integers: a NaN is not equal to itself."""
    return tensors_of(payload, field)[0].reshape(-1).view(INTEGERS[ITEM_BYTES[field.dtype]])


def check_inputs(inputs: Sequence[Payload], edges: Sequence[Edge]) -> None:
    """Raise RunFailed if the inputs are not one payload per edge, with the fields of its message."""
    # They can be anything: a compiled graph passes a failed deserialisation to the method as its argument.
    if len(inputs) != len(edges):
        raise RunFailed(f"expected {', '.join(map(str, edges))}; got {len(inputs)} messages")
    for edge, payload in zip(edges, inputs, strict=True):
        if edge.message.is_flat:
            if not isinstance(payload, torch.Tensor):
                raise RunFailed(f"expected a tensor for {edge}; got {type(payload).__name__}")
        elif not isinstance(payload, dict) or list(payload) != edge.message.names:
            names = ", ".join(edge.message.names)
            raise RunFailed(f"expected a dict of {names} for {edge}; got {type(payload).__name__}")


def like(message: Message, device: Any) -> Payload:
    """Return a payload to copy into. Its pages are in memory already; strings and lists of numbers are empty."""
    return assemble(message, [
        [""] * len(field.lengths) if field.is_python
        else [torch.ones(shape, dtype=getattr(torch, field.dtype), device=device) for shape in field.shapes]
        for field in message.fields
    ])  # fmt: skip


def copy(payload: Payload, into: Payload) -> Payload:
    """Return the payload with all tensors copied into the memory of `into` (see `like`). Strings are not copied."""
    sources, targets = list_tensors(payload), list_tensors(into)
    if [(t.dtype, t.shape) for t in sources] != [(t.dtype, t.shape) for t in targets]:
        return payload  # the verification finds it
    torch._foreach_copy_(
        targets, sources
    )  # one call, because models have thousands of small tensors
    copies = iter(targets)
    return map_tensors(lambda _: next(copies), payload)


def split_buffer(buffer: torch.Tensor, message: Message) -> list[torch.Tensor]:
    """Return each field's part of a flat buffer as one tensor; a list of tensors is flat."""
    raw, parts = buffer.view(torch.uint8), []
    for field, span in zip(message.fields, message.spans, strict=True):
        part = raw[span].view(getattr(torch, PYTHON_DTYPES.get(field.dtype, field.dtype)))
        parts.append(part if field.is_list else part.view(field.shape))
    return parts


def pack(payload: Payload, message: Message, parts: Sequence[torch.Tensor]) -> None:
    """Write every field to its part of a buffer, as `split_buffer` returns them. A list takes one call."""
    for part, field in zip(parts, message.fields, strict=True):
        tensors = _sent_tensors(payload, field)
        if field.is_list:
            torch.cat(tensors, out=part)
        else:
            part.copy_(tensors[0])


def unpack(buffer: torch.Tensor, message: Message) -> Payload:
    """Return the payload whose tensors are views of a flat buffer."""
    return assemble(message, map(_split, split_buffer(buffer, message), message.fields))


def _split(part: torch.Tensor, field: Field) -> list[Any]:
    """Return what follows each other in the part of a field. A list of tensors takes one call, not one per tensor."""
    if not field.is_python:
        return list(part.split(field.lengths)) if field.is_list else [part]
    items: Any = part.cpu().numpy().tobytes() if field.dtype == "str" else part.tolist()
    pieces = [items[begin:end] for begin, end in pairwise([0, *accumulate(field.lengths)])]
    return [piece.decode(errors="replace") for piece in pieces] if field.dtype == "str" else pieces


def _sent_tensors(payload: Payload, field: Field) -> list[torch.Tensor]:
    """Return the tensors of a field. Strings or numbers become one flat tensor: of zeros for those of `like`."""
    items = tensors_of(payload, field)
    if not field.is_python:
        return items
    if field.dtype == "str":
        return [
            torch.from_numpy(np.frombuffer("".join(items).encode() or bytes(field.bytes), np.uint8))
        ]
    numbers = [*chain.from_iterable(items)] or [0] * sum(field.lengths)
    return [torch.from_numpy(np.array(numbers, PYTHON_DTYPES[field.dtype]))]


def to_tensor_list(payload: Payload, message: Message) -> list[torch.Tensor]:
    """Return all tensors one by one, for libraries that send nothing else."""
    if message.is_flat:
        return [payload]
    return [tensor for field in message.fields for tensor in _sent_tensors(payload, field)]


def from_tensor_list(tensors: list[torch.Tensor], message: Message) -> Payload:
    if message.is_flat:
        return tensors[0]
    remaining = iter(tensors)
    return assemble(message, [
        _split(next(remaining), field) if field.is_python else [*islice(remaining, len(field.shapes))]
        for field in message.fields
    ])  # fmt: skip


@dataclass(frozen=True)
class Codec:
    """Convert payloads to the form in which a transport carries them, and back. Ray sends both functions to actors."""

    encode: Callable[[Payload], Any]  # payload -> the data to send
    decode: Callable[
        [Any, Message, Any], Payload
    ]  # the data, its message, the reader's device -> payload

    def decode_all(
        self, received: Sequence[Any], edges: Sequence[Edge], device: Any
    ) -> list[Payload]:
        return [
            self.decode(data, edge.message, device)
            for data, edge in zip(received, edges, strict=True)
        ]


def _unchanged(payload: Payload, *_: Any) -> Payload:
    return payload


def _to_device(payload: Payload, message: Message, device: Any) -> Payload:
    return map_tensors(lambda tensor: tensor.to(device), payload)


def _to_bytes(tensor: torch.Tensor) -> bytes:
    return to_array(tensor).tobytes()


def _to_tensors(data: Any, message: Message, device: Any) -> Payload:
    """Return the payload of arrays or bytes. Its tensors share their memory on a CPU."""
    fields = []
    for field in message.fields:
        items = tensors_of(data, field)
        if not field.is_python:
            if isinstance(items[0], bytes):
                dtype = ARRAY_DTYPES.get(field.dtype, field.dtype)
                items = [
                    np.frombuffer(i, dtype).reshape(shape)
                    for i, shape in zip(items, field.shapes, strict=True)
                ]
            items = [from_array(item, field.dtype).to(device) for item in items]
        fields.append(items)
    return assemble(message, fields)


UNCHANGED = Codec(_unchanged, _unchanged)
# methodcaller looks a method up when it is called, and so finds those that --trace has replaced.
DENSE = Codec(
    partial(map_tensors, methodcaller("contiguous")), _unchanged
)  # for transports that send no other tensors
HOST = Codec(
    partial(map_tensors, methodcaller("cpu")), _to_device
)  # the reader copies from host memory to its device
ARRAYS = Codec(
    partial(map_tensors, to_array), _to_tensors
)  # numpy arrays, which share the tensors' memory on a CPU
BYTES = Codec(
    partial(map_tensors, _to_bytes), _to_tensors
)  # Python bytes: nobody may write to their readers' tensors
