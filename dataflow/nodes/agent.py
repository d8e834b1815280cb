"""Define the agent of a node, a Ray actor without a task in the flow, which observes the node."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import psutil
import ray

from dataflow.nodes.link import LinkEnd
from dataflow.plan.plan import Plan
from dataflow.records.machine import describe_environment, read_cpu_seconds


class Counters(NamedTuple):
    """What a node has counted since it started."""

    clock: float
    received_bytes: int | None  # None: the interface is not known
    sent_bytes: int | None
    busy_seconds: float
    steal_seconds: float


class NodeAgent(LinkEnd):
    def __init__(self) -> None:
        self.address, self.interface = own_network()

    def describe(self) -> tuple[str, str, dict[str, Any]]:
        return self.address, self.interface, describe_environment()

    def clock(self) -> float:
        return time.perf_counter()

    def counters(self) -> Counters:
        network = psutil.net_io_counters(pernic=True).get(self.interface)
        received, sent = (network.bytes_recv, network.bytes_sent) if network else (None, None)
        return Counters(time.monotonic(), received, sent, *read_cpu_seconds())

    def call(self, function: Callable[[Plan], Any], plan: Plan) -> Any:
        return function(plan)


def own_network() -> tuple[str, str]:
    """Return the address of this node in the cluster, and the name of its network interface; "" if none has it."""
    address = ray.util.get_node_ip_address()
    interfaces = psutil.net_if_addrs().items()
    names = [name for name, entries in interfaces if any(entry.address == address for entry in entries)]
    return address, names[0] if names else ""
