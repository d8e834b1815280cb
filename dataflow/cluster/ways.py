# SPDX-License-Identifier: Apache-2.0
"""Say how a message travels in each way, as jobs that use cores, memory and links.

Through the driver, and as references, a message is written into Ray's object store of its sender's node, travels over
the links to the nodes of its readers, and is read there, one after the other. With Ray Direct Transport and collectives
(gloo over TCP here), sender, link and reader work on a message at the same time.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import NamedTuple

from dataflow.catalogue.catalogue import INLINED_BYTES
from dataflow.cluster.hardware import Cluster, NodeMachine
from dataflow.cluster.simulation import Job, Kind, Outcome, Resource, simulate
from dataflow.flows.flow import DRIVER, Edge, Flow, Task

Uses = dict[Resource, float]  # amounts
Positions = list[int]  # of jobs
Places = dict[str, int]  # process -> node


class Path(StrEnum):
    """How messages travel."""

    DRIVER = "through the driver"
    REFERENCES = "references"
    STREAM = "direct"


@dataclass(frozen=True)
class Work:
    """What a byte of a message costs where it is sent or read."""

    core_seconds: float
    memory_bytes: float  # that are copied


@dataclass(frozen=True)
class ByteCosts:
    """What a byte of a message costs on the way, on one kind of machine."""

    send: Work
    read: Work
    link: Work  # of each of the two nodes that it crosses between

    @classmethod
    def equal(cls, seconds: float) -> "ByteCosts":
        """Return costs with which sending and reading a byte take the same time, and nothing else takes any."""
        work = Work(seconds, 0.0)
        return cls(work, work, Work(0.0, 0.0))


class Arrival(NamedTuple):
    """A message in the store of a node."""

    source: str  # the task, or the edge on which the driver has sent it again
    node: int


class Planner:
    """Makes the jobs of one iteration of a flow on a cluster.

    Small messages travel in Ray's calls, and their bytes take no time. What a call takes is not counted.
    """

    def __init__(self, flow: Flow, places: Places, cluster: Cluster, costs: ByteCosts) -> None:
        self.flow = flow
        self.places = places
        self.cluster = cluster
        self.costs = costs
        self.jobs: list[Job] = []
        # Task -> the jobs after which its message can be sent, and those after which its actor does the next task.
        self.done: dict[str, Positions] = {DRIVER: []}
        self.ended: dict[str, Positions] = defaultdict(list)
        self.arrivals: dict[Arrival, Positions] = {}

    def add(self, uses: Uses, after: Positions) -> Positions:
        """Add a job that begins after others, and return its position."""
        position = len(self.jobs)
        self.jobs.append(Job(uses, after))
        return [position]

    def work_on(self, process: str, size: int, work: Work) -> Uses:
        """Return what a process uses that sends or reads so many bytes."""
        node = self.places[process]
        owner = self.cluster.owner(node)
        seconds = size * work.core_seconds
        return {
            Resource(Kind.CORE, process): seconds,
            Resource(Kind.CORES, owner): seconds,
            Resource(Kind.MEMORY, owner): size * work.memory_bytes,
        }

    def cross(self, sender: int, reader: int, size: int) -> Uses:
        """Return what a message uses of the links and the switch between two nodes."""
        uses: Uses = {
            Resource(Kind.SENDS, sender): size,
            Resource(Kind.RECEIVES, reader): size,
        }
        if self.cluster.switch_rate is not None:
            uses[Resource(Kind.SWITCH, 0)] = size
        return uses

    def work_of_kernel(self, node: int, size: int) -> Uses:
        """Return what a node uses for a message of the store that leaves it or comes in."""
        owner = self.cluster.owner(node)
        work = self.costs.link
        return {
            Resource(Kind.CORES, owner): size * work.core_seconds,
            Resource(Kind.MEMORY, owner): size * work.memory_bytes,
        }

    def put(self, process: str, source: str, size: int, after: Positions) -> None:
        """Let a process write a message into the store of its node."""
        uses = self.work_on(process, size, self.costs.send)
        jobs = self.add(uses, after)
        node = self.places[process]
        self.arrivals[Arrival(source, node)] = jobs
        self.ended[source] = jobs

    def bring(self, sender: str, reader: str, source: str, size: int) -> Positions:
        """Return the jobs after which a message of a sender is in the store of a reader's node. It crosses once."""
        begin = Arrival(source, self.places[sender])
        end = Arrival(source, self.places[reader])
        if end not in self.arrivals:
            uses = self.cross(begin.node, end.node, size)
            add_uses(uses, self.work_of_kernel(begin.node, size))
            add_uses(uses, self.work_of_kernel(end.node, size))
            before = self.arrivals[begin]
            self.arrivals[end] = self.add(uses, before)
        return self.arrivals[end]

    def get(self, process: str, size: int, after: Positions) -> Positions:
        """Let a process read a message from the store of its node."""
        uses = self.work_on(process, size, self.costs.read)
        return self.add(uses, after)

    def before(self, task: Task) -> Positions:
        """Return the jobs of what a task waits for besides large messages: small ones, and tasks of its own actor."""
        edges = self.edges_to(task.name)
        large = {edge.source for edge in edges}
        found: Positions = []
        for source in task.reads:
            if source not in large:
                found += self.done[source]
                found += self.ended[source]
        return found

    def edges_to(self, reader: str) -> list[Edge]:
        """Return the large messages that a task or the driver reads."""
        edges = self.flow.edges_to(reader)
        return [edge for edge in edges if edge.bytes > INLINED_BYTES]

    def plan_references(self) -> None:
        """Let each task read its messages when all have arrived, and put its own. The driver reads the results."""
        self.put_for_readers(DRIVER, [])
        for task in self.flow.tasks:
            edges = self.edges_to(task.name)
            arrived = self.before(task)
            for edge in edges:
                sender = self.flow.actor(edge.source)
                arrived += self.bring(sender, task.actor, edge.source, edge.bytes)
            self.finish(task, edges, arrived)
        self.fetch_results()

    def plan_through_driver(self) -> None:
        """Let the driver read each message between two actors, once per reader, and send it again by value."""
        for task in self.flow.tasks:
            edges = self.edges_to(task.name)
            arrived = self.before(task)
            for edge in edges:
                after = [] if edge.source == DRIVER else self.fetch(edge)
                sent = str(edge)
                self.put(DRIVER, sent, edge.bytes, after)
                arrived += self.bring(DRIVER, task.actor, sent, edge.bytes)
            self.finish(task, edges, arrived)
        self.fetch_results()

    def finish(self, task: Task, edges: Sequence[Edge], arrived: Positions) -> None:
        """Let a task read the messages that have arrived, and put its own."""
        done = list(arrived)
        for edge in edges:
            done += self.get(task.actor, edge.bytes, arrived)
        self.done[task.name] = done
        self.put_for_readers(task.name, done)

    def put_for_readers(self, source: str, after: Positions) -> None:
        """Put the message of a task or of the driver, if it is large and has readers."""
        size = self.flow.message(source).bytes
        has_readers = bool(self.flow.edges_from(source))
        if has_readers and size > INLINED_BYTES:
            process = self.flow.actor(source)
            self.put(process, source, size, after)

    def fetch(self, edge: Edge) -> Positions:
        """Let the driver read the message of an actor."""
        sender = self.flow.actor(edge.source)
        arrived = self.bring(sender, DRIVER, edge.source, edge.bytes)
        return self.get(DRIVER, edge.bytes, arrived)

    def fetch_results(self) -> None:
        for edge in self.edges_to(DRIVER):
            self.fetch(edge)

    def plan_stream(self) -> None:
        """Let sender, link and reader work on each message at the same time, once per reader."""
        for task in self.flow.tasks:
            done = self.before(task)
            for edge in self.edges_to(task.name):
                done += self.stream(edge, task.actor)
            self.done[task.name] = done
        for edge in self.edges_to(DRIVER):
            self.stream(edge, DRIVER)

    def stream(self, edge: Edge, reader: str) -> Positions:
        """Let a message go to a reader, and return its job."""
        sender = self.flow.actor(edge.source)
        uses = self.work_on(sender, edge.bytes, self.costs.send)
        add_uses(uses, self.work_on(reader, edge.bytes, self.costs.read))
        begin = self.places[sender]
        end = self.places[reader]
        if begin != end:
            add_uses(uses, self.cross(begin, end, edge.bytes))
        after = self.done[edge.source]
        jobs = self.add(uses, after)
        self.ended[edge.source] += jobs
        return jobs


