# SPDX-License-Identifier: Apache-2.0
"""Say how a message travels in each way, as jobs that use cores, memory and links.

Through the driver, and as references, a message is written into Ray's object store of its sender's node, travels over
the links to the nodes of its readers, and is read there, one after the other. With Ray Direct Transport and collectives
(gloo over TCP here), sender, link and reader work on a message at the same time.

With Ray, the driver calls each task: it submits all calls one after the other. A call through the object store begins
when all messages of its task have been sent, and with Ray Direct Transport each message is a call of its own.
"""

from bisect import bisect
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf, log
from typing import NamedTuple

from dataflow.catalogue.catalogue import INLINED_BYTES
from dataflow.cluster.hardware import UNLIMITED, Cluster, place
from dataflow.cluster.simulation import Job, Kind, Outcome, Resource, simulate
from dataflow.flows.flow import DRIVER, Edge, Flow, Task

Uses = dict[Resource, float]  # amounts
Positions = list[int]  # of jobs
Places = dict[str, int]  # process -> node
UNLIMITED_NODE = Cluster(UNLIMITED, nodes=1, link_rate=inf)


class Path(StrEnum):
    """How messages travel."""

    DRIVER = "through the driver"
    REFERENCES = "references"
    STREAM = "direct"


class SizedCost(NamedTuple):
    """What a byte of a message of one size takes in page faults."""

    message_bytes: int
    seconds: float


@dataclass(frozen=True)
class Work:
    """What a message costs where it is sent or read."""

    core_seconds: float  # of a byte, besides page faults
    memory_bytes: float  # that are copied, of a byte
    faults: Sequence[SizedCost] = ()  # by the size of a message, the smallest first

    def seconds_of(self, size: int) -> float:
        """Return the seconds of a message of so many bytes."""
        return size * (self.core_seconds + seconds_between(self.faults, size))


def seconds_between(costs: Sequence[SizedCost], size: int) -> float:
    """Return the seconds of a byte for a size of messages: between two sizes, it grows with the logarithm.

    Below and above all sizes, it is that of the nearest one; without any, it is 0.
    """
    if not costs:
        return 0.0
    position = bisect(costs, size, key=lambda cost: cost.message_bytes)
    if position in (0, len(costs)):
        nearest = costs[max(0, position - 1)]
        return nearest.seconds
    below = costs[position - 1]
    above = costs[position]
    part = log(size / below.message_bytes) / log(above.message_bytes / below.message_bytes)
    return below.seconds + part * (above.seconds - below.seconds)


@dataclass(frozen=True)
class Call:
    """What a call of Ray takes, besides the bytes of its messages."""

    submit_seconds: float  # of the driver's core
    start_seconds: float  # besides: of Ray and the actor, one step after the other
    start_core_seconds: float  # of all their processes together


@dataclass(frozen=True)
class WayCosts:
    """What calls, and messages on the way, cost on one kind of machine."""

    send: Work
    read: Work
    link: Work  # of each of the two nodes that a message crosses between
    call: Call | None = None  # None: without Ray, nothing is called
    # Of a task that reads large messages; with Ray Direct Transport, of each of them.
    reading_call: Call | None = None

    @classmethod
    def of_bytes(cls, send_seconds: float, read_seconds: float) -> "WayCosts":
        """Return costs with which only sending and reading a byte take time."""
        return cls(Work(send_seconds, 0.0), Work(read_seconds, 0.0), Work(0.0, 0.0))

    @classmethod
    def of_calls(cls, call: Call, reading_call: Call) -> "WayCosts":
        """Return costs with which only calls take time."""
        work = Work(0.0, 0.0)
        return cls(work, work, work, call, reading_call)


class Arrival(NamedTuple):
    """A message in the store of a node."""

    source: str  # the task, or the edge on which the driver has sent it again
    node: int


