"""Run a flow of pipeline stages by torch.distributed.pipelining: its schedules decide when to compute and to send.

Each chunk of the model is a module whose forward and backward passes are tasks of the flow. A pass receives the message
that PyTorch has brought, computes for the time of the task, and returns the payload that PyTorch sends on.
"""

import logging
from itertools import cycle
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

from common.flows.flow import DRIVER
from common.flows.pipeline import BACKWARD, FORWARD, SCHEDULES, task_name

# At the end of a run, stages wait for a next step that does not come; PyTorch would print its state as an error.
logging.getLogger("torch.distributed.pipelining").setLevel(logging.CRITICAL)
SCHEDULE_CLASSES = {"afab": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}


class Pass(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, message: torch.Tensor, weight: torch.Tensor, chunk: "Chunk") -> torch.Tensor:
        context.chunk, context.batch = chunk, next(chunk.batches)
        return chunk.run_task(FORWARD, context.batch, message)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        return context.chunk.run_task(BACKWARD, context.batch, gradient), torch.zeros(1), None


class Chunk(torch.nn.Module):
    """The part of the model at one position. It has a weight, because PyTorch skips a backward pass without any."""

    def __init__(self, actor: Any, position: int, sizes: dict[str, Any]) -> None:
        super().__init__()
        self.actor, self.position, self.stages = actor, position, sizes["stages"]
        self.batches = cycle(range(sizes["micro_batches"]))
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, message: torch.Tensor) -> torch.Tensor:
        return Pass.apply(message, self.weight, self)

    def run_task(self, kind: str, batch: int, message: torch.Tensor) -> torch.Tensor:
        """Run the task of this pass, and return the tensor to send: one number if the task only acknowledges."""
        task = task_name(kind, batch, self.position, self.stages)
        inputs = []
        for edge in self.actor.sent_flow.edges_to(task):
            inputs.append(self.actor.query if edge.source == DRIVER else {"hidden_states": message.detach()})
        payload = self.actor.forward_step(task, *inputs)
        return payload["hidden_states"].detach() if isinstance(payload, dict) else torch.zeros(1)


def make_schedule(actor: Any, stage: int, sizes: dict[str, Any], group: dist.ProcessGroup) -> Any:
    """Return PyTorch's schedule of the stage with this number, which begins with 0."""
    plan, stages, batches = SCHEDULES[sizes["schedule"]], sizes["stages"], sizes["micro_batches"]
    shape = (sizes["batch_size"], sizes["sequence_length"], sizes["hidden_size"])
    tensor, total, chunks = torch.zeros(shape, dtype=torch.bfloat16, requires_grad=True), stages * plan.chunks, []
    for position in range(stage, total, stages):
        before = tensor if position else torch.zeros(1, 1)
        after = tensor if position < total - 1 else torch.zeros(1)
        module = Chunk(actor, position, sizes)
        chunks.append(PipelineStage(module, position, total, torch.device("cpu"), before, after, group=group))
    return SCHEDULE_CLASSES[sizes["schedule"]](
        chunks if plan.chunks > 1 else chunks[0], batches, lambda output, target: output.sum(), scale_grads=False
    )
