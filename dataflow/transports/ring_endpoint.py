"""Endpoints whose payloads lie in rings that their readers map (shared_ring.py; on a GPU also cuda_ipc.py)."""

from collections.abc import Sequence
from typing import Any

import torch

from dataflow.endpoints.actor import Actor, Endpoint
from dataflow.endpoints.outbox import Memory
from dataflow.endpoints.tensors import Payload, list_tensors
from dataflow.errors import RunFailed
from dataflow.flows.flow import DRIVER
from dataflow.plan.plan import Plan
from dataflow.transports import cuda_ipc
from dataflow.transports.shared_ring import Handle, Ring, View


class RingEndpoint(Endpoint):
    """Write payloads into rings, and read views of others' rings. On a GPU, a ring's file has only the header."""

    def __init__(self, plan: Plan, name: str) -> None:
        self.rings: dict[str, Ring] = {}  # by sending task
        self.events: dict[str, list[torch.cuda.Event]] = {}  # by sending task, one per slot
        self.views: dict[tuple[str, str], View] = {}  # by reading task and sender
        self.slots_by_address: dict[int, tuple[str, int]] = {}  # of the first tensor of a payload -> task, slot
        self.on_gpu, self.slots = plan.device == "cuda", plan.task_flow.slots(plan.options.in_flight)
        super().__init__(plan, name)  # calls `memory` for each task
        for task in self.rings:
            outbox = self.outboxes[task]
            if self.on_gpu:
                self.events[task] = cuda_ipc.export_pool(plan.shared_folder / f"{task}.cuda", outbox.buffers)
            for slot, payload in enumerate(outbox.sent):
                self.slots_by_address[first_tensor(list_tensors(payload)).data_ptr()] = task, slot

    def memory(self, task: str) -> Memory | None:
        """Create the task's ring, and return the memory of its slots; None if no other actor reads the task."""
        readers = self._readers(task)
        if not readers:
            return None
        message_bytes, slots = self.task_flow.message(task).packed_bytes, self.slots
        slot_bytes = 1 if self.on_gpu else message_bytes
        # The sender gives up after half of the time of an iteration, so that the error names the reader.
        timeout = self.plan.options.timeout / 2
        self.rings[task] = Ring(self.plan.shared_folder, task, slot_bytes, slots, readers, timeout)
        if self.on_gpu:
            return lambda slot: torch.ones(message_bytes, dtype=torch.uint8, device=self.device)
        return lambda slot: torch.from_numpy(self.rings[task].slots[slot])

    def _readers(self, sender: str) -> list[str]:
        return sorted({edge.reader for edge in self.task_flow.edges_from(sender)})

    def open_inputs(self) -> None:
        folder, options = self.plan.shared_folder, self.plan.options
        for edge in self.sent_flow.edges_to_actor(self.worker.actor):
            sender, readers = edge.source, self._readers(edge.source)
            gpu = cuda_ipc.Import(folder / f"{sender}.cuda", sender, self.name) if self.on_gpu else None
            self.views[edge.reader, sender] = View(folder, edge, self.slots, options.in_flight, readers, gpu)

    def open_all(self, task: str, handles: Sequence[Handle]) -> list[Payload]:
        return [self.open(task, handle) for handle in handles]

    def open(self, task: str, handle: Handle) -> Payload:
        """Return the payload of a handle as views; raise RunFailed if the task does not read this message."""
        if not isinstance(handle, list):  # a compiled graph passes a failed deserialisation as an argument
            raise RunFailed(f"{task} expected a handle, got {type(handle).__name__}")
        view = self.views.get((task, handle[0]))
        if view is None:
            raise RunFailed(f"{task} received a handle of {handle[0]}, whose messages it does not read: {handle}")
        return view.open(handle)

    def open_for_all_tasks(self, handle: Handle) -> Payload:
        """Return the payload of a handle, opened for each task that reads it, as Ray Direct Transport reads it once."""
        payloads = [self.open(task, handle) for task, sender in self.views if sender == handle[0]]
        return payloads[0] if payloads else self.open(self.name, handle)  # raises, because no task reads it

    def handle(self, task: str) -> Handle:
        return [task, self.rings[task].newest]

    def handle_of(self, tensor: torch.Tensor) -> Handle:
        """Return the handle of the payload whose first tensor this is; raise RunFailed if it is in no ring."""
        if tensor.data_ptr() not in self.slots_by_address:
            raise RunFailed(f"{self.name} cannot send a tensor that is not in shared memory")
        task, slot = self.slots_by_address[tensor.data_ptr()]
        return [task, self.rings[task].written[slot]]

    def make_payload(self, number: int, task: str = DRIVER) -> Payload:
        """Wait until the slot's last message is released, write the sequence number, and publish the payload."""
        ring = self.rings.get(task)
        if ring is None:
            return super().make_payload(number, task)
        ring.acquire(number)
        payload = super().make_payload(number, task)
        if self.on_gpu:
            self.events[task][number % len(ring.slots)].record()
        ring.publish(number)
        return payload

    def release(self) -> None:
        super().release()
        if self.on_gpu:
            torch.cuda.current_stream().synchronize()  # kernels may still read the sender's memory
        for view in self.views.values():
            view.release()


class RingActor(RingEndpoint, Actor):
    """An actor that receives and returns handles."""

    def forward_step(self, task: str, *handles: Handle) -> Handle:
        super().forward_step(task, *self.open_all(task, handles))
        return self.handle(task) if task in self.rings else [task, 0]


def open_rings(workers: Any) -> None:
    """Map all rings in all workers. Then remove the file names, so that the memory is freed when the processes end."""
    workers.call("open_inputs")
    for path in workers.plan.shared_folder.iterdir():
        path.unlink()


def first_tensor(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the first tensor that is not empty: an empty one has no address."""
    return next(tensor for tensor in tensors if tensor.nbytes)
