"""What does one trip of the RLHF data flow cost without Ray, between plain PyTorch processes?

                  .------------- 96 MiB -------------.
                  |                                  v
    driver --> policy --> reference -- 64 MiB --> reward --> driver
        32 MiB     96 MiB                          160 MiB

The clock runs from the query in the driver's hand to the reward's output in the driver's hand. Payloads are
made before and checked after, while it stands. What Ray adds is the difference to these rows.

    --transport gloo             torch.distributed send and recv over loopback (the default)
    --transport nccl             the same between GPUs; the driver's own edges by gloo, as in Ray's graph
    --transport nccl-one-gpu     the same with all ranks on one GPU; the record says which way the bytes take
    --transport multiprocessing  torch.multiprocessing queues with tensors in shared memory: mapped, not copied
    --transport memcpy           one process and one warm copy an edge: the ceiling itself, on the clock

    python3 torch_simulate_chat_learn_data_flow.py
    python3 torch_simulate_chat_learn_data_flow.py --transport multiprocessing --iterations 20
"""

import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

from common.flow.flow import DRIVER, Edge, Flow
from common.payload.participant import Participant, Role
from common.run import worker as case
from common.run.options import UsageError
from common.run.trips import TripFailed, Wiring
from common.runtime import devices, processes
from common.transport import nccl_proof as nccl_path

TRANSPORTS = dict.fromkeys(("gloo", "nccl", "nccl-one-gpu", "memcpy"), "copied") | {"multiprocessing": "mapped"}


def settle(arguments: Namespace, flow: Flow, gpus: int) -> int:
    """Refuse what cannot be; how many GPUs to use."""
    if arguments.reuse_buffers:
        raise UsageError("--reuse-buffers is for the compiled graph's shm: leave it out")
    if arguments.zero_copy or arguments.address or arguments.object_store_bytes or arguments.placement == "spread":
        raise UsageError("--zero-copy, --address, --placement and --object-store-bytes are Ray's: leave them out")
    if arguments.transport.startswith("nccl"):
        needed = 1 if arguments.transport == "nccl-one-gpu" else len(flow.roles)
        devices.need_gpus(arguments.transport, gpus, needed)
        return needed
    return gpus


class Distributed:
    """One rank of torch.distributed: the driver is 0, the roles follow in the flow's order."""

    def join(self, flow: Flow, arguments: Namespace, rendezvous: str) -> None:
        self.ranks = {name: rank for rank, name in enumerate([DRIVER, *(role.name for role in flow.roles)])}
        on_gpus = arguments.transport.startswith("nccl")
        if on_gpus:
            one_gpu = arguments.transport == "nccl-one-gpu"
            nccl_path.configure(Path(rendezvous).parent, self.ranks[self.name], one_gpu)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpus else "gloo", f"file://{rendezvous}",
            rank=self.ranks[self.name], world_size=len(self.ranks),
            timeout=timedelta(seconds=arguments.timeout),
        )  # fmt: skip
        self.wires = {edge: self.buffer(edge) for edge in flow.edges if self.name in (edge.source, edge.reader)}
        for edge in flow.edges:  # every pair meets once, so that NCCL's log says how before the first trip
            if edge.source == self.name:
                self.send(self.like(edge).fill_(1), (edge,))
            elif edge.reader == self.name:
                self.receive_from((edge,))

    def buffer(self, edge: Edge) -> torch.Tensor:
        """Where this edge's bytes arrive: on the GPU between roles, in host memory to and from the driver."""
        return self.like(edge).to("cpu" if DRIVER in (edge.source, edge.reader) else self.device).fill_(1)

    def send(self, payload: torch.Tensor, edges: tuple[Edge, ...]) -> None:
        sent = [dist.isend(payload.to(self.wires[edge].device), self.ranks[edge.reader]) for edge in edges]
        for work in sent:
            work.wait()

    def receive_from(self, edges: tuple[Edge, ...]) -> list[torch.Tensor]:
        for edge in edges:
            dist.recv(self.wires[edge], self.ranks[edge.source])
        return [self.wires[edge].to(self.device) for edge in edges]


