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

from dataflow.errors import RunFailed
from dataflow.plan.plan import Plan
from dataflow.records.machine import describe_environment
from dataflow.records.schema import Link, NodeCosts

LINK_CONNECTIONS = (1, 4)  # of TCP, at the same time
LINK_PASSES = 3  # after one that does not count
CLOCK_READINGS = 30
BUFFER_BYTES = 2**20
CONNECT_SECONDS = 20
PROGRESS_SECONDS = 10  # between two reports of what a link has carried


class Counters(NamedTuple):
    """What a node has counted since it started."""

    clock: float
    received_bytes: int | None  # None: the interface is not known
    sent_bytes: int | None
    busy_seconds: float
    steal_seconds: float


class ClockReading(NamedTuple):
    """A comparison of a node's clock with the driver's."""

    node_seconds: float  # the node's clock
    offset: float  # seconds by which it was ahead of the driver's
    error: float  # the largest possible error of the offset


class NodeAgent:
    """A Ray actor without a task in the flow."""

    def __init__(self) -> None:
        self.address, self.interface = own_network()
        self.received_bytes = 0  # by `receive`

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
                while count := connection.recv_into(buffer):
                    self.received_bytes += count

        self.listener.settimeout(CONNECT_SECONDS)
        with self.listener, ThreadPoolExecutor(connections) as threads:
            [*threads.map(read, [self.listener.accept()[0] for _ in range(connections)])]

    def count_received(self) -> int:
        return self.received_bytes

    def send(self, address: str, port: int, connections: int, count: int) -> float:
        """Send `count` bytes over so many connections, and return the seconds until the last byte was read."""
        # Not bytes(n), which the kernel maps to one page of zeros again and again.
        share = memoryview(b"\1" * -(-count // connections))

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
        self.addresses, self.interfaces = dict[int, str](), dict[int, str]()
        self.addresses[0], self.interfaces[0] = own_network()
        self.agents: dict[int, Any] = {}  # of the nodes with actors, if the cluster has several nodes
        self.environments: list[dict[str, Any]] = [{} for _ in self.ids]
        self.worker_nodes: dict[str, int] = {}
        self.clocks: dict[int, list[ClockReading]] = {}  # the driver's node has the driver's clock
        self.costs: dict[str, NodeCosts] = {}
        self.before: list[Counters] = []
        self.links: list[Link] = []

    def affinity(self, index: int) -> NodeAffinitySchedulingStrategy:
        return NodeAffinitySchedulingStrategy(self.ids[index], soft=False)

    def network_settings(self, index: int) -> dict[str, str]:
        """Return the variables that bind gloo and UCX to the interface of a node's own address."""
        interface = self.interfaces[index]
        return dict.fromkeys(("GLOO_SOCKET_IFNAME", "UCX_NET_DEVICES"), interface) if interface else {}

    def prepare(self, worker_nodes: dict[str, int]) -> None:
        """Start an agent on each node that has workers, and compare the nodes' versions."""
        self.worker_nodes = worker_nodes
        if len(self.ids) == 1:
            return
        agent_class = ray.remote(num_cpus=0, max_concurrency=2)(NodeAgent)
        for node in sorted(set(worker_nodes.values())):
            self.agents[node] = agent_class.options(scheduling_strategy=self.affinity(node)).remote()
        described = ray.get([agent.describe.remote() for agent in self.agents.values()])
        for node, description in zip(self.agents, described, strict=True):
            self.addresses[node], self.interfaces[node], self.environments[node] = description
        check_versions(self.environments)

    def measure(
        self, plan: Plan, copy_seconds: Callable[[Plan], list[float]], report_progress: Callable[[int], Any]
    ) -> None:
        """Measure copies of all nodes with workers at once, their clocks, and one by one the links that messages cross.

        report_progress: it is called with the bytes that the current link has carried so far.
        """
        copies = ray.get([agent.call.remote(copy_seconds, plan) for agent in self.agents.values()])
        self.costs = {str(node): NodeCosts(memcpy_seconds=c) for node, c in zip(self.agents, copies, strict=True)}
        self.read_clocks()
        crossings = plan.crossings(self.worker_nodes)
        for link, total in crossings.bytes_by_link(range(1, 1 + crossings.period)).items():
            count = max(1, round(total / crossings.period))
            for connections in LINK_CONNECTIONS:
                passes = [self._time_link(*link, connections, count, report_progress) for _ in range(1 + LINK_PASSES)]
                self.links.append(Link(*link, connections, count, passes[1:]))

    def _time_link(
        self, source: int, reader: int, connections: int, count: int, report_progress: Callable[[int], Any]
    ) -> float:
        agent = self.agents[reader]
        port = ray.get(agent.listen.remote())
        receiving = agent.receive.remote(connections)
        sending = self.agents[source].send.remote(self.addresses[reader], port, connections, count)
        while not ray.wait([sending], timeout=PROGRESS_SECONDS)[0]:
            report_progress(ray.get(agent.count_received.remote()))
        ray.get(receiving)
        return round(ray.get(sending), 9)

    def read_clocks(self) -> None:
        """Compare the clocks of the other nodes with the driver's, and set the costs of the nodes."""
        for node, agent in self.agents.items():
            if node != 0:
                readings, cost = self.clocks.setdefault(node, []), self.costs[str(node)]
                readings.append(read_clock(agent))
                cost.clock_offset_seconds = readings[0].offset
                cost.clock_drift_seconds = readings[-1].offset - readings[0].offset
                cost.clock_error_seconds = max(reading.error for reading in readings)

    def driver_seconds(self, worker: str, seconds: float) -> float:
        """Return a time of a worker's clock on the driver's clock. Between two readings, it drifts evenly."""
        readings = self.clocks.get(self.worker_nodes.get(worker, 0))
        if not readings:
            return seconds
        first, last = readings[0], readings[-1]
        share = (seconds - first.node_seconds) / ((last.node_seconds - first.node_seconds) or 1.0)
        return seconds - first.offset - share * (last.offset - first.offset)

    def check(self, requested: dict[str, int], actual: dict[str, int]) -> None:
        """Raise RunFailed if a worker runs on another node than requested."""
        for name, node in requested.items():
            if actual[name] != node:
                raise RunFailed(f"{name} runs on node {actual[name]}, and node {node} was requested: try again")

    def begin(self) -> None:
        """Read the counters before the timed iterations."""
        self.before = ray.get([agent.counters.remote() for agent in self.agents.values()])

    def end(self) -> dict[str, NodeCosts]:
        """Read counters and clocks again, and return the costs of the nodes since `begin`."""
        after = ray.get([agent.counters.remote() for agent in self.agents.values()])
        self.read_clocks()
        for cost, then, now in zip(self.costs.values(), self.before, after, strict=True):
            seconds = now.clock - then.clock
            if now.received_bytes is not None:
                cost.received_bytes = now.received_bytes - then.received_bytes
                cost.sent_bytes = now.sent_bytes - then.sent_bytes
            cost.busy_cores = round((now.busy_seconds - then.busy_seconds) / seconds, 3)
            cost.steal_cores = round((now.steal_seconds - then.steal_seconds) / seconds, 3)
        return self.costs


def read_clock(agent: Any) -> ClockReading:
    """Compare a node's clock with the driver's.

    The node's clock was read between two readings of the driver's, so half of their distance is the largest error.
    """
    readings = []
    for _ in range(CLOCK_READINGS):
        begin = time.perf_counter()
        remote = ray.get(agent.clock.remote())
        end = time.perf_counter()
        readings.append(ClockReading(remote, remote - (begin + end) / 2, (end - begin) / 2))
    return min(readings, key=lambda reading: reading.error)


def check_versions(environments: Sequence[dict[str, Any]]) -> None:
    """Raise RunFailed if a known node has other versions of Python, Ray or torch than the driver's node."""
    versions = [{"python": known.get("python"), **known.get("versions", {})} for known in environments]
    for index, there in enumerate(versions):
        for name in ("python", "ray", "torch"):
            if environments[index] and there.get(name) != versions[0].get(name):
                raise RunFailed(f"node {index} has {name} {there.get(name)}, and the driver's node has "
                                f"{versions[0].get(name)}: install the same version")  # fmt: skip
