# SPDX-License-Identifier: Apache-2.0
"""Know the nodes of a cluster, place actors on them, and measure what the nodes do besides and during a run."""

import math
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from ipaddress import ip_address
from typing import Any, NamedTuple

import psutil
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from common.cpu_time import read_cpu_seconds
from dataflow.errors import RunFailed, UsageError
from dataflow.flows.flow import DRIVER
from dataflow.plan.plan import Plan, bytes_by_link
from dataflow.records.machine import describe_environment
from dataflow.records.schema import Link, NodeCosts

CLOCK_READINGS = 30
CONNECTIONS = (1, 4)  # of TCP, at the same time, over a link
PASSES = 3  # over a link, after one that does not count
BUFFER_BYTES = 2**20
CONNECT_SECONDS = 20


class ClockReading(NamedTuple):
    """A comparison of a node's clock with the driver's. Readings are ordered by their errors."""

    error: float  # the largest possible error of `ahead`, in seconds
    seconds: float  # the node's clock
    ahead: float  # the seconds by which it was ahead of the driver's


class NodeDescription(NamedTuple):
    listener: tuple[str, int]  # address and port at which the node's agent accepts connections
    interface: str  # of the node's own address; "" if it is not known
    environment: dict[str, Any]  # the machine and its versions


class NodeCounts(NamedTuple):
    """What a node has counted so far."""

    seconds: float  # of its clock
    busy_seconds: float  # of all cores together
    steal_seconds: float
    received_bytes: int | None  # None: its interface is not known


class NodeAgent:
    """Observe a node and time its links, as a Ray actor without a task in the flow."""

    def __init__(self) -> None:
        address, self.interface = own_network()
        self.listener = socket.create_server((address, 0))
        self.listener.settimeout(CONNECT_SECONDS)

    def describe(self) -> NodeDescription:
        listener = self.listener.getsockname()
        return NodeDescription(listener, self.interface, describe_environment())

    def clock(self) -> float:
        return time.perf_counter()

    def begin(self) -> None:
        """Begin to count what the node does."""
        self.before = self._count()

    def end(self) -> NodeCosts:
        """Return what the node has done since `begin`."""
        before = self.before
        now = self._count()
        seconds = now.seconds - before.seconds
        busy_seconds = now.busy_seconds - before.busy_seconds
        steal_seconds = now.steal_seconds - before.steal_seconds
        received_bytes = None
        if now.received_bytes is not None and before.received_bytes is not None:
            received_bytes = now.received_bytes - before.received_bytes
        return NodeCosts(
            received_bytes=received_bytes,
            busy_cores=round(busy_seconds / seconds, 3),
            steal_cores=round(steal_seconds / seconds, 3),
        )

    def _count(self) -> NodeCounts:
        interfaces = psutil.net_io_counters(pernic=True)
        network = interfaces.get(self.interface)
        received_bytes = network.bytes_recv if network else None
        busy_seconds, steal_seconds = read_cpu_seconds()
        return NodeCounts(time.monotonic(), busy_seconds, steal_seconds, received_bytes)

    def receive(self, connections: int) -> None:
        """Read so many connections to their ends, and close them: that tells the sender that all bytes have arrived.

        Raise TimeoutError if one of them does not come within CONNECT_SECONDS.
        """

        def read(_: int) -> None:
            buffer = bytearray(BUFFER_BYTES)
            with self.listener.accept()[0] as connection:
                while connection.recv_into(buffer):
                    pass

        with ThreadPoolExecutor(connections) as threads:
            list(threads.map(read, range(connections)))

    def send(self, address: tuple[str, int], connections: int, total_bytes: int) -> float:
        """Send at least so many bytes, in equal shares over the connections, to `receive` of another node.

        Return the seconds until it has read the last byte. Raise OSError if a connection fails. There is no time limit.
        """
        # Not bytes(n), which the kernel maps to one page of zeros again and again.
        share_bytes = math.ceil(total_bytes / connections)
        share = memoryview(b"\1" * share_bytes)

        def send_share(connection: socket.socket) -> None:
            connection.sendall(share)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)  # it returns when the reader closes, after the last byte

        with ExitStack() as stack, ThreadPoolExecutor(connections) as threads:
            opened = []
            for _ in range(connections):
                connection = socket.create_connection(address)
                opened.append(stack.enter_context(connection))
            start = time.perf_counter()
            list(threads.map(send_share, opened))
            return time.perf_counter() - start


