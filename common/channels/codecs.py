"""Convert payloads to the form in which a transport carries them, and back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from common.endpoints.tensors import Payload, assemble, map_tensors, tensors_of, to_host
from common.flows.flow import Edge
from common.flows.message import Message


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
    return map_tensors(lambda tensor: tensor.cpu().numpy(), payload)


def _from_arrays(arrays: Any, message: Message, device: Any) -> Payload:
    return map_tensors(lambda array: torch.from_numpy(array).to(device), arrays)


def _to_bytes(payload: Payload) -> Any:
    return map_tensors(lambda tensor: tensor.cpu().numpy().tobytes(), payload)


def _from_bytes(data: Any, message: Message, device: Any) -> Payload:
    fields = []
    for field in message.fields:
        items = tensors_of(data, field)
        if not field.is_python:
            pairs = zip(items, field.shapes, strict=True)
            arrays = [np.frombuffer(item, field.dtype).reshape(shape) for item, shape in pairs]
            items = [torch.from_numpy(array).to(device) for array in arrays]
        fields.append(items)
    return assemble(message, fields)


UNCHANGED = Codec(_unchanged, _unchanged)
DENSE = Codec(_to_contiguous, _unchanged)  # for transports that send only contiguous tensors
HOST = Codec(to_host, _to_device)  # the sender copies to host memory, the reader to its device
ARRAYS = Codec(_to_arrays, _from_arrays)  # numpy arrays, which share the tensors' memory on a CPU
BYTES = Codec(_to_bytes, _from_bytes)  # Python bytes; nobody may write to the tensors of their readers
