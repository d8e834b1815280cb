# SPDX-License-Identifier: Apache-2.0
"""Everything of Ray that the laboratory uses and Ray does not document: private names, and texts of its errors.

Each name, text and number was seen in the Ray of SEEN_VERSION. For another version, this file is changed, and
tests/workers/test_ray_internals.py says where: it lists and resolves all names, and finds those that it does not list.
It also checks the variables that Ray's processes get (workers/variables.toml and common/ray_settings.py).
tests/trace/test_spans.py checks the functions that --trace times (trace/stages.toml).

Ray is imported by the functions, because the guard of a run, which must start quickly, reads names from here.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from common.ray_settings import SEEN_VERSION as SEEN_VERSION

# Ray's channels name their semaphores sem.obj<process id>-..., sem.hdr<process id>-... (shared_memory_channel, C++).
CHANNEL_SEMAPHORES = ("obj", "hdr")

# In the texts of errors.
RAISED_IN_CONSTRUCTOR = "error raised in its"
CONSTRUCTOR = re.compile(r"ray::([\w-]+)\.__init__")
TASK = re.compile(r"ray::([\w-]+)")
REASON_OF_DEATH = re.compile(
    r"is dead because (?:.* exit detail: )?(.*?)(?: Some common causes|$)", re.MULTILINE
)
CLASS_OF_ACTOR = re.compile(r"class_name: ([\w-]+)")
# Of an actor in a cluster with another token: it ends at once.
RELEASED = "all references to the actor"
SLOW_START = "timed out during startup"


@dataclass(frozen=True)
class StoreBytes:
    """What the object stores of a cluster have counted since their start."""

    created: int  # bytes of all objects that were taken in
    spilled: int  # bytes that were written to disk


def start_ray(folder: str, **settings: Any) -> None:
    """Start a private cluster with its files below a folder. The settings are those of ray.init, which may raise."""
    import ray

    ray.init(address="local", _temp_dir=folder, **settings)


def call_in(actor: Any, function: Callable[[Any], Any]) -> Any:
    """Call a function with an actor's object, in its process. Return a reference to the result."""
    return actor.__ray_call__.remote(function)


def put_by(transport: str) -> Callable[[Any], Any]:
    """Return ray.put for a transport of Ray Direct Transport, such as NIXL: the tensors stay in this process."""
    import ray

    ray_put = ray.put

    def put(payload: Any) -> Any:
        return ray_put(payload, _tensor_transport=transport)

    return put  # a partial of ray.put would take longer


def read_store_bytes() -> StoreBytes:
    """Ask the raylets of the cluster what their object stores have taken in and spilled."""
    import ray
    from ray._private.internal_api import get_memory_info_reply

    stats = get_memory_info_reply(ray._private.state.state).store_stats
    return StoreBytes(stats.cumulative_created_bytes, stats.spilled_bytes_total)


def find_processes(name: str) -> list[int]:
    """Return the ids of the processes with this name of Ray that this process has started: raylet or gcs_server."""
    import ray

    processes = ray._private.worker._global_node.all_processes
    return [started.process.pid for started in processes.get(name, [])]


def id_of_actor(actor: Any) -> str:
    """Return the id of an actor in hexadecimal, as Ray's errors have it."""
    return actor._actor_id.hex()


def transport_manager(name: str) -> Any:
    """Return Ray Direct Transport's manager of a transport, such as NIXL, in this process."""
    from ray.experimental.rdt.util import get_tensor_transport_manager

    return get_tensor_transport_manager(name)


def make_nixl_agent() -> None:
    """Make the agent of Ray's NIXL in this process. Otherwise, Ray makes it when it needs it first."""
    transport_manager("NIXL").get_nixl_agent()


def set_channel_bytes(message_bytes: int) -> None:
    """Set the size of the channels that this process writes: Ray looks it up in the writing process."""
    from ray.dag.context import DAGContext

    DAGContext.get_current().buffer_size_bytes = message_bytes


def compile_graph(bound: Any, buffers: int) -> Any:
    """Return the compiled graph of bound nodes, with so many buffers per channel.

    Ray starts a process per graph. It is waited for, because it would otherwise start in the first iterations.
    """
    import ray

    graph = bound.experimental_compile(_max_inflight_executions=buffers)
    ray.get(graph._proxy_actor.__ray_ready__.remote())
    return graph


@dataclass(frozen=True)
class GraphEdge:
    """An edge of a compiled graph: two nodes of the graph, and how the message of the first one reaches the second."""

    source: Any  # DAGNode
    reader: Any  # DAGNode
    type_hint: str  # the name of its class
    channel: str  # the names of the classes of the channel's parts


def edges_of_graph(graph: Any) -> Iterator[GraphEdge]:
    """Yield the edges of a compiled graph that have a channel. A message that stays on its actor has none."""
    from ray.dag import DAGNode

    for task in graph.idx_to_task.values():
        for argument in task.args:
            if not isinstance(argument, DAGNode):
                continue
            index = graph.dag_node_to_idx[argument]
            source = graph.idx_to_task[index]
            if source.output_channels:
                hint = type(source.dag_node.type_hint).__name__
                channel = describe_channel(source.output_channels[0])
                yield GraphEdge(argument, task.dag_node, hint, channel)


def arguments_of(node: Any) -> tuple[Any, ...]:
    """Return what a node of a graph gets: values, and other nodes."""
    return node.get_args()


def describe_channel(channel: Any) -> str:
    """Return the names of the classes of a channel's parts, or of the channel itself."""
    parts = getattr(channel, "_channels", [channel])
    names = {type(part).__name__ for part in parts}
    return " + ".join(sorted(names))
