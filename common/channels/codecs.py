"""Convert payloads to the form in which a transport carries them, and back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from common.endpoints import tensors
from common.endpoints.tensors import Payload
from common.flows.flow import Edge
from common.flows.message import Message


@dataclass(frozen=True)
class Codec:
    """Two functions of a module, so that Ray can send them to actors."""

    encode: Callable[[Payload], Any]  # payload -> the data to send
    decode: Callable[[Any, Message, Any], Payload]  # the data, its message, the reader's device -> payload

    def decode_all(self, received: Sequence[Any], edges: Sequence[Edge], device: Any) -> list[Payload]:
        """Return the payloads of the data received over these edges."""
        return [self.decode(data, edge.message, device) for data, edge in zip(received, edges, strict=True)]


def _unchanged(payload: Payload, *_: Any) -> Payload:
    return payload


def _contiguous(payload: Payload) -> Payload:
    return tensors.map_tensors(lambda tensor: tensor.contiguous(), payload)


def _from_arrays(arrays: Any, message: Message, device: Any) -> Payload:
    return tensors.from_arrays(arrays, device)


def _to_device(payload: Payload, message: Message, device: Any) -> Payload:
    return tensors.to_device(payload, device)


UNCHANGED = Codec(_unchanged, _unchanged)
DENSE = Codec(_contiguous, _unchanged)  # for transports that send only contiguous tensors
HOST = Codec(tensors.to_host, _to_device)  # the sender copies to host memory, the reader to its device
ARRAYS = Codec(tensors.to_arrays, _from_arrays)  # numpy arrays
BYTES = Codec(tensors.to_bytes, tensors.from_bytes)  # Python bytes