def add_uses(uses: Uses, others: Uses) -> None:
    """Add the amounts of others to those of a job."""
    for resource, amount in others.items():
        before = uses.get(resource, 0.0)
        uses[resource] = before + amount


PLANS = {
    Path.DRIVER: Planner.plan_through_driver,
    Path.REFERENCES: Planner.plan_references,
    Path.STREAM: Planner.plan_stream,
}


def simulate_flow(
    flow: Flow, places: Places, cluster: Cluster, path: Path, costs: ByteCosts
) -> Outcome:
    """Return when an iteration of a flow ends, and what it uses."""
    planner = Planner(flow, places, cluster, costs)
    plan = PLANS[path]
    plan(planner)
    processes = [DRIVER, *flow.actors]
    capacities = cluster.capacities(processes)
    return simulate(planner.jobs, capacities)


def bytes_on_path(flow: Flow, path: Path) -> float:
    """Return the bytes that are sent and read one after the other in an iteration on one node.

    It is the time of an iteration in which a byte that is sent, and one that is read, take a second each.
    """
    machine = NodeMachine(pair_rate=inf, memory_rate=inf, fault_seconds=0.0, cores=inf)
    cluster = Cluster(machine, nodes=1, link_rate=inf)
    places = dict.fromkeys([DRIVER, *flow.actors], 0)
    costs = ByteCosts.equal(1.0)
    outcome = simulate_flow(flow, places, cluster, path, costs)
    return outcome.seconds
