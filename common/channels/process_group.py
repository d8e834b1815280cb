"""Endpoints as ranks of one torch.distributed process group, and the data path that NCCL's log names."""

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from common.endpoints import tensors
from common.endpoints.actor import Endpoint
from common.flows.flow import DRIVER, Edge
from common.plan.plan import Plan


class GroupMember(Endpoint):
    """One rank: the driver is 0, the actors follow in the flow's order."""

    def __init__(self, plan: Plan, name: str) -> None:
        if plan.device == "cuda":
            torch.cuda.set_device(plan.gpu_of(name))
        super().__init__(plan, name)

    def join(self) -> None:
        """Form the group, and send one message over each edge, so that NCCL's log names the data path."""
        plan, flow, names = self.plan, self.wire_flow, self.plan.worker_names
        rank = names.index(self.name)
        self.ranks = {task: names.index(flow.actor(task)) for task in (DRIVER, *(task.name for task in flow.tasks))}
        if plan.device == "cuda":
            one_gpu = plan.transport.name == "nccl-one-gpu"
            os.environ.update(nccl_settings(plan.run_folder, torch.cuda.nccl.version(), one_gpu, rank))
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if plan.device == "cuda" else "gloo", f"file://{plan.run_folder}/rendezvous",
            rank=rank, world_size=len(names), timeout=timedelta(seconds=plan.options.timeout + 30),
        )  # fmt: skip
        # Per edge, one list of tensors to receive into for each iteration in flight.
        self.receive_buffers: dict[str, list[list[Any]]] = {}
        for edge in (*flow.edges_to_actor(self.name), *flow.edges_from_actor(self.name)):
            self.receive_buffers[str(edge)] = [
                tensors.to_tensor_list(tensors.like(edge.message, self.device_of(edge)), edge.message)
                for _ in range(plan.options.in_flight)
            ]
        for edge in flow.edges:
            if self.name == flow.actor(edge.source):
                dist.send(torch.ones(1, device=self.device_of(edge)), self.ranks[edge.reader])
            elif self.name == flow.actor(edge.reader):
                dist.recv(torch.ones(1, device=self.device_of(edge)), self.ranks[edge.source])

    def device_of(self, edge: Edge) -> Any:
        """Return where an edge's bytes arrive: on the GPU between actors, in host memory to and from the driver."""
        return "cpu" if DRIVER in (edge.source, edge.reader) else self.device


def nccl_settings(folder: Path, version: tuple[int, ...], one_gpu: bool, rank: int) -> dict[str, str]:
    """Return the environment that NCCL needs before its first communicator: to log its connections into the folder.

    NCCL rejects two ranks on one GPU ("Duplicate GPU detected"). From 2.30 on, a setting allows it. Before, another
    host name for each rank passes the check, but then the bytes travel over sockets, and the log says so.
    """
    log = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": f"{folder}/nccl.%h.%p.log"}  # NCCL inserts host and process
    if not one_gpu:
        return log
    if version >= (2, 30):
        return log | {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "4", "NCCL_NVLS_ENABLE": "0"}
    return log | {"NCCL_HOSTID": f"rank-{rank}", "NCCL_SOCKET_IFNAME": "lo"}


def read_nccl_log(folder: Path) -> list[str]:
    """Return the data paths that the logs in a folder name, as in "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"."""
    text = "\n".join(path.read_text(errors="replace") for path in sorted(folder.glob("nccl.*.log")))
    return sorted(set(re.findall(r" via ([A-Z][\w/]*)", text)))