class Planner:
    """Makes the jobs of one iteration of a flow on a cluster.

    Small messages travel in Ray's calls, and their bytes take no time.
    """

    def __init__(self, flow: Flow, places: Places, cluster: Cluster, costs: WayCosts) -> None:
        self.flow = flow
        self.places = places
        self.cluster = cluster
        self.costs = costs
        self.jobs: list[Job] = []
        # Task -> the jobs after which its message can be sent, and those after which its actor does the next task.
        self.done: dict[str, Positions] = {DRIVER: []}
        self.ended: dict[str, Positions] = defaultdict(list)
        self.arrivals: dict[Arrival, Positions] = {}
        self.submitted: Positions = []  # the last call

    def add(self, uses: Uses, after: Positions) -> Positions:
        """Add a job that begins after others, and return its position."""
        position = len(self.jobs)
        self.jobs.append(Job(uses, after))
        return [position]

    def work_on(self, process: str, size: int, work: Work) -> Uses:
        """Return what a process uses that sends or reads so many bytes."""
        node = self.places[process]
        owner = self.cluster.owner(node)
        seconds = work.seconds_of(size)
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

    def start(self, task: Task, sent: Positions) -> Positions:
        """Let the driver call a task, and Ray start it when its messages have been sent. Return the jobs of that."""
        call = self.costs.reading_call if self.edges_to(task.name) else self.costs.call
        if call is None:
            return []
        driver_node = self.cluster.owner(self.places[DRIVER])
        submit = {
            Resource(Kind.CORE, DRIVER): call.submit_seconds,
            Resource(Kind.CORES, driver_node): call.submit_seconds,
        }
        self.submitted = self.add(submit, self.submitted)
        node = self.cluster.owner(self.places[task.actor])
        begin = {
            Resource(Kind.CALL, task.name): call.start_seconds,
            Resource(Kind.CORES, node): call.start_core_seconds,
        }
        return self.add(begin, [*self.submitted, *sent])

    def bring(
        self, sender: str, reader: str, source: str, size: int, after: Positions
    ) -> Positions:
        """Return the jobs after which a message of a sender is in the store of a reader's node. It crosses once."""
        begin = Arrival(source, self.places[sender])
        end = Arrival(source, self.places[reader])
        if end not in self.arrivals:
            uses = self.cross(begin.node, end.node, size)
            add_uses(uses, self.work_of_kernel(begin.node, size))
            add_uses(uses, self.work_of_kernel(end.node, size))
            before = self.arrivals[begin]
            self.arrivals[end] = self.add(uses, [*before, *after])
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
        self.submitted = self.ended[DRIVER]
        for task in self.flow.tasks:
            edges = self.edges_to(task.name)
            before = self.before(task)
            sent = list(before)
            for edge in edges:
                sent += self.put_of(edge.source)
            started = self.start(task, sent)
            arrived = [*before, *started]
            for edge in edges:
                sender = self.flow.actor(edge.source)
                arrived += self.bring(sender, task.actor, edge.source, edge.bytes, started)
            self.finish(task, edges, arrived)
        self.fetch_results()

    def plan_through_driver(self) -> None:
        """Let the driver read each message between two actors, once per reader, and send it again by value."""
        for task in self.flow.tasks:
            edges = self.edges_to(task.name)
            before = self.before(task)
            sent = list(before)
            for edge in edges:
                after = [] if edge.source == DRIVER else self.fetch(edge)
                self.put(DRIVER, str(edge), edge.bytes, after)
                sent += self.ended[str(edge)]
            started = self.start(task, sent)
            arrived = [*before, *started]
            for edge in edges:
                arrived += self.bring(DRIVER, task.actor, str(edge), edge.bytes, started)
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

    def put_of(self, source: str) -> Positions:
        """Return the jobs after which the message of a task is in the store of its node."""
        sender = self.flow.actor(source)
        node = self.places[sender]
        return self.arrivals[Arrival(source, node)]

    def fetch(self, edge: Edge) -> Positions:
        """Let the driver read the message of an actor."""
        sender = self.flow.actor(edge.source)
        arrived = self.bring(sender, DRIVER, edge.source, edge.bytes, [])
        return self.get(DRIVER, edge.bytes, arrived)

    def fetch_results(self) -> None:
        for edge in self.edges_to(DRIVER):
            self.fetch(edge)

    def plan_stream(self) -> None:
        """Let sender, link and reader work on each message at the same time, once per reader."""
        for task in self.flow.tasks:
            edges = self.edges_to(task.name)
            done = self.before(task)
            if not edges:
                done += self.start(task, list(done))
            for edge in edges:
                # Each message is a call of its own, because a message goes to its reader as soon as it is there.
                started = self.start(task, self.done[edge.source])
                done += self.stream(edge, task.actor, started)
            self.done[task.name] = done
        for edge in self.edges_to(DRIVER):
            self.stream(edge, DRIVER, [])

    def stream(self, edge: Edge, reader: str, started: Positions) -> Positions:
        """Let a message go to a reader that has been started, and return its job."""
        sender = self.flow.actor(edge.source)
        uses = self.work_on(sender, edge.bytes, self.costs.send)
        add_uses(uses, self.work_on(reader, edge.bytes, self.costs.read))
        begin = self.places[sender]
        end = self.places[reader]
        if begin != end:
            add_uses(uses, self.cross(begin, end, edge.bytes))
        after = [*self.done[edge.source], *started]
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
    flow: Flow, places: Places, cluster: Cluster, path: Path, costs: WayCosts
) -> Outcome:
    """Return when an iteration of a flow ends, and what it uses."""
    jobs = plan_jobs(flow, places, cluster, path, costs)
    processes = [DRIVER, *flow.actors]
    tasks = [task.name for task in flow.tasks]
    capacities = cluster.capacities(processes, tasks)
    return simulate(jobs, capacities)


def plan_jobs(
    flow: Flow, places: Places, cluster: Cluster, path: Path, costs: WayCosts
) -> list[Job]:
    """Return the jobs of one iteration."""
    planner = Planner(flow, places, cluster, costs)
    plan = PLANS[path]
    plan(planner)
    return planner.jobs


def process_seconds(flow: Flow, path: Path, costs: WayCosts) -> float:
    """Return the core seconds of the driver and all actors, added up, in an iteration on one node.

    Work of Ray's own processes and of the kernel is not in it.
    """
    places = place(flow, 1, "pack")
    total = 0.0
    for job in plan_jobs(flow, places, UNLIMITED_NODE, path, costs):
        for resource, amount in job.uses.items():
            if resource.kind == Kind.CORE:
                total += amount
    return total


def bytes_on_path(flow: Flow, path: Path, sends: float = 1.0, reads: float = 1.0) -> float:
    """Return the bytes that are sent and read one after the other in an iteration on one node.

    `sends`, `reads`: how often a byte counts that is sent, and one that is read. Then the result is the time of an
    iteration in which sending and reading a byte take so many seconds.
    """
    return seconds_on_one_node(flow, path, WayCosts.of_bytes(sends, reads))


def seconds_of_calls(flow: Flow, path: Path, call: Call, reading_call: Call) -> float:
    """Return the time of an iteration on one node in which only calls take time."""
    return seconds_on_one_node(flow, path, WayCosts.of_calls(call, reading_call))


def seconds_on_one_node(flow: Flow, path: Path, costs: WayCosts) -> float:
    """Return the seconds of an iteration on one node that has a core for each process, and memory without a limit."""
    places = place(flow, 1, "pack")
    return simulate_flow(flow, places, UNLIMITED_NODE, path, costs).seconds
