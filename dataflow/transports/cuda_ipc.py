# SPDX-License-Identifier: Apache-2.0
"""Send messages between actors on one GPU through the channels of a compiled graph, by CUDA IPC in place of NCCL."""

from collections import Counter
from dataclasses import replace
from typing import Any

from common.cuda_ipc import connect_actors
from dataflow.endpoints.tensors import DENSE
from dataflow.flows.flow import DRIVER, Flow
from dataflow.flows.message import Message
from dataflow.transports.graph import GraphActor, connect_graph
from dataflow.workers.worker_group import Connection, WorkerGroup


def by_cuda_ipc(workers: WorkerGroup) -> Connection:
    """Let readers copy from the memory of the senders. The driver's own edges use host memory.

    Raise SuiteError if the actors do not share one GPU, and RunFailed if Ray chose another channel for an edge.
    """
    flow = workers.sent_flow
    pairs = bytes_by_pair(flow)
    workers.start(GraphActor, codec=DENSE)
    # A wait ends before the time of an iteration has passed, so that the error names the actor.
    communicator = connect_actors(workers.actors, timeout=workers.plan.options.timeout / 2)
    connection = connect_graph(workers, DENSE, communicator)
    paths = {}
    for edge, path in connection.data_paths.items():
        paths[edge] = f"{path}, CUDA IPC" if "Accelerator" in path else path

    def check_copies() -> dict[str, Any]:
        """Raise SuiteError if the bytes of all iterations were not copied from GPU memory."""
        iterations = workers.driver.inboxes[DRIVER].last
        expected = {pair: iterations * pair_bytes for pair, pair_bytes in pairs.items()}
        communicator.require_copied(expected)
        return {}

    return replace(connection, data_paths=paths, facts=check_copies)


def bytes_by_pair(flow: Flow) -> Counter[tuple[str, str]]:
    """Return the bytes of tensors that an iteration copies from GPU to GPU, by sending and reading actor.

    Two tasks of an actor that read the same message get one copy, and a message within an actor is none. What the
    driver sends, and what the flow returns to it, goes through host memory, to all readers.
    """
    pairs: Counter[tuple[str, str]] = Counter()
    counted = set()
    for edge in flow.edges:
        reader = flow.actor(edge.reader)
        is_on_host = edge.source in (DRIVER, *flow.returns)
        is_counted = (edge.source, reader) in counted
        if is_on_host or is_counted:
            continue
        counted.add((edge.source, reader))
        sender = flow.actor(edge.source)
        pairs[sender, reader] += tensor_bytes(edge.message)
    return pairs


def tensor_bytes(message: Message) -> int:
    """Return the bytes of a message without those of strings and lists, which are no tensors."""
    fields = [field for field in message.fields if not field.is_python]
    return sum(field.bytes for field in fields)


TRANSPORTS = {"cuda-ipc": by_cuda_ipc}
