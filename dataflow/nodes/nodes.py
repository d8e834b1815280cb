"""Know the nodes of a cluster, place actors on them, and measure what the nodes do besides and during a run."""

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from ipaddress import ip_address
from typing import Any

import psutil
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dataflow.errors import RunFailed, UsageError
from dataflow.flows.flow import DRIVER
from dataflow.plan.plan import Plan, bytes_by_link
from dataflow.records.machine import describe_environment, read_cpu_seconds
from dataflow.records.schema import Link, NodeCosts

CLOCK_READINGS = 30
CONNECTIONS = (1, 4)  # of TCP, at the same time, over a link
PASSES = 3  # over a link, after one that does not count
BUFFER_BYTES = 2**20
CONNECT_SECONDS = 20


class NodeAgent:
    """Observe a node and time its links, as a Ray actor without a task in the flow."""

    def __init__(self) -> None:
        self.address, self.interface = own_network()
        self.listener = socket.create_server((self.address, 0))
        self.listener.settimeout(CONNECT_SECONDS)

    def describe(self) -> tuple[tuple[str, int], str, dict[str, Any]]:
        return self.listener.getsockname(), self.interface, describe_environment()

    def clock(self) -> float:
        return time.perf_counter()

    def begin(self) -> None:
        """Begin to count what the node does."""
        self.before = self._count()

    def end(self) -> NodeCosts:
        """Return what the node has done since `begin`."""
        seconds, busy, stolen, *moved = [
            now - then for now, then in zip(self._count(), self.before, strict=True)
        ]
        return NodeCosts(received_bytes=int(moved[0]) if moved else None, busy_cores=round(busy / seconds, 3),
                         steal_cores=round(stolen / seconds, 3))  # fmt: skip

    def _count(self) -> list[float]:
        """Return the time, the busy and stolen seconds of all cores, and the bytes of the interface if it is known."""
        network = psutil.net_io_counters(pernic=True).get(self.interface)
        return [time.monotonic(), *read_cpu_seconds(), *([network.bytes_recv] if network else [])]

    def receive(self, connections: int) -> None:
        """Read so many connections to their ends, and close them: that tells the sender that all bytes have arrived."""

        def read(_: int) -> None:
            buffer = bytearray(BUFFER_BYTES)
            with self.listener.accept()[0] as connection:
                while connection.recv_into(buffer):
                    pass

        with ThreadPoolExecutor(connections) as threads:
            list(threads.map(read, range(connections)))

    def send(self, address: tuple[str, int], connections: int, count: int) -> float:
        """Send `count` bytes over so many connections, and return the seconds until the last byte was read."""
        # Not bytes(n), which the kernel maps to one page of zeros again and again.
        share = memoryview(b"\1" * -(-count // connections))

        def send_share(connection: socket.socket) -> None:
            connection.sendall(share)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)

        with ExitStack() as stack, ThreadPoolExecutor(connections) as threads:
            opened = [
                stack.enter_context(socket.create_connection(address)) for _ in range(connections)
            ]
            start = time.perf_counter()
            list(threads.map(send_share, opened))
            return time.perf_counter() - start


class Nodes:
    """The living nodes of the cluster: the driver's is 0, and the others follow in the order of their addresses."""

    def __init__(self, plan: Plan) -> None:
        own = ray.get_runtime_context().get_node_id()
        living = [
            (ip_address(node["NodeManagerAddress"]), node["NodeID"])
            for node in ray.nodes()
            if node["Alive"]
        ]
        self.ids = [own, *(node for _, node in sorted(living) if node != own)]
        self.address, interface = own_network()
        self.interfaces = {0: interface}
        self.agents: dict[
            int, Any
        ] = {}  # of the nodes with actors, if the cluster has several nodes
        self.worker_nodes = {DRIVER: 0, **place_actors(plan, len(self.ids))}
        # Readings of the clock of each node except the driver's: the largest possible error, the time, and the seconds
        # by which it was ahead of the driver's clock.
        self.clocks: dict[int, list[tuple[float, float, float]]] = {}

    def affinity(self, index: int) -> NodeAffinitySchedulingStrategy:
        return NodeAffinitySchedulingStrategy(self.ids[index], soft=False)

    def network_settings(self, index: int) -> dict[str, str]:
        """Return the variables that bind gloo and UCX to the interface of a node's own address."""
        interface = self.interfaces[index]
        return (
            dict.fromkeys(("GLOO_SOCKET_IFNAME", "UCX_NET_DEVICES"), interface) if interface else {}
        )

    def measure(self, plan: Plan, report: Any) -> None:
        """Describe the nodes that have workers; measure their clocks and, one by one, the links that messages cross.

        The report (measure/monitor.py) gets the environments and links, and is written after each pass over a link, so
        that the monitor sees progress.
        """
        if len(self.ids) == 1:
            return
        agent_class = ray.remote(num_cpus=0, max_concurrency=2)(NodeAgent)
        for node in sorted(set(self.worker_nodes.values())):
            self.agents[node] = agent_class.options(
                scheduling_strategy=self.affinity(node)
            ).remote()
        described = self._call_agents(NodeAgent.describe)
        self.interfaces |= {node: interface for node, (_, interface, _) in described.items()}
        report.environments += [
            described[node][2] if node in described else {} for node in range(1, len(self.ids))
        ]
        # Ray compares the versions of Ray and Python when a node joins.
        torch_versions = {
            str((environment["versions"] or {}).get("torch"))
            for _, _, environment in described.values()
        }
        if len(torch_versions) > 1:
            raise RunFailed(
                f"the nodes have torch {', '.join(sorted(torch_versions))}: install the same version"
            )
        self.read_clocks()
        for (source, reader), count in bytes_by_link(plan.crossings(self.worker_nodes)).items():
            for connections in CONNECTIONS:
                link = Link(source, reader, connections, max(1, count), [])
                report.run.links.append(link)
                for number in range(1 + PASSES):
                    receiving = self.agents[reader].receive.remote(connections)
                    sending = self.agents[source].send.remote(
                        described[reader][0], connections, link.bytes
                    )
                    seconds, _ = ray.get([sending, receiving])
                    if number > 0:
                        link.seconds.append(round(seconds, 9))
                    report.write(plan.run_folder)

    def _call_agents(self, function: Callable[[NodeAgent], Any]) -> dict[int, Any]:
        """Call a function with each agent, on the agent's node; return the results by node."""
        results = ray.get([agent.__ray_call__.remote(function) for agent in self.agents.values()])
        return dict(zip(self.agents, results, strict=True))

    def read_clocks(self) -> None:
        """Compare the clocks of the other nodes with the driver's.

        A node's clock is read between two readings of the driver's, so half of their distance is the largest error.
        """
        for node in self.agents.keys() - {0}:
            readings = []
            for _ in range(CLOCK_READINGS):
                begin = time.perf_counter()
                remote = ray.get(self.agents[node].clock.remote())
                end = time.perf_counter()
                readings.append(((end - begin) / 2, remote, remote - (begin + end) / 2))
            self.clocks.setdefault(node, []).append(min(readings))

    def driver_seconds(self, worker: str, seconds: float) -> float:
        """Return a time of a worker's clock on the driver's clock. Between two readings, it drifts evenly."""
        readings = self.clocks.get(self.worker_nodes.get(worker, 0))
        if not readings:
            return seconds
        (_, begin, first_offset), (_, end, last_offset) = readings[0], readings[-1]
        return (
            seconds
            - first_offset
            - (seconds - begin) / ((end - begin) or 1.0) * (last_offset - first_offset)
        )

    def begin(self) -> None:
        """Begin to count what the nodes do, before the timed iterations."""
        self._call_agents(NodeAgent.begin)

    def end(self) -> dict[str, NodeCosts]:
        """Compare the clocks again, and return the costs of the nodes since `begin`."""
        costs = self._call_agents(NodeAgent.end)
        self.read_clocks()
        for node, readings in self.clocks.items():
            costs[node].clock_error_seconds = max(readings)[0]
        return {str(node): cost for node, cost in costs.items()}


def own_network() -> tuple[str, str]:
    """Return the address of this node in the cluster, and the name of its network interface; "" if none has it."""
    address = ray.util.get_node_ip_address()
    interfaces = psutil.net_if_addrs().items()
    return address, next(
        (name for name, entries in interfaces if address in [e.address for e in entries]), ""
    )


def place_actors(plan: Plan, count: int) -> dict[str, int]:
    """Return the node of each actor: that of --placement, or round-robin with the driver's node last."""
    names, nodes = plan.worker_names[1:], plan.options.nodes_of_actors
    if plan.options.placement == "spread":
        nodes = {name: (index + 1) % count for index, name in enumerate(names)}
    if max(nodes.values(), default=0) >= count:
        raise UsageError(
            f"--placement {plan.options.placement}: the cluster has {count} nodes, numbered from 0"
        )
    return {name: nodes.get(name, 0) for name in names}
