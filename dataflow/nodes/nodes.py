"""Know the nodes of a cluster, and measure what they do besides and during a run."""

import time
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dataflow.flows.flow import DRIVER
from dataflow.nodes.agent import Counters, NodeAgent, own_network
from dataflow.nodes.link import measure_link
from dataflow.nodes.placement import check_versions, place_actors
from dataflow.plan.plan import Plan
from dataflow.records.schema import Link, NodeCosts

CLOCK_READINGS = 30


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
        self.worker_nodes = {DRIVER: 0, **place_actors(plan, len(self.ids))}  # as requested
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

    def prepare(self) -> None:
        """Start an agent on each node that has workers, and compare the nodes' versions."""
        if len(self.ids) == 1:
            return
        agent_class = ray.remote(num_cpus=0, max_concurrency=2)(NodeAgent)
        for node in sorted(set(self.worker_nodes.values())):
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
            self.links += measure_link(self.agents, self.addresses[link[1]], link, count, report_progress)

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
