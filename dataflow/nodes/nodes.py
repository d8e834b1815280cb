"""Know the nodes of a cluster, place actors on them, and measure what the nodes do besides and during a run."""

import time
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dataflow.errors import RunFailed, UsageError
from dataflow.flows.flow import DRIVER
from dataflow.nodes.agent import NodeAgent, own_network
from dataflow.plan.plan import Plan
from dataflow.records.schema import Link, NodeCosts

CLOCK_READINGS = 30
CONNECTIONS = (1, 4)  # of TCP, at the same time, over a link
PASSES = 3  # over a link, after one that does not count


class ClockReading(NamedTuple):
    """A comparison of a node's clock with the driver's."""

    node_seconds: float  # the node's clock
    offset: float  # seconds by which it was ahead of the driver's
    error: float  # the largest possible error of the offset


class Nodes:
    """The living nodes of the cluster: the driver's is 0, and the others follow in the order of their addresses."""

    def __init__(self, plan: Plan) -> None:
        own = ray.get_runtime_context().get_node_id()
        living = [(ip_address(node["NodeManagerAddress"]), node["NodeID"]) for node in ray.nodes() if node["Alive"]]
        self.ids = [own, *(node for _, node in sorted(living) if node != own)]
        self.addresses, self.interfaces = dict[int, str](), dict[int, str]()
        self.addresses[0], self.interfaces[0] = own_network()
        self.agents: dict[int, Any] = {}  # of the nodes with actors, if the cluster has several nodes
        self.environments: list[dict[str, Any]] = [{} for _ in self.ids]
        self.worker_nodes = {DRIVER: 0, **place_actors(plan, len(self.ids))}
        self.clocks: dict[int, list[ClockReading]] = {}  # the driver's node has the driver's clock
        self.copies: list[list[float]] = []  # per agent: memcpy seconds
        self.links: list[Link] = []

    def affinity(self, index: int) -> NodeAffinitySchedulingStrategy:
        return NodeAffinitySchedulingStrategy(self.ids[index], soft=False)

    def network_settings(self, index: int) -> dict[str, str]:
        """Return the variables that bind gloo and UCX to the interface of a node's own address."""
        interface = self.interfaces[index]
        return dict.fromkeys(("GLOO_SOCKET_IFNAME", "UCX_NET_DEVICES"), interface) if interface else {}

    def prepare(self) -> None:
        """Start an agent on each node that has workers, and compare their versions of torch."""
        if len(self.ids) == 1:
            return
        agent_class = ray.remote(num_cpus=0, max_concurrency=2)(NodeAgent)
        for node in sorted(set(self.worker_nodes.values())):
            self.agents[node] = agent_class.options(scheduling_strategy=self.affinity(node)).remote()
        described = ray.get([agent.describe.remote() for agent in self.agents.values()])
        for node, description in zip(self.agents, described, strict=True):
            self.addresses[node], self.interfaces[node], self.environments[node] = description
        # Ray compares the versions of Ray and Python when a node joins.
        torch_versions = {str((environment["versions"] or {}).get("torch")) for _, _, environment in described}
        if len(torch_versions) > 1:
            raise RunFailed(f"the nodes have torch {', '.join(sorted(torch_versions))}: install the same version")

    def measure(self, plan: Plan, copy_seconds: Callable[[Plan], list[float]], save: Callable[[], Any]) -> None:
        """Measure copies of all nodes with workers at once, their clocks, and one by one the links that messages cross.

        save: it is called after each pass over a link, so that the monitor sees progress.
        """
        self.copies = ray.get([a.__ray_call__.remote(lambda _: copy_seconds(plan)) for a in self.agents.values()])
        self.read_clocks()
        for (source, reader), count in plan.crossings(self.worker_nodes).bytes_by_link.items():
            for connections in CONNECTIONS:
                link = Link(source, reader, connections, max(1, count), [])
                self.links.append(link)
                for number in range(1 + PASSES):
                    seconds = self.send(link)
                    if number > 0:
                        link.seconds.append(seconds)
                    save()

    def send(self, link: Link) -> float:
        """Send the bytes of a link once, and return the seconds until they were read."""
        sender, reader = self.agents[link.source], self.agents[link.reader]
        port = ray.get(reader.listen.remote())
        receiving = reader.receive.remote(link.connections)
        seconds = ray.get(sender.send.remote(self.addresses[link.reader], port, link.connections, link.bytes))
        ray.get(receiving)
        return round(seconds, 9)

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
                readings.append(ClockReading(remote, remote - (begin + end) / 2, (end - begin) / 2))
            self.clocks.setdefault(node, []).append(min(readings, key=lambda reading: reading.error))

    def driver_seconds(self, worker: str, seconds: float) -> float:
        """Return a time of a worker's clock on the driver's clock. Between two readings, it drifts evenly."""
        readings = self.clocks.get(self.worker_nodes.get(worker, 0))
        if not readings:
            return seconds
        first, last = readings[0], readings[-1]
        share = (seconds - first.node_seconds) / ((last.node_seconds - first.node_seconds) or 1.0)
        return seconds - first.offset - share * (last.offset - first.offset)

    def begin(self) -> None:
        """Begin to count what the nodes do, before the timed iterations."""
        ray.get([agent.begin.remote() for agent in self.agents.values()])

    def end(self) -> dict[str, NodeCosts]:
        """Compare the clocks again, and return the costs of the nodes since `begin`."""
        costs = dict(zip(self.agents, ray.get([agent.end.remote() for agent in self.agents.values()]), strict=True))
        self.read_clocks()
        for cost, copies in zip(costs.values(), self.copies, strict=True):
            cost.memcpy_seconds = copies
        for node, readings in self.clocks.items():
            costs[node].clock_offset_seconds = readings[0].offset
            costs[node].clock_error_seconds = max(reading.error for reading in readings)
        return {str(node): cost for node, cost in costs.items()}


def place_actors(plan: Plan, count: int) -> dict[str, int]:
    """Return the node of each actor: that of --placement, or round-robin with the driver's node last."""
    names = plan.worker_names[1:]
    if plan.options.placement == "pack":
        return dict.fromkeys(names, 0)
    nodes = plan.options.nodes_of_actors
    if not nodes:
        return {name: (index + 1) % count for index, name in enumerate(names)}
    if max(nodes.values()) >= count:
        raise UsageError(f"--placement {plan.options.placement}: the cluster has {count} nodes, numbered from 0")
    return {name: nodes.get(name, 0) for name in names}
