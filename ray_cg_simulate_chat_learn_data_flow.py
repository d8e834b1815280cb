"""What does one trip of the RLHF data flow cost as one Ray compiled graph?

                  .------------- 96 MiB -------------.
                  |                                  v
    driver --> policy --> reference -- 64 MiB --> reward --> driver
        32 MiB     96 MiB                          160 MiB

The clock runs from the query in the driver's hand to the reward's output in the driver's hand. Payloads are
made before and checked after, while it stands.

    --transport nccl       GPU to GPU; the default where every role can have a GPU of its own
    --transport shm        TorchTensorType over a shared-memory channel; the default elsewhere
    --transport pickle     the same channel without the type hint: what the hint is worth
    --transport zero-copy  arrays out, mapped as tensors by the readers: nothing is copied on reading

    python3 ray_cg_simulate_chat_learn_data_flow.py
    python3 ray_cg_simulate_chat_learn_data_flow.py --transport zero-copy --iterations 20
"""

import sys
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from common import case
from common.flows import DRIVER, Flow
from common.measurement import TripFailed, Wiring

TRANSPORTS = ("nccl", "shm", "pickle", "zero-copy")
# Two buffers a channel: a reader may hold the view of one trip until it is handed the next one,
# while that one is written beside it. With one buffer, a held view would block the writer.
BUFFERS = 2


def bind(flow: Flow, roles: dict[str, Any], transport: str) -> Any:
    """The flow as a graph of the roles' methods, not yet compiled.

    Returns:
        A DAGNode whose results are the outputs that return to the driver, in the flow's order.
    """
    from ray.dag import InputNode, MultiOutputNode

    hint = {"nccl": "nccl", "shm": "shm"}.get(transport)
    with InputNode() as query:
        emitted = {DRIVER: query}
        if hint:
            query.with_tensor_transport("shm")  # the driver is never an NCCL rank
        for role in flow.roles:
            inputs = [emitted[source] for source in role.reads]
            if transport == "nccl" and len(inputs) > 1:
                # Ray cannot compile a task that joins accelerator edges; it can compile methods that
                # receive one each and pass it on, inside the reading actor.
                inputs = [roles[role.name].pass_through.bind(tensor) for tensor in inputs]
            emitted[role.name] = roles[role.name].forward_step.bind(*inputs)
            if hint:
                returns = role.name in flow.returns
                emitted[role.name].with_tensor_transport("shm" if returns else hint)
        return MultiOutputNode([emitted[source] for source in flow.returns])


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


@contextmanager
def connect(arguments: Namespace, flow: Flow, start: Callable[[type], dict[str, Any]]) -> Iterator[Wiring]:
    """Start the roles, compile the graph and yield the transport's send(query) -> results."""
    import numpy as np
    import ray
    import torch

    from common.actors import Role

    def to_tensor(array):
        if not isinstance(array, np.ndarray):
            raise TypeError(f"expected an array, got {type(array).__name__}")
        with warnings.catch_warnings():  # torch warns that nobody may write to a channel: nobody does
            warnings.simplefilter("ignore", UserWarning)
            return torch.from_numpy(array).to(arguments.device)

    class GraphRole(Role):
        def pass_through(self, tensor):
            return tensor

    class MappedRole(Role):
        """Reads arrays, which Ray maps instead of copying, as tensors; emits its tensor as an array."""

        def forward_step(self, *arrays):
            return super().forward_step(*map(to_tensor, arrays)).cpu().numpy()

    def send(query):
        return ray.get(graph.execute(query))

    def send_mapped(query):
        return [to_tensor(array) for array in ray.get(graph.execute(query.cpu().numpy()))]

    zero_copy = arguments.transport == "zero-copy"
    roles = start(MappedRole if zero_copy else GraphRole)
    graph = bind(flow, roles, arguments.transport).experimental_compile(_max_inflight_executions=BUFFERS)
    try:
        paths = edge_paths(graph, flow, roles)
        refuse_fallback(paths, flow, arguments.transport)
        yield Wiring(send_mapped if zero_copy else send, paths, mapped=zero_copy)
    finally:
        graph.teardown()


if __name__ == "__main__":
    sys.exit(case.run(__file__, __doc__, TRANSPORTS, None, connect))
