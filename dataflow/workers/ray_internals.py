"""Everything of Ray that the laboratory uses and Ray does not document: private names, and texts of its errors.

All of it was seen in Ray 2.60.0. For another version, this file is changed, and tests/workers/test_ray_internals.py
says where. It checks two lists as well: the functions that --trace times (trace/stages.toml), and the variables that
Ray's processes get (workers/variables.toml).

Ray is imported by the functions, because the guard of a run, which must start quickly, reads names from here.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

SEEN_VERSION = "2.60.0"

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


def set_channel_bytes(message_bytes: int) -> None:
    """Set the size of the channels that this process writes: Ray looks it up in the writing process."""
    from ray.dag.context import DAGContext

    DAGContext.get_current().buffer_size_bytes = message_bytes


def wait_for_graph(graph: Any) -> None:
    """Wait for the process that Ray starts per compiled graph, which would otherwise start in the first iterations."""
    import ray

    ray.get(graph._proxy_actor.__ray_ready__.remote())


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


def describe_channel(channel: Any) -> str:
    """Return the names of the classes of a channel's parts, or of the channel itself."""
    parts = getattr(channel, "_channels", [channel])
    names = {type(part).__name__ for part in parts}
    return " + ".join(sorted(names))
