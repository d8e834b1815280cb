"""Participants whose payloads lie where their readers can map them (ring.py, on a GPU ring_cuda.py)."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import torch

from common.flow.flow import Flow
from common.payload.participant import Participant, Role
from common.payload.pattern import POOL_SIZE
from common.transport import ring_cuda as mapped_cuda
from common.transport.ring import Handle, Ring, SegmentError, View


class MappedParticipant(Participant):
    """Its pool is the ring that it writes; what it reads are views of others' rings.

    On a GPU the pool is shared by CUDA IPC, and the ring in shared memory has no payload, only its header.
    """

    def __init__(self, flow: Flow, name: str, arguments: Namespace, folder: Path) -> None:
        self.flow, self.folder = flow, folder
        self.on_gpu = arguments.device == "cuda"
        readers, slot_bytes = self._ring_of(name)
        # Half the time of a trip, so that the reader who does not let go is named, not the trip that waits.
        self.ring = Ring(folder, name, slot_bytes, readers, arguments.timeout / 2)
        super().__init__(flow, name, arguments)
        self.export = mapped_cuda.Export(self._cuda_handles(name), self.pool) if self.on_gpu else None
        self.views: dict[str, View] = {}
        self.imports: dict[str, mapped_cuda.Import] = {}

    def _ring_of(self, sender: str) -> tuple[list[str], int]:
        """The readers of a sender's ring, and the bytes of its slots."""
        readers = sorted({edge.reader for edge in self.flow.edges_from(sender)})
        return readers, 1 if self.on_gpu else self.flow.emits_bytes(sender)

    def _cuda_handles(self, sender: str) -> Path:
        return self.folder / f"{sender}.cuda"

    def place(self, slot: int, payload: np.ndarray) -> np.ndarray:
        if self.on_gpu:
            return payload
        self.ring.slots[slot][:] = payload
        return self.ring.slots[slot]

    def open_inputs(self) -> None:
        """Map what the others write; every ring must exist by now."""
        for edge in self.reads:
            readers, slot_bytes = self._ring_of(edge.source)
            self.views[edge.source] = View(self.folder, edge.source, slot_bytes, readers, self.name)
            if self.on_gpu:
                self.imports[edge.source] = mapped_cuda.Import(self._cuda_handles(edge.source), edge.source, self.name)

    def view(self, handle: Handle) -> torch.Tensor:
        """The tensor behind a handle.

        Raises:
            TypeError: this is no handle. (A compiled graph hands over a failed deserialisation as an argument.)
            SegmentError: it is of somebody whose messages this participant does not read.
        """
        if not isinstance(handle, list):
            raise TypeError(f"{self.name} expected a handle, got {type(handle).__name__}")
        sender, sequence = handle
        if sender not in self.views:
            raise SegmentError(f"{self.name} was handed message {sequence} of {sender}, which it does not read")
        tensor = self.views[sender].open(handle)
        return self.imports[sender].open(sequence % POOL_SIZE) if self.on_gpu else tensor

    def handle_of(self, payload: torch.Tensor) -> Handle:
        """The handle of what `emit` gave.

        Raises:
            SegmentError: this tensor does not lie in the ring.
        """
        for slot, own in enumerate(self.pool):
            if own.data_ptr() == payload.data_ptr():
                return [self.name, int(self.ring.written[slot])]
        raise SegmentError(f"{self.name} was to send a tensor that does not lie in shared memory")

    def emit(self, trip: int) -> torch.Tensor:
        """This trip's payload, stamped in place; waits until nobody reads the slot's last message any more."""
        self.ring.acquire(trip)
        payload = super().emit(trip)
        if self.export:
            self.export.written(trip % POOL_SIZE)
        self.ring.publish(trip)
        return payload

    def release(self) -> None:
        super().release()
        if self.on_gpu:
            torch.cuda.current_stream().synchronize()  # what still reads, reads the producer's memory
        for view in self.views.values():
            view.release()


class MappedRole(MappedParticipant, Role):
    """A role whose messages are handles."""

    def forward_step(self, *handles: Handle) -> Handle:
        return self.handle_of(super().forward_step(*map(self.view, handles)))
