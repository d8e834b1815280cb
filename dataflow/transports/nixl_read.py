# SPDX-License-Identifier: Apache-2.0
"""Send addresses through a compiled graph, with which readers fetch the messages by NIXL from their senders."""

import ctypes
import time
from collections.abc import Iterator
from typing import Any

import ray
import torch

from dataflow.endpoints.actor import Endpoint
from dataflow.endpoints.payload import Memory
from dataflow.endpoints.tensors import Payload, list_tensors
from dataflow.errors import RunFailed
from dataflow.flows.flow import DRIVER, Edge
from dataflow.plan.plan import Plan
from dataflow.records.schema import AS_REQUESTED
from dataflow.transports.graph import GraphActor, compile_graph
from dataflow.transports.nixl_memory import (
    Agent,
    Handle,
    KeptTargets,
    Reader,
    Sender,
    Target,
    reused_targets,
)
from dataflow.transports.process_group import read_logged_paths
from dataflow.workers.worker_group import Connection, WorkerGroup

REGION_BYTES = 24  # of a list of two integers, at most


class NixlReadEndpoint(Endpoint):
    """Send messages from registered memory, and read those of others into registered memory.

    The tensors of a message lie in one buffer, so that one address is enough. Parameters lie where they are.
    """

    def __init__(self, plan: Plan, name: str) -> None:
        super().__init__(plan, name)
        self.agent = Agent(name, plan.options.threads)
        # A wait ends before the time of an iteration has passed, so that the error names the reader.
        self.wait_seconds = plan.options.timeout / 2
        self.senders: dict[str, Sender] = {}  # by task
        for task, outbox in self.outboxes.items():
            edges = self.sent_flow.edges_from(task)
            if edges:
                slots = [list_tensors(payload) for payload in outbox.buffers or outbox.pool]
                self.senders[task] = Sender(self.agent, task, slots, edges, self.wait_seconds)
        self.readers: dict[str, dict[str, Reader]] = {}  # by reading task and sending task

    def memory(self, task: str) -> Memory | None:
        message = self.task_flow.message(task)
        if message.is_parameters:
            return None
        return lambda slot: torch.ones(message.packed_bytes, dtype=torch.uint8)

    def metadata(self) -> bytes:
        return self.agent.metadata()

    def first_handles(self) -> dict[str, Handle]:
        """Return a handle of each task's memory, before the first message."""
        return {task: sender.handle() for task, sender in self.senders.items()}

    def connect(self, metadata: dict[str, bytes]) -> None:
        """Register memory for what this worker reads. metadata: that of all workers' agents, by name."""
        edges = self.sent_flow.edges_to_actor(self.name)
        sending = {edge: self.sent_flow.actor(edge.source) for edge in edges}
        for name in set(sending.values()):
            self.agent.add(metadata[name])
        for edge, name in sending.items():
            targets = self.make_targets(edge)
            reader = Reader(self.agent, edge, name, targets, self.wait_seconds)
            self.readers.setdefault(edge.reader, {})[edge.source] = reader

    def make_targets(self, edge: Edge) -> Iterator[Target]:
        """Return the memory that messages of an edge are received into."""
        options = self.plan.options
        if options.keep:
            return KeptTargets(self.agent, edge.message)
        # Parameters are served until the next ones have arrived.
        count = 2 if edge.message.is_parameters else options.in_flight
        return reused_targets(self.agent, edge.message, count)

    def try_to_read(self, handles: dict[str, Handle]) -> None:
        """Read once from each sender, while no sender does anything; handles: by sending task."""
        for readers in self.readers.values():
            for source, reader in readers.items():
                reader.try_to_read(handles[source])
        # UCX has logged how it reads, into a buffer of C.
        ctypes.CDLL(None).fflush(None)

    def read(self, task: str, handle: Handle) -> Payload:
        """Return the payload of a handle; raise RunFailed if the task does not read this message, or not now."""
        # A compiled graph passes a failed deserialisation as an argument.
        if not isinstance(handle, list):
            raise RunFailed(f"{task} expected a handle, got {type(handle).__name__}")
        readers = self.readers.get(task, {})
        if handle[0] not in readers:
            raise RunFailed(
                f"{task} received a handle of {handle[0]}, whose messages it does not read"
            )
        return readers[handle[0]].read(handle)

    def read_all(self, task: str, handles: list[Handle]) -> list[Payload]:
        return [self.read(task, handle) for handle in handles]

    def handle(self, task: str) -> Handle:
        """Return the handle of a task's newest message; if only its own actor reads it, there is nothing to read."""
        if task not in self.senders:
            return [task, 0, []]
        return self.senders[task].handle()

    def handle_bytes(self) -> int:
        """Return the most bytes that a handle of this worker has."""
        handles = [self.handle(task) for task in self.outboxes]
        return max(REGION_BYTES * len(regions) for _, _, regions in handles)

    def make_payload(self, number: int, task: str = DRIVER) -> Payload:
        """Wait until the slot's last message has been read by all readers, and write the sequence number.

        Raise RunFailed if a reader does not read it in time. Without other readers, there is no wait.
        """
        if task in self.senders:
            self.senders[task].acquire(number)
        return super().make_payload(number, task)


class NixlReadActor(NixlReadEndpoint, GraphActor):
    """An actor that reads each of its inputs as soon as it is there, and returns handles."""

    def pass_through(self, task: str, message: Handle) -> Payload:
        return self.read(task, message)

    def forward_step(self, task: str, *inputs: Payload) -> Handle:
        super().forward_step(task, *inputs)
        return self.handle(task)


def by_nixl_read(workers: WorkerGroup) -> Connection:
    """Let readers copy from the memory of the senders; the graph carries where it is.

    Each reader reads once from each of its senders before the graph is made. Raise RunFailed if the driver cannot, or
    if an edge has another channel than expected. If an actor cannot, the error is that of Ray.
    """
    start = time.perf_counter()
    workers.start(NixlReadActor, NixlReadEndpoint)
    metadata = workers.call("metadata")
    workers.call("connect", metadata)
    handles: dict[str, Handle] = {}
    for handles_of_worker in workers.call("first_handles").values():
        handles |= handles_of_worker
    workers.call("try_to_read", handles)
    seconds = time.perf_counter() - start
    graph, channels = compile_graph(
        workers, count_bytes=lambda endpoint: endpoint.handle_bytes(), passes_each=True
    )
    driver = workers.driver
    logged = ", ".join(read_logged_paths(workers.plan.run_folder, library="ucx"))
    path = f"NIXL over UCX, {logged}" if logged else f"NIXL over UCX{AS_REQUESTED}"
    data_paths = {}
    for edge, channel in channels.items():
        data_paths[edge] = f"{path}, handle by {channel}"

    def submit(query: Any) -> Any:
        return graph.execute(driver.handle(DRIVER))

    return Connection(
        submit,
        collect=lambda result: driver.read_all(DRIVER, ray.get(result)),
        data_paths=data_paths,
        setup_seconds={"agents, registration, first reads": seconds},
    )


TRANSPORTS = {"nixl-read": by_nixl_read}
