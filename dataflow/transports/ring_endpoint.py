"""Endpoints whose payloads lie in rings that their readers map (shared_ring.py)."""

from collections.abc import Sequence
from typing import Any

import torch

from dataflow.endpoints.actor import Actor, Endpoint
from dataflow.endpoints.outbox import Memory
from dataflow.endpoints.tensors import Payload
from dataflow.errors import RunFailed
from dataflow.flows.flow import DRIVER
from dataflow.plan.plan import Plan
from dataflow.transports.shared_ring import Handle, Ring, View
from dataflow.workers.worker_group import WorkerGroup


class RingEndpoint(Endpoint):
    """Write payloads into rings, and read views of others' rings."""

    def __init__(self, plan: Plan, name: str) -> None:
        self.rings: dict[str, Ring] = {}  # by sending task
        self.views: dict[tuple[str, str], View] = {}  # by reading task and sender
        super().__init__(plan, name)  # calls `memory` for each task

    def memory(self, task: str) -> Memory | None:
        """Create the task's ring, and return the memory of its slots; None if no other actor reads the task."""
        readers, plan = self._readers(task), self.plan
        if not readers:
            return None
        slots = plan.task_flow.slots(plan.options.in_flight)
        # The sender gives up after half of the time of an iteration, so that the error names the reader.
        ring = self.rings[task] = Ring(
            plan.shared_folder, task, plan.task_flow.message(task).packed_bytes, slots, readers,
            timeout=plan.options.timeout / 2,
        )  # fmt: skip
        return lambda slot: torch.from_numpy(ring.slots[slot])

    def _readers(self, sender: str) -> list[str]:
        return sorted({edge.reader for edge in self.task_flow.edges_from(sender)})

    def open_inputs(self) -> None:
        folder, in_flight = self.plan.shared_folder, self.plan.options.in_flight
        for edge in self.sent_flow.edges_to_actor(self.name):
            slots, readers = self.task_flow.slots(in_flight), self._readers(edge.source)
            self.views[edge.reader, edge.source] = View(folder, edge, slots, in_flight, readers)

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

    def handle(self, task: str) -> Handle:
        return [task, self.rings[task].newest]

    def make_payload(self, number: int, task: str = DRIVER) -> Payload:
        """Wait until the slot's last message is released, write the sequence number, and publish the payload."""
        if ring := self.rings.get(task):
            ring.acquire(number)
        payload = super().make_payload(number, task)
        if ring:
            ring.publish(number)
        return payload

    def release(self) -> None:
        super().release()
        for view in self.views.values():
            view.release()


class RingActor(RingEndpoint, Actor):
    """An actor that receives and returns handles."""

    def forward_step(self, task: str, *handles: Handle) -> Handle:
        super().forward_step(task, *self.open_all(task, handles))
        return self.handle(task) if task in self.rings else [task, 0]


def start_with_rings(workers: WorkerGroup, actor_class: type, driver_class: type, *extra: Any) -> None:
    """Start the workers, and map all rings. Without their names, the memory is freed when the processes end."""
    workers.start(actor_class, driver_class, *extra)
    workers.call("open_inputs")
    for path in workers.plan.shared_folder.iterdir():
        path.unlink()