class Nodes:
    """The living nodes of the cluster: the driver's is 0, and the others follow in the order of their addresses."""

    def __init__(self, plan: Plan) -> None:
        own = ray.get_runtime_context().get_node_id()
        self.ids = [own, *find_other_nodes(own)]
        self.address, interface = own_network()
        self.interfaces = {0: interface}
        # Of the nodes with actors, if the cluster has several nodes.
        self.agents: dict[int, Any] = {}
        self.worker_nodes = {DRIVER: 0, **place_actors(plan, len(self.ids))}
        self.clocks: dict[int, list[ClockReading]] = {}  # of each node except the driver's

    def affinity(self, index: int) -> NodeAffinitySchedulingStrategy:
        return NodeAffinitySchedulingStrategy(self.ids[index], soft=False)

    def network_settings(self, index: int) -> dict[str, str]:
        """Return the variables that bind gloo and UCX to the interface of a node's own address."""
        interface = self.interfaces[index]
        if not interface:
            return {}
        return {"GLOO_SOCKET_IFNAME": interface, "UCX_NET_DEVICES": interface}

    def measure(self, plan: Plan, report: Any) -> None:
        """Describe the nodes that have workers; measure their clocks and, one by one, the links that messages cross.

        Do nothing if the cluster has one node; raise RunFailed if the nodes have several versions of torch. The report
        (measure/driver_report.py) gets the links, and the environments of all other nodes: empty ones for those without
        workers. It is written after each pass over a link, so that the monitor sees progress.
        """
        if len(self.ids) == 1:
            return
        agent_class = ray.remote(num_cpus=0, max_concurrency=2)(NodeAgent)
        for node in sorted(set(self.worker_nodes.values())):
            options = agent_class.options(scheduling_strategy=self.affinity(node))
            self.agents[node] = options.remote()
        described = self._call_agents(lambda agent: agent.describe.remote())
        for node, description in described.items():
            self.interfaces[node] = description.interface
        for node in range(1, len(self.ids)):
            environment = described[node].environment if node in described else {}
            report.environments.append(environment)
        require_same_torch(described)
        self.read_clocks()
        links = bytes_by_link(plan.crossings(self.worker_nodes))
        for (source, reader), count in links.items():
            for connections in CONNECTIONS:
                link = Link(source, reader, connections, bytes=max(1, count), seconds=[])
                report.run.links.append(link)
                for number in range(1 + PASSES):
                    seconds = self._time_link(link, described[reader].listener)
                    if number > 0:
                        link.seconds.append(round(seconds, 9))
                    report.write(plan.run_folder)

    def _time_link(self, link: Link, listener: tuple[str, int]) -> float:
        """Return the seconds of one pass over a link."""
        reader = self.agents[link.reader]
        source = self.agents[link.source]
        receiving = reader.receive.remote(link.connections)
        sending = source.send.remote(listener, link.connections, link.bytes)
        seconds, _ = ray.get([sending, receiving])
        return seconds

    def _call_agents(self, begin: Callable[[Any], ray.ObjectRef]) -> dict[int, Any]:
        """Begin a call to each agent, and return the results by node. The calls run at the same time."""
        calls = [begin(agent) for agent in self.agents.values()]
        results = ray.get(calls)
        return dict(zip(self.agents, results, strict=True))

    def read_clocks(self) -> None:
        """Compare the clocks of the other nodes that have workers with the driver's.

        A node's clock is read between two readings of the driver's, so half of their distance is the largest error. Of
        CLOCK_READINGS comparisons, the one with the smallest error is kept, besides those of earlier calls.
        """
        for node in self.agents.keys() - {0}:
            readings = []
            agent = self.agents[node]
            for _ in range(CLOCK_READINGS):
                begin = time.perf_counter()
                seconds = ray.get(agent.clock.remote())
                end = time.perf_counter()
                middle = (begin + end) / 2
                error = (end - begin) / 2
                reading = ClockReading(error=error, seconds=seconds, ahead=seconds - middle)
                readings.append(reading)
            self.clocks.setdefault(node, []).append(min(readings))

    def driver_seconds(self, worker: str, seconds: float) -> float:
        """Return a time of a worker's clock on the driver's clock. Between two readings, it drifts evenly.

        A time of the driver's node, or of a node without readings, stays as it is.
        """
        node = self.worker_nodes.get(worker, 0)
        readings = self.clocks.get(node)
        if not readings:
            return seconds
        first = readings[0]
        last = readings[-1]
        drift = 0.0  # seconds per second of the node's clock
        if last.seconds > first.seconds:
            drift = (last.ahead - first.ahead) / (last.seconds - first.seconds)
        ahead = first.ahead + drift * (seconds - first.seconds)
        return seconds - ahead

    def begin(self) -> None:
        """Begin to count what the nodes do, before the timed iterations."""
        self._call_agents(lambda agent: agent.begin.remote())

    def end(self) -> dict[str, NodeCosts]:
        """Compare the clocks again, and return the costs of the nodes since `begin`."""
        costs = self._call_agents(lambda agent: agent.end.remote())
        self.read_clocks()
        for node, readings in self.clocks.items():
            costs[node].clock_error_seconds = max(readings).error
        return {str(node): cost for node, cost in costs.items()}


def find_other_nodes(own: str) -> list[str]:
    """Return the ids of the cluster's other living nodes, in the order of their addresses."""
    others = []
    for node in ray.nodes():
        if node["Alive"] and node["NodeID"] != own:
            address = ip_address(node["NodeManagerAddress"])
            others.append((address, node["NodeID"]))
    others.sort()
    return [node_id for _, node_id in others]


def require_same_torch(described: Mapping[int, NodeDescription]) -> None:
    """Raise RunFailed if the nodes have several versions of torch; Ray compares its own version and that of Python."""
    found = set()
    for description in described.values():
        versions = description.environment["versions"] or {}
        found.add(str(versions.get("torch")))
    if len(found) > 1:
        names = ", ".join(sorted(found))
        raise RunFailed(f"the nodes have torch {names}: install the same version")


def own_network() -> tuple[str, str]:
    """Return the address of this node in the cluster, and the name of its network interface; "" if none has it."""
    own = ray.util.get_node_ip_address()
    for name, addresses in psutil.net_if_addrs().items():
        for address in addresses:
            if address.address == own:
                return own, name
    return own, ""


def place_actors(plan: Plan, count: int) -> dict[str, int]:
    """Return the node of each actor: that of --placement, or round-robin with the driver's node last.

    With pack, and if --placement does not name an actor, it is 0. Raise UsageError if the cluster has fewer nodes.
    """
    placement = plan.options.placement
    requested = plan.options.nodes_of_actors
    nodes = {}
    for index, name in enumerate(plan.task_flow.actors):
        if placement == "spread":
            nodes[name] = (index + 1) % count
        else:
            nodes[name] = requested.get(name, 0)
    if max(nodes.values(), default=0) >= count:
        raise UsageError(f"--placement {placement}: the cluster has {count} nodes, numbered from 0")
    return nodes
