"""What a compiled graph really does with each edge, read from the graph; a silent fallback is refused."""

from typing import Any

from common.errors import RunFailed
from common.flow.flow import DRIVER, Flow


def edge_paths(graph: Any, flow: Flow) -> dict[str, str]:
    """For each edge, the type hint and the channel that the compiled graph really has."""
    from ray.dag import ClassMethodNode, DAGNode

    def task_of(node: DAGNode) -> str:
        return node.get_args()[0] if isinstance(node, ClassMethodNode) else DRIVER

    paths = {}
    for task in graph.idx_to_task.values():
        for argument in task.args:
            if isinstance(argument, DAGNode):
                source = graph.idx_to_task[graph.dag_node_to_idx[argument]]
                if not source.output_channels:
                    continue  # it stays on its actor
                channel = source.output_channels[0]
                inner = {type(part).__name__ for part in getattr(channel, "_channels", [channel])}
                edge = f"{task_of(argument)} -> {task_of(task.dag_node)}"
                paths[edge] = f"{type(source.dag_node.type_hint).__name__} over {' + '.join(sorted(inner))}"
    return {str(edge): paths[str(edge)] for edge in flow.edges}


def refuse_fallback(paths: dict[str, str], flow: Flow, hint: str | None, transport: str) -> None:
    """Ray chooses another transport silently where it thinks best; then this would be another row.

    Raises:
        RunFailed: an edge does not have the type hint and channel that the transport stands for.
    """
    wanted = "TorchTensorType" if hint else "SharedMemoryType"
    for edge in flow.edges:
        accelerator = hint == "nccl" and edge.source != DRIVER and edge.source not in flow.returns
        path = paths[str(edge)]
        if not path.startswith(wanted) or ("Accelerator" in path) != accelerator:
            raise RunFailed(f"{edge} goes by {path}, which {transport} is not")
