"""Read the channels of a compiled graph, which are private parts of Ray."""

from typing import Any

from dataflow.errors import RunFailed
from dataflow.flows.flow import DRIVER, Flow


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