class DistributedRole(Role, Distributed):
    """Receives its inputs, sends its payload, for ever."""

    def __init__(self, flow: Flow, name: str, arguments: Namespace, rendezvous: str) -> None:
        if arguments.device == "cuda":
            index = [role.name for role in flow.roles].index(name)
            torch.cuda.set_device(0 if arguments.transport == "nccl-one-gpu" else index)
        super().__init__(flow, name, arguments)
        self.flow, self.arguments, self.rendezvous = flow, arguments, rendezvous

    def run(self) -> None:
        self.join(self.flow, self.arguments, self.rendezvous)
        while True:
            self.send(self.forward_step(*self.receive_from(self.reads)), self.flow.edges_from(self.name))


class DistributedDriver(Participant, Distributed):
    def __init__(self, flow: Flow, name: str, arguments: Namespace, rendezvous: str) -> None:
        super().__init__(flow, name, arguments)


class SharedParticipant(Participant):
    """Its pool lies in shared memory, as torch.multiprocessing wants it; sending it sends a file descriptor."""

    def __init__(self, flow: Flow, name: str, arguments: Namespace, queues: dict[Edge, Any]) -> None:
        super().__init__(flow, name, arguments)
        self.queues, self.writes = queues, flow.edges_from(name)
        self.pool = [payload.share_memory_() for payload in self.pool]  # which moves them
        self.stampable = [payload.numpy() for payload in self.pool]


class QueueRole(SharedParticipant, Role):
    """Takes its inputs from their queues, puts its payload into its own, for ever."""

    def run(self) -> None:
        while True:
            output = self.forward_step(*(self.queues[edge].get() for edge in self.reads))
            for edge in self.writes:
                self.queues[edge].put(output)


@contextmanager
def connect(arguments: Namespace, flow: Flow, start: Callable[..., tuple[dict[str, Any], Any]]) -> Iterator[Wiring]:
    """Start the roles and yield the transport's send(query) -> results."""
    outgoing, incoming = flow.edges_from(DRIVER), flow.edges_to(DRIVER)

    def send_by_distributed(query):
        driver.send(query, outgoing)
        return driver.receive_from(incoming)

    def send_by_queues(query):
        for edge in outgoing:
            queues[edge].put(query)
        return [queues[edge].get() for edge in incoming]

    def send_by_memcpy(query):
        emitted = {DRIVER: query}
        for role in flow.roles:
            copies = [buffers[edge].copy_(emitted[edge.source]) for edge in roles[role.name].reads]
            emitted[role.name] = roles[role.name].forward_step(*copies)
        return [buffers[edge].copy_(emitted[edge.source]) for edge in incoming]

    if arguments.transport == "memcpy":
        roles, driver = start(Role, Participant)
        buffers = {edge: driver.like(edge).fill_(1) for edge in flow.edges}
        yield Wiring(send_by_memcpy, {str(edge): "memcpy in one process" for edge in flow.edges}, mapped=False)
    elif arguments.transport == "multiprocessing":
        spawn = torch.multiprocessing.get_context("spawn")
        queues = {edge: spawn.SimpleQueue() for edge in flow.edges}
        roles, driver = start(QueueRole, SharedParticipant, queues)
        path = f"SimpleQueue, {torch.multiprocessing.get_sharing_strategy()}"
        yield Wiring(send_by_queues, {str(edge): path for edge in flow.edges}, mapped=True)
    else:
        with tempfile.TemporaryDirectory() as folder:
            rendezvous = f"{folder}/rendezvous"
            roles, driver = start(DistributedRole, DistributedDriver, rendezvous)
            driver.join(flow, arguments, rendezvous)
            groups = dist.get_backend_config()
            found = nccl_path.read_log(Path(folder))
            if arguments.transport.startswith("nccl") and not found:
                raise TripFailed("before the first trip: NCCL's log names no connection between the roles")
            path = ", ".join(["torch.distributed", groups, *found])
            yield Wiring(send_by_distributed, {str(edge): path for edge in flow.edges}, mapped=False)


HOST_ONLY = ("gloo", "multiprocessing", "memcpy")
SCRIPT = case.Script(__file__, __doc__, TRANSPORTS, "gloo", settle, connect, processes, HOST_ONLY)

if __name__ == "__main__":
    sys.exit(case.run(SCRIPT))
