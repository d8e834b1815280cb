"""Participants whose payloads lie where their readers can map them (ring.py, on a GPU ring_cuda.py)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from common.errors import RunFailed, SegmentError
from common.flow.flow import DRIVER
from common.payload.forms import unpack
from common.payload.leaves import Payload
from common.payload.model import Model
from common.payload.participant import Participant
from common.plan.plan import Plan
from common.transport import ring_cuda
from common.transport.ring import Handle, Ring, View


class RingParticipant(Participant):
    """Its pools are the rings that it writes; what it reads are views of others' rings.

    On a GPU the pools are shared by CUDA IPC, and the rings in shared memory have no payload, only their headers.
    """

    def __init__(self, plan: Plan, name: str) -> None:
        self.on_gpu = plan.device == "cuda"
        # Half the time of a trip, so that the reader who does not let go is named, not the trip that waits.
        seconds = plan.options.timeout / 2
        slots = plan.options.slots
        names = [DRIVER] if name == DRIVER else [task.name for task in plan.flow.tasks_of(name)]
        self.rings = {
            task: Ring(plan.shared, task, _slot_bytes(plan, task), slots, _readers(plan, task), seconds)
            for task in names if plan.flow.edges_from(task)
        }  # fmt: skip
        super().__init__(plan, name)
        self.exports = {
            task: ring_cuda.Export(_cuda_handles(plan, task), self.outboxes[task].buffers)
            for task in self.rings if self.on_gpu
        }  # fmt: skip
        # Of the first tensor of each payload: whose it is.
        self.lies = {
            first_tensor(payload).data_ptr(): (task, slot)
            for task in self.rings
            for slot, payload in enumerate(self.outboxes[task].buffers if plan.packed else self.outboxes[task].pool)
        }

    def memory(self, task: str) -> Any:
        if task not in self.rings:
            return None
        if self.on_gpu:
            count = self.flow.message(task).packed_bytes
            return lambda _: torch.ones(count, dtype=torch.uint8, device=self.device)
        return self.rings[task].buffer

    def open_inputs(self) -> None:
        """Map what the others write; every ring must exist by now."""
        self.views: dict[tuple[str, str], View] = {}
        self.imports: dict[str, ring_cuda.Import] = {}
        slots, keep = self.plan.options.slots, self.plan.options.in_flight
        for task in self.inboxes:
            for edge in self.wire.edges_to(task):
                where = (self.plan.shared, edge.source, edge.message, _slot_bytes(self.plan, edge.source), slots, keep)
                self.views[task, edge.source] = View(*where, _readers(self.plan, edge.source), task)
                if self.on_gpu:
                    found = ring_cuda.Import(_cuda_handles(self.plan, edge.source), edge.source, self.name)
                    self.imports[edge.source] = found

    def open(self, task: str, handles: Sequence[Handle]) -> list[Payload]:
        """The payloads behind a task's handles.

        Raises:
            RunFailed: this is no handle. (A compiled graph hands over a failed deserialisation as an argument.)
            SegmentError: it is of somebody whose messages this task does not read.
        """
        return [self.view(task, handle) for handle in handles]

    def view(self, task: str, handle: Handle) -> Payload:
        if not isinstance(handle, list):
            raise RunFailed(f"{task} expected a handle, got {type(handle).__name__}")
        view = self.views.get((task, handle[0]))
        if view is None:
            raise SegmentError(f"{task} was handed message {handle[1]} of {handle[0]}, which it does not read")
        if not self.on_gpu:
            return view.open(handle)
        return unpack(self.imports[handle[0]].open(view.check(handle)), view.message)

    def view_for_all(self, handle: Handle) -> Payload:
        """The payload behind a handle for whichever tasks of this actor read it: Ray Direct Transport fetches once."""
        found = [self.view(task, handle) for task, sender in self.views if sender == handle[0]]
        return found[0] if found else self.view(self.name, handle)  # which says that nobody reads it

    def handle(self, task: str) -> Handle:
        """The handle of what a task emitted last."""
        return [task, self.rings[task].newest]

    def handle_of(self, tensor: torch.Tensor) -> Handle:
        """The handle of the payload whose first tensor this is.

        Raises:
            SegmentError: it does not lie in a ring.
        """
        if tensor.data_ptr() not in self.lies:
            raise SegmentError(f"{self.name} was to send a tensor that does not lie in shared memory")
        task, slot = self.lies[tensor.data_ptr()]
        return [task, self.rings[task].written[slot]]

    def emit(self, number: int, task: str = DRIVER) -> Payload:
        """The payload, stamped in place; waits until nobody reads the slot's last message any more."""
        ring = self.rings.get(task)
        if ring is None:  # read on this actor alone
            return super().emit(number, task)
        ring.acquire(number)
        payload = super().emit(number, task)
        if self.on_gpu:
            self.exports[task].written(number % len(ring.slots))
        ring.publish(number)
        return payload

    def release(self) -> None:
        super().release()
        if self.on_gpu:
            torch.cuda.current_stream().synchronize()  # what still reads, reads the producer's memory
        for view in self.views.values():
            view.release()


class RingModel(RingParticipant, Model):
    """An actor whose messages are handles."""

    def forward_step(self, task: str, *handles: Handle) -> Handle:
        super().forward_step(task, *self.open(task, handles))
        return self.handle(task) if task in self.rings else [task, 0]


def open_rings(crew: Any) -> None:
    """Everybody maps what it reads; then the names go, and the memory ends with the processes."""
    crew.ask("open_inputs")
    for path in crew.plan.shared.iterdir():
        path.unlink()


def first_tensor(payload: Payload) -> torch.Tensor:
    """The first tensor of a payload that has any bytes: an empty one lies nowhere."""
    return next(tensor for tensor in tensors(payload) if tensor.nbytes)


def tensors(payload: Payload):
    """Every tensor of a payload, in order."""
    for value in payload.values() if isinstance(payload, dict) else [payload]:
        for leaf in value if isinstance(value, list) else [value]:
            if isinstance(leaf, torch.Tensor):
                yield leaf


def _readers(plan: Plan, sender: str) -> list[str]:
    return sorted({edge.reader for edge in plan.flow.edges_from(sender)})


def _slot_bytes(plan: Plan, sender: str) -> int:
    return 1 if plan.device == "cuda" else plan.flow.message(sender).packed_bytes


def _cuda_handles(plan: Plan, sender: str) -> Path:
    return plan.shared / f"{sender}.cuda"
