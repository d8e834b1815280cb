"""Observe the nodes of a cluster: an agent per node describes its node, and sends bytes to the others without Ray."""

import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from ipaddress import ip_address
from typing import Any, NamedTuple

import psutil
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from common.errors import RunFailed
from common.plan.plan import Plan
from common.records.environment import describe_environment
from common.records.schema import Link, NodeCosts

LINK_CONNECTIONS = (1, 4)  # of TCP, at the same time
LINK_PASSES = 3  # after one that does not count
CLOCK_READINGS = 30
BUFFER_BYTES = 2**20
CONNECT_SECONDS = 20


class Counters(NamedTuple):
    """What a node has counted since it started."""

    clock: float
    received_bytes: int | None  # None: the interface is not known
    sent_bytes: int | None
    busy_seconds: float
    steal_seconds: float


class NodeAgent:
    """A Ray actor without a task in the flow."""

    def __init__(self) -> None:
        self.address, self.interface = own_network()

    def describe(self) -> tuple[str, str, dict[str, Any]]:
        return self.address, self.interface, describe_environment()

    def clock(self) -> float:
        return time.perf_counter()

    def counters(self) -> Counters:
        cpu = psutil.cpu_times()
        network = psutil.net_io_counters(pernic=True).get(self.interface)
        received, sent = (network.bytes_recv, network.bytes_sent) if network else (None, None)
        busy = cpu.user + cpu.nice + cpu.system + cpu.irq + cpu.softirq
        return Counters(time.monotonic(), received, sent, busy, cpu.steal)

    def call(self, function: Callable[[Plan], Any], plan: Plan) -> Any:
        return function(plan)

    def listen(self) -> int:
        self.listener = socket.create_server((self.address, 0))
        return self.listener.getsockname()[1]

    def receive(self, connections: int) -> None:
        """Read so many connections to their ends, and close them: that tells the sender that all bytes have arrived."""

        def read(connection: socket.socket) -> None:
            buffer = bytearray(BUFFER_BYTES)
            with connection:
                while connection.recv_into(buffer):
                    pass

        self.listener.settimeout(CONNECT_SECONDS)
        with self.listener, ThreadPoolExecutor(connections) as threads:
            [*threads.map(read, [self.listener.accept()[0] for _ in range(connections)])]

    def send(self, address: str, port: int, connections: int, count: int) -> float:
        """Send `count` bytes over so many connections, and return the seconds until the last byte was read."""
        share = memoryview(bytes(-(-count // connections)))

        def send_share(connection: socket.socket) -> None:
            connection.sendall(share)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)

        with ExitStack() as stack, ThreadPoolExecutor(connections) as threads:
            opened = [stack.enter_context(socket.create_connection((address, port))) for _ in range(connections)]
            start = time.perf_counter()
            [*threads.map(send_share, opened)]
            return time.perf_counter() - start


def own_network() -> tuple[str, str]:
    """Return the address of this node in the cluster, and the name of its network interface; "" if none has it."""
    address = ray.util.get_node_ip_address()
    interfaces = psutil.net_if_addrs().items()
    names = [name for name, entries in interfaces if any(entry.address == address for entry in entries)]
    return address, names[0] if names else ""


class Nodes:
    """The living nodes of the cluster: the driver's is 0, and the others follow in the order of their addresses."""

    def __init__(self) -> None:
        own = ray.get_runtime_context().get_node_id()
        living = [(ip_address(node["NodeManagerAddress"]), node["NodeID"]) for node in ray.nodes() if node["Alive"]]
        self.ids = [own, *(node for _, node in sorted(living) if node != own)]
        self.agents: list[Any] = []
        described: list[tuple[str, str, dict[str, Any]]] = [(*own_network(), {})]
        if len(self.ids) > 1:
            agent_class = ray.remote(num_cpus=0)(NodeAgent)
            strategies = map(self.affinity, range(len(self.ids)))
            self.agents = [agent_class.options(scheduling_strategy=strategy).remote() for strategy in strategies]
            described = ray.get([agent.describe.remote() for agent in self.agents])
        self.addresses = [address for address, _, _ in described]
        self.interfaces = [interface for _, interface, _ in described]
        self.environments = [environment for _, _, environment in described]
        check_versions(self.environments)
        self.costs: dict[str, NodeCosts] = {}
        self.before: list[Counters] = []
        self.links: list[Link] = []
        self.clock_offsets: dict[str, float] = {}  # worker -> seconds by which its clock is ahead of the driver's

    def affinity(self, index: int) -> NodeAffinitySchedulingStrategy:
        return NodeAffinitySchedulingStrategy(self.ids[index], soft=False)

    def network_settings(self, index: int) -> dict[str, str]:
        """Return the variables that bind gloo and UCX to the interface of a node's own address."""
        interface = self.interfaces[index]
        return dict.fromkeys(("GLOO_SOCKET_IFNAME", "UCX_NET_DEVICES"), interface) if interface else {}

    def measure(self, plan: Plan, worker_nodes: dict[str, int], copy_seconds: Callable[[Plan], list[float]]) -> None:
        """Measure clocks and copies of all nodes, and the links that edges of the flow cross."""
        for index, agent in enumerate(self.agents):
            offset, error = clock_offset(agent)
            copies = ray.get(agent.call.remote(copy_seconds, plan))
            self.costs[str(index)] = NodeCosts(clock_offset_seconds=offset, clock_error_seconds=error,
                                               memcpy_seconds=copies)  # fmt: skip
        if self.agents:
            self.clock_offsets = {name: self.costs[str(node)].clock_offset_seconds
                                  for name, node in worker_nodes.items()}  # fmt: skip
        crossings = plan.crossings(worker_nodes)
        for (source, reader), total in crossings.bytes_by_link(range(1, 1 + crossings.period)).items():
            count = round(total / crossings.period)
            for connections in LINK_CONNECTIONS:
                self.links.append(
                    Link(source, reader, connections, count, self._time_link(source, reader, connections, count))
                )

    def _time_link(self, source: int, reader: int, connections: int, count: int) -> list[float]:
        seconds = []
        for _ in range(1 + LINK_PASSES):
            port = ray.get(self.agents[reader].listen.remote())
            receiving = self.agents[reader].receive.remote(connections)
            arguments = (self.addresses[reader], port, connections, count)
            seconds.append(round(ray.get(self.agents[source].send.remote(*arguments)), 9))
            ray.get(receiving)
        return seconds[1:]

    def check(self, requested: dict[str, int], actual: dict[str, int]) -> None:
        """Raise RunFailed if a worker runs on another node than requested."""
        for name, node in requested.items():
            if actual[name] != node:
                raise RunFailed(f"{name} runs on node {actual[name]}, and node {node} was requested: try again")

    def begin(self) -> None:
        """Read the counters before the timed iterations."""
        self.before = ray.get([agent.counters.remote() for agent in self.agents])

    def end(self) -> dict[str, NodeCosts]:
        """Return the costs of the nodes, with what they have counted since `begin`."""
        after = ray.get([agent.counters.remote() for agent in self.agents])
        for cost, then, now in zip(self.costs.values(), self.before, after, strict=True):
            seconds = now.clock - then.clock
            if now.received_bytes is not None:
                cost.received_bytes = now.received_bytes - then.received_bytes
                cost.sent_bytes = now.sent_bytes - then.sent_bytes
            cost.busy_cores = round((now.busy_seconds - then.busy_seconds) / seconds, 3)
            cost.steal_cores = round((now.steal_seconds - then.steal_seconds) / seconds, 3)
        return self.costs


def clock_offset(agent: Any) -> tuple[float, float]:
    """Return how far the node's clock is ahead of the driver's, and the largest error, in seconds.

    The node's clock was read between two readings of the driver's, so half of their distance is the largest error.
    """
    readings = []
    for _ in range(CLOCK_READINGS):
        begin = time.perf_counter()
        remote = ray.get(agent.clock.remote())
        end = time.perf_counter()
        readings.append(((end - begin) / 2, remote - (begin + end) / 2))
    error, offset = min(readings)
    return offset, error


def check_versions(environments: Sequence[dict[str, Any]]) -> None:
    """Raise RunFailed if the nodes have other versions of Python, Ray or torch than the driver's node."""
    versions = [
        {"python": environment.get("python"), **environment.get("versions", {})} for environment in environments
    ]
    for index, there in enumerate(versions):
        for name in ("python", "ray", "torch"):
            if there.get(name) != versions[0].get(name):
                raise RunFailed(f"node {index} has {name} {there.get(name)}, and the driver's node has "
                                f"{versions[0].get(name)}: install the same version")  # fmt: skip
