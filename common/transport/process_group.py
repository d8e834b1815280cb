"""Participants as ranks of one torch.distributed process group, with memory to receive into."""

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from common.flow.flow import DRIVER, Edge
from common.payload import forms, leaves
from common.payload.participant import Participant
from common.transport import nccl_proof


class GroupMember(Participant):
    """One rank of torch.distributed: the driver is 0, the actors follow in the flow's order."""

    def join(self) -> None:
        """Form the group, and let every edge's two ends meet once, so that NCCL's log says how."""
        names = self.plan.participants
        self.ranks = {task: names.index(self.wire.actor(task)) for task in (DRIVER, *(t.name for t in self.wire.tasks))}
        rank, transport = names.index(self.name), self.plan.row.transport
        if self.plan.device == "cuda":
            nccl_proof.configure(self.plan.folder, rank, transport == "nccl-one-gpu")
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if self.plan.device == "cuda" else "gloo", f"file://{self.plan.folder}/rendezvous",
            rank=rank, world_size=len(names), timeout=timedelta(seconds=self.plan.options.timeout + 30),
        )  # fmt: skip
        # What an edge's tensors are received into; as many as trips may be under way.
        self.wires: dict[str, list[list[Any]]] = {
            str(edge): [forms.to_wire(leaves.like(edge.message, self.device_of(edge)), edge.message)
                        for _ in range(self.plan.options.in_flight)]
            for edge in (*self.wire.edges_into(self.name), *self.wire.edges_out_of(self.name))
        }  # fmt: skip
        for edge in self.wire.edges:
            if self.name == self.wire.actor(edge.source):
                dist.send(torch.ones(1, device=self.device_of(edge)), self.ranks[edge.reader])
            elif self.name == self.wire.actor(edge.reader):
                dist.recv(torch.ones(1, device=self.device_of(edge)), self.ranks[edge.source])

    def device_of(self, edge: Edge) -> Any:
        """Where this edge's bytes arrive: on the GPU between roles, in host memory to and from the driver."""
        return "cpu" if DRIVER in (edge.source, edge.reader) else self.device
