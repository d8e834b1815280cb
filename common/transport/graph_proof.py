"""What a compiled graph really does with each edge, read from the graph; a silent fallback is refused."""

from typing import Any

from common.flow.flow import DRIVER, Flow
from common.run.trips import TripFailed


def edge_paths(graph: Any, flow: Flow, roles: dict[str, Any]) -> dict[str, str]:
    """For each edge, the type hint and the channel that the compiled graph really has."""
    from ray.dag import ClassMethodNode, DAGNode

    names = {handle._actor_id: name for name, handle in roles.items()}

    def owner(node: DAGNode) -> str:
        return names[node._get_actor_handle()._actor_id] if isinstance(node, ClassMethodNode) else DRIVER

    paths = {}
    for task in graph.idx_to_task.values():
        for argument in task.args:
            if isinstance(argument, DAGNode) and owner(argument) != owner(task.dag_node):
                source = graph.idx_to_task[graph.dag_node_to_idx[argument]]
                channel = source.output_channels[0]
                inner = {type(part).__name__ for part in getattr(channel, "_channels", [channel])}
                edge = f"{owner(argument)} -> {owner(task.dag_node)}"
                paths[edge] = f"{type(source.dag_node.type_hint).__name__} over {' + '.join(sorted(inner))}"
    return {str(edge): paths[str(edge)] for edge in flow.edges}


def refuse_fallback(paths: dict[str, str], flow: Flow, transport: str) -> None:
    """Ray chooses another transport silently where it thinks best; then this would be another row.

    Raises:
        TripFailed: an edge does not have the type hint and channel that the transport stands for.
    """
    hint = "TorchTensorType" if transport in ("nccl", "shm") else "SharedMemoryType"
    for edge in flow.edges:
        between_roles = edge.source != DRIVER and edge.source not in flow.returns
        accelerator = transport == "nccl" and between_roles
        path = paths[str(edge)]
        if not path.startswith(hint) or ("Accelerator" in path) != accelerator:
            raise TripFailed(f"before the first trip: {edge} goes by {path}, which {transport} is not")
