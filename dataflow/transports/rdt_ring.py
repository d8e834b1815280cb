"""Rings (shared_ring.py) as a tensor transport of Ray Direct Transport: the handle is the metadata of the tensors.

Ray sends the class of the transport to the actors. Each process has one instance of it, and one endpoint.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from ray.experimental import register_tensor_transport
from ray.experimental.rdt import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata

from dataflow.endpoints.actor import Actor
from dataflow.endpoints.tensors import Payload, list_tensors
from dataflow.flows.flow import DRIVER
from dataflow.transports.ring_endpoint import RingEndpoint
from dataflow.transports.shared_ring import Handle

NAME = "MAPPED"  # as Ray calls the transport


class RdtEndpoint(RingEndpoint):
    """Return tensors in rings, which Ray's transport converts to handles before the next payload is made."""

    def make_payload(self, number: int, task: str = DRIVER) -> Payload:
        self.newest_handle = [task, number]
        return super().make_payload(number, task)


class RdtActor(RdtEndpoint, Actor):
    pass


@dataclass
class HandleMetadata(TensorTransportMetadata):
    """Sent in place of the tensors of an object."""

    handle: Handle = field(default_factory=list)


class MappedTransport(TensorTransportManager):
    """One-sided: the reader finds the tensors by the handle, and the sender does nothing."""

    endpoint: RdtEndpoint  # of this process, after `register`

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
        return HandleMetadata(shapes, "cpu", self.endpoint.newest_handle)

    def recv_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: Any, communicator_metadata: Any, target_buffers: Any = None
    ) -> list[torch.Tensor]:
        return list_tensors(self.endpoint.open_for_all_tasks(tensor_transport_metadata.handle))

    def _do_nothing(self, *_: Any) -> None:
        """Readers release the slots, a lookup of mapped memory cannot hang, and Ray sends nothing if one-sided."""

    send_multiple_tensors = garbage_collect = abort_transport = _do_nothing


def register(endpoint: RdtEndpoint | None = None) -> None:
    """Make the transport and its endpoint known to this process; in the driver before any actor exists."""
    from ray.experimental.rdt import util

    util._ensure_default_transports_registered()
    if NAME not in util.transport_manager_info:
        register_tensor_transport(NAME, ["cpu"], MappedTransport, torch.Tensor)
    if endpoint is not None:
        MappedTransport.endpoint = endpoint
