"""Rings (shared_ring.py) as a tensor transport of Ray Direct Transport: the handle is the metadata of the tensors.

Ray sends this class to the actors. Each process has one instance of it, and one endpoint.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from ray.experimental import register_tensor_transport
from ray.experimental.rdt import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata

from dataflow.endpoints.tensors import list_tensors
from dataflow.transports.ring_endpoint import RingEndpoint, first_tensor
from dataflow.transports.shared_ring import Handle

NAME = "MAPPED"  # as Ray calls the transport


@dataclass
class HandleMetadata(TensorTransportMetadata):
    """Sent in place of the tensors of an object."""

    handle: Handle = field(default_factory=list)


class MappedTransport(TensorTransportManager):
    """One-sided: the reader finds the tensors by the handle, and the sender does nothing."""

    endpoint: RingEndpoint  # of this process, after `register`

    def tensor_transport_backend(self) -> str:
        return NAME

    @staticmethod
    def _return_true(*_: Any) -> bool:
        return True  # "can abort" too, although nothing runs: otherwise Ray could kill both actors after any error

    is_one_sided = can_abort_transport = actor_has_tensor_transport = _return_true

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: Any = None) -> CommunicatorMetadata:
        return CommunicatorMetadata()

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[torch.Tensor]) -> HandleMetadata:
        shapes: Any = [(tensor.shape, tensor.dtype) for tensor in rdt_object]
        return HandleMetadata(shapes, rdt_object[0].device.type, self.endpoint.handle_of(first_tensor(rdt_object)))

    def recv_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: Any, communicator_metadata: Any, target_buffers: Any = None
    ) -> list[torch.Tensor]:
        return list_tensors(self.endpoint.open_for_all_tasks(tensor_transport_metadata.handle))

    def _do_nothing(self, *_: Any) -> None:
        """Readers release the slots, a lookup of mapped memory cannot hang, and Ray sends nothing if one-sided."""

    send_multiple_tensors = garbage_collect = abort_transport = _do_nothing


def register(endpoint: RingEndpoint | None = None) -> None:
    """Make the transport and its endpoint known to this process; in the driver before any actor exists."""
    from ray.experimental.rdt import util

    util._ensure_default_transports_registered()
    if NAME not in util.transport_manager_info:
        register_tensor_transport(NAME, ["cpu", "cuda"], MappedTransport, torch.Tensor)
    if endpoint is not None:
        MappedTransport.endpoint = endpoint
