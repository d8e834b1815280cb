"""Convert payloads to the form in which a transport carries them, and back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dataflow.endpoints.tensors import Payload, assemble, from_array, map_tensors, tensors_of, to_array, to_host
from dataflow.flows.flow import Edge
from dataflow.flows.message import ARRAY_DTYPES, Message


@dataclass(frozen=True)
class Codec:
    """Two functions of a module, so that Ray can send them to actors."""

    encode: Callable[[Payload], Any]  # payload -> the data to send
    decode: Callable[[Any, Message, Any], Payload]  # the data, its message, the reader's device -> payload

    def decode_all(self, received: Sequence[Any], edges: Sequence[Edge], device: Any) -> list[Payload]:
        return [self.decode(data, edge.message, device) for data, edge in zip(received, edges, strict=True)]


def _unchanged(payload: Payload, *_: Any) -> Payload:
    return payload


def _to_contiguous(payload: Payload) -> Payload:
    return map_tensors(lambda tensor: tensor.contiguous(), payload)


def _to_device(payload: Payload, message: Message, device: Any) -> Payload:
    return map_tensors(lambda tensor: tensor.to(device), payload)


def _to_arrays(payload: Payload) -> Any:
    return map_tensors(to_array, payload)


def _to_bytes(payload: Payload) -> Any:
    return map_tensors(lambda tensor: to_array(tensor).tobytes(), payload)


def _to_tensors(data: Any, message: Message, device: Any) -> Payload:
    """Return the payload of arrays or bytes. Its tensors share their memory on a CPU."""
    fields = []
    for field in message.fields:
        items = tensors_of(data, field)
        if not field.is_python:
            if isinstance(items[0], bytes):
                dtype = ARRAY_DTYPES.get(field.dtype, field.dtype)
                items = [np.frombuffer(i, dtype).reshape(shape) for i, shape in zip(items, field.shapes, strict=True)]
            items = [from_array(item, field.dtype).to(device) for item in items]
        fields.append(items)
    return assemble(message, fields)


UNCHANGED = Codec(_unchanged, _unchanged)
DENSE = Codec(_to_contiguous, _unchanged)  # for transports that send only contiguous tensors
HOST = Codec(to_host, _to_device)  # the sender copies to host memory, the reader to its device
ARRAYS = Codec(_to_arrays, _to_tensors)  # numpy arrays, which share the tensors' memory on a CPU
BYTES = Codec(_to_bytes, _to_tensors)  # Python bytes; nobody may write to the tensors of their readers
