# SPDX-License-Identifier: Apache-2.0
"""Send messages without Ray, between plain PyTorch processes on one machine."""

import multiprocessing
import os
from functools import partial
from itertools import cycle
from typing import Any

import torch
import torch.multiprocessing

from dataflow.endpoints import tensors
from dataflow.endpoints.actor import Actor, Endpoint, pass_messages
from dataflow.flows.flow import DRIVER
from dataflow.transports.shared_ring import RingEndpoint, start_with_rings
from dataflow.workers.worker_group import Connection, WorkerGroup


class LoopActor(Actor):
    def run(self: Any) -> None:
        while True:
            for task in self.tasks:
                # No variable holds the inputs: the inbox frees them, at the same time for every transport.
                self.send(task, self.forward_step(task, *self.receive_all(task)))


def connect(workers: WorkerGroup, data_path: str, sender: Any = None, **fields: Any) -> Connection:
    """Return the connection of endpoints, or senders of endpoints, that send and receive all messages of a task."""
    driver = sender or workers.driver
    return Connection(
        submit=lambda query: driver.send(DRIVER, query),
        collect=lambda _: driver.receive_all(DRIVER),
        data_paths={str(edge): data_path for edge in workers.sent_flow.edges},
        **fields,
    )


class QueueEndpoint(Endpoint):
    """The payloads lie in shared memory, and torch.multiprocessing sends their file descriptors."""

    def __init__(self, plan, name, queues):
        super().__init__(plan, name)
        self.queues = queues  # by edge

    def memory(self, task):
        count = self.task_flow.message(task).packed_bytes
        return lambda slot: torch.ones(count, dtype=torch.uint8).share_memory_()

    def send(self, task, payload):
        for edge in self.sent_flow.edges_from(task):
            self.queues[str(edge)].put(payload)

    def receive_all(self, task):
        return [self.queues[str(edge)].get() for edge in self.sent_flow.edges_to(task)]


class QueueActor(QueueEndpoint, LoopActor):
    pass


def by_multiprocessing(workers: WorkerGroup) -> Connection:
    """Send tensors in shared memory through the queues of torch.multiprocessing."""
    context = torch.multiprocessing.get_context("spawn")
    workers.start(
        QueueActor,
        QueueEndpoint,
        {str(edge): context.SimpleQueue() for edge in workers.sent_flow.edges},
    )
    return connect(workers, f"SimpleQueue, {torch.multiprocessing.get_sharing_strategy()}")


class PipeEndpoint(RingEndpoint):
    """The payloads stay where their readers map them, and pipes carry their sequence numbers."""

    def __init__(self, plan, name, pipes):
        super().__init__(plan, name)
        self.pipes = pipes  # by edge; keeps the files open
        self.inputs = {}
        self.outputs = {}
        for task in self.inboxes:
            self.inputs[task] = [
                (edge.source, pipes[str(edge)][0].fileno())
                for edge in self.sent_flow.edges_to(task)
            ]
            self.outputs[task] = [
                pipes[str(edge)][1].fileno() for edge in self.sent_flow.edges_from(task)
            ]

    def send(self, task, payload):
        for pipe in self.outputs[task]:
            os.write(pipe, self.rings[task].newest.to_bytes(8, "little"))

    def receive_all(self, task):
        handles = [
            [sender, int.from_bytes(os.read(pipe, 8), "little")]
            for sender, pipe in self.inputs[task]
        ]
        return self.open_all(task, handles)


class PipeActor(PipeEndpoint, LoopActor):
    pass


def by_mapped(workers: WorkerGroup) -> Connection:
    """Leave payloads where their sender wrote them; sequence numbers in pipes are the cheapest messages in Python."""
    context = multiprocessing.get_context("spawn")
    pipes = {str(edge): context.Pipe(duplex=False) for edge in workers.sent_flow.edges}
    start_with_rings(workers, PipeActor, PipeEndpoint, pipes)
    return connect(workers, "mapped /dev/shm, sequence number by pipe")


def by_memcpy(workers: WorkerGroup) -> Connection:
    """Copy once per edge, in one process and into warm memory: a reference and not a transport.

    `submit` runs the whole iteration and returns its results. Strings and lists of numbers are passed without a copy.
    """
    workers.start()
    flow = workers.sent_flow
    device = workers.plan.device
    # Parameters are served until the next ones are copied.
    count = 2 if workers.plan.task_flow.has_parameters else 1
    buffers = {}
    for edge in flow.edges:
        copies = [tensors.like(edge.message, device) for _ in range(count)]
        buffers[edge] = cycle(copies)

    def copy(payload, edge):
        return tensors.copy(payload, next(buffers[edge]))

    submit = partial(pass_messages, flow, workers.actors, copy)
    return Connection(
        submit,
        collect=lambda results: results,
        data_paths={str(edge): "memcpy in one process" for edge in flow.edges},
    )


TRANSPORTS = {
    "multiprocessing": by_multiprocessing,
    "mapped": by_mapped,
    "memcpy": by_memcpy,
}
