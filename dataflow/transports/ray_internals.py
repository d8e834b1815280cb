"""Private parts of Ray that are replaced (--reuse-buffers) or inspected (the channels of a compiled graph)."""

import weakref
from typing import Any

import numpy as np
import torch

from dataflow.errors import RunFailed
from dataflow.flows.flow import DRIVER, Flow

MIN_REUSED_BYTES = 2**20  # the allocator keeps smaller pieces of memory anyway


class ReusedBuffers:
    """Memory for copies. It is used again when the last tensor or view in it is gone."""

    def __init__(self) -> None:
        self.slots: dict[int, list[list[Any]]] = {}  # bytes -> memory and weak reference to the array in it

    def copy(self, array: np.ndarray) -> torch.Tensor:
        slots = self.slots.setdefault(array.nbytes, [])
        slot = next((slot for slot in slots if slot[1]() is None), None)
        if slot is None:
            slot = [np.empty(array.nbytes, np.uint8), None]
            slots.append(slot)
        lease = slot[0].view(array.dtype).reshape(array.shape)  # the tensor and all of its views keep it alive
        slot[1] = weakref.ref(lease)
        np.copyto(lease, array)
        return torch.from_numpy(lease)


def reuse_receive_buffers() -> None:
    """--reuse-buffers: let this process's channels copy each large message for a CPU into memory that is used again.

    Ray copies each message of the `shm` type hint into new memory (serialization_context.py, the last line of
    deserialize_from_numpy_or_scalar). More than 32 MiB are unmapped when freed: a page fault per 4 KiB and iteration.
    """
    from ray.experimental.channel import ChannelContext

    context = ChannelContext.get_current().serialization_context
    buffers, original = ReusedBuffers(), context.deserialize_from_numpy_or_scalar

    def deserialize(array: Any, dtype: torch.dtype, source: str, target: Any) -> torch.Tensor:
        if source != "cpu" or not isinstance(array, np.ndarray) or array.nbytes < MIN_REUSED_BYTES:
            return original(array, dtype, source, target)
        return buffers.copy(array).view(dtype)

    context.deserialize_from_numpy_or_scalar = deserialize


def read_data_paths(graph: Any, flow: Flow) -> dict[str, str]:
    """Return the type hint and the channel of each edge, as the compiled graph has them."""
    from ray.dag import ClassMethodNode, DAGNode

    def task_name(node: DAGNode) -> str:
        return node.get_args()[0] if isinstance(node, ClassMethodNode) else DRIVER

    paths = {}
    for task in graph.idx_to_task.values():
        for argument in task.args:
            if isinstance(argument, DAGNode):
                source = graph.idx_to_task[graph.dag_node_to_idx[argument]]
                if not source.output_channels:
                    continue  # the message stays on its actor
                channel = source.output_channels[0]
                channels = {type(part).__name__ for part in getattr(channel, "_channels", [channel])}
                edge = f"{task_name(argument)} -> {task_name(task.dag_node)}"
                paths[edge] = f"{type(source.dag_node.type_hint).__name__} over {' + '.join(sorted(channels))}"
    return {str(edge): paths[str(edge)] for edge in flow.edges}


def check_data_paths(paths: dict[str, str], flow: Flow, hint: str | None, transport: str) -> None:
    """Raise RunFailed if Ray silently chose another channel for an edge, which would be another configuration."""
    type_hint = "TorchTensorType" if hint else "SharedMemoryType"
    for edge in flow.edges:
        is_accelerated = hint == "nccl" and edge.source != DRIVER and edge.source not in flow.returns
        path = paths[str(edge)]
        if not path.startswith(type_hint) or ("Accelerator" in path) != is_accelerated:
            raise RunFailed(f"{edge} uses {path}, which is not the data path of {transport}")
