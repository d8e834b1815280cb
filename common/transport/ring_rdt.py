"""Mapped tensors (ring.py) as a transport of Ray Direct Transport: metadata is the handle, nothing is copied.

Ray ships this class to the actors; each process has one manager of it, and one participant.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from ray.experimental import register_tensor_transport
from ray.experimental.rdt import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata

from common.transport.ring import Handle
from common.transport.ring_participant import RingParticipant, first_tensor, tensors

NAME = "MAPPED"


@dataclass
class HandleMetadata(TensorTransportMetadata):
    """What travels instead of the tensors of an object: the handle of the message that they are."""

    handle: Handle = field(default_factory=list)


class MappedTransport(TensorTransportManager):
    """One-sided: the reader finds the tensor through the handle, the producer does nothing."""

    participant: RingParticipant  # of this process, once it is registered

    def tensor_transport_backend(self) -> str:
        return NAME

    @staticmethod
    def is_one_sided() -> bool:
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        return True  # there is nothing to abort; False would let Ray kill both actors after any error

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        return True

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: Any = None) -> CommunicatorMetadata:
        return CommunicatorMetadata()

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[torch.Tensor]) -> HandleMetadata:
        meta: Any = [(tensor.shape, tensor.dtype) for tensor in rdt_object]
        return HandleMetadata(meta, rdt_object[0].device.type, self.participant.handle_of(first_tensor(rdt_object)))

    def recv_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: Any, communicator_metadata: Any, target_buffers: Any = None
    ) -> list[torch.Tensor]:
        handle = tensor_transport_metadata.handle
        return list(tensors(self.participant.view_for_all(handle)))

    def send_multiple_tensors(self, *_: Any) -> None:
        raise NotImplementedError("one-sided: Ray does not call it")

    def garbage_collect(self, *_: Any) -> None:
        """The ring's readers say themselves when they are done with a slot."""

    def abort_transport(self, *_: Any) -> None:
        """A read that only looks up a mapping cannot hang."""


def register(participant: RingParticipant | None = None) -> None:
    """Make the transport known to this process, in the driver before any actor exists; name its participant."""
    from ray.experimental.rdt import util

    util._ensure_default_transports_registered()
    if NAME not in util.transport_manager_info:
        register_tensor_transport(NAME, ["cpu", "cuda"], MappedTransport, torch.Tensor)
    if participant is not None:
        MappedTransport.participant = participant
