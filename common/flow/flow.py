"""A flow is a value: which tasks there are, on which actors, who reads what. It knows nothing of Ray."""

from dataclasses import dataclass, replace
from functools import cached_property

from common.flow.message import WORD, Message, flat

DRIVER = "driver"
DATASET = "stream-dataset"  # the task and actor of `into_dataset`
TRAINER = "stand-in"  # the actor of `with_trainer`; a flow may have a trainer of its own


@dataclass(frozen=True)
class Task:
    """One call that reads messages, in argument order, and emits one.

    name: of the task; also of its actor, where `actor` is empty.
    reads: names of tasks, or DRIVER.
    emits: the message; WORD where it ends the flow at an actor and only says so.
    title: how pictures call it.
    """

    name: str
    reads: tuple[str, ...]
    emits: Message
    title: str = ""
    actor: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "actor", self.actor or self.name)


@dataclass(frozen=True)
class Edge:
    """One message on its way from an actor to another; the same source may feed several readers."""

    source: str
    reader: str
    message: Message

    @property
    def bytes(self) -> int:
        return self.message.bytes

    def __str__(self) -> str:
        return f"{self.source} -> {self.reader}"

    def __hash__(self) -> int:
        return hash((self.source, self.reader))  # of all its fields it would take longer than a small message


@dataclass(frozen=True)
class Flow:
    """Tasks in an order in which they can run; the driver emits the query and reads `returns`.

    What a task reads from another one of the same actor stays there and is no edge.

    Raises:
        ValueError: a name is unknown, used twice or read too early, or a message is never read.
    """

    name: str
    title: str
    query: Message
    tasks: tuple[Task, ...]
    returns: tuple[str, ...]

    def __post_init__(self) -> None:
        known = {DRIVER}
        for task in self.tasks:
            if task.name in known or task.actor == DRIVER:
                raise ValueError(f"flow {self.name}: the name {task.name} is taken")
            if not task.reads:
                raise ValueError(f"flow {self.name}: {task.name} reads nothing")
            for source in task.reads:
                if source not in known:
                    raise ValueError(f"flow {self.name}: {task.name} reads {source}, which does not come before it")
            known.add(task.name)
        for source in self.returns:
            if source not in known - {DRIVER}:
                raise ValueError(f"flow {self.name}: it returns {source}, which is none of its tasks")
        if not self.returns:
            raise ValueError(f"flow {self.name}: nothing returns to the driver, so it cannot tell when a trip ends")
        read = {source for task in self.tasks for source in task.reads} | set(self.returns)
        for source in known - read:
            raise ValueError(f"flow {self.name}: nobody reads what {source} emits")

    def task(self, name: str) -> Task:
        """The task called `name`; KeyError where there is none."""
        return {task.name: task for task in self.tasks}[name]

    def actor(self, name: str) -> str:
        """On which actor a task runs; the driver's own is the driver."""
        return DRIVER if name == DRIVER else self.task(name).actor

    @property
    def actors(self) -> tuple[str, ...]:
        """Every actor once, in the order of their first tasks."""
        return tuple(dict.fromkeys(task.actor for task in self.tasks))

    def tasks_of(self, actor: str) -> tuple[Task, ...]:
        """This actor's calls in their order."""
        return tuple(task for task in self.tasks if task.actor == actor)

    def message(self, name: str) -> Message:
        """What `name` (a task or DRIVER) emits."""
        return self.query if name == DRIVER else self.task(name).emits

    @property
    def messages(self) -> tuple[Message, ...]:
        """Each once: the query, and what every task emits."""
        return (self.query, *(task.emits for task in self.tasks))

    @property
    def bare(self) -> bool:
        """Every message is one tensor."""
        return all(message.bare for message in self.messages)

    @property
    def edges(self) -> tuple[Edge, ...]:
        """All edges, ordered as their readers run; the driver's own come last."""
        return tuple(edge for edges in self._inputs.values() for edge in edges)

    def edges_to(self, reader: str) -> tuple[Edge, ...]:
        """The edges that a task (or DRIVER) reads, in argument order."""
        return self._inputs[reader]

    def edges_from(self, source: str) -> tuple[Edge, ...]:
        """The edges that carry what `source` emits."""
        return self._outputs[source]

    @cached_property
    def _inputs(self) -> dict[str, tuple[Edge, ...]]:  # transports ask inside the clock
        reads = {task.name: task.reads for task in self.tasks} | {DRIVER: self.returns}
        return {
            reader: tuple(Edge(s, reader, self.message(s)) for s in sources if self.actor(s) != self.actor(reader))
            for reader, sources in reads.items()
        }

    @cached_property
    def _outputs(self) -> dict[str, tuple[Edge, ...]]:
        return {name: tuple(edge for edge in self.edges if edge.source == name) for name in self._inputs}

    def edges_into(self, actor: str) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if self.actor(edge.reader) == actor)

    def edges_out_of(self, actor: str) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if self.actor(edge.source) == actor)

    def longest_path(self) -> int:
        """Edges on the longest way from the query to the last result: the hops of a trip."""
        hops = {DRIVER: 0}
        for task in self.tasks:
            hops[task.name] = max(hops[source] + (self.actor(source) != task.actor) for source in task.reads)
        return 1 + max(hops[name] for name in self.returns)

    def shortest_path(self) -> int:
        """Edges on the shortest way from the query to a result: where messages pile up first."""
        hops = {DRIVER: 0}
        for task in self.tasks:
            hops[task.name] = min(hops[source] + (self.actor(source) != task.actor) for source in task.reads)
        return 1 + min(hops[name] for name in self.returns)

    @property
    def bytes_per_trip(self) -> int:
        """Bytes that the readers of one trip receive: the sum over the edges."""
        return sum(edge.bytes for edge in self.edges)

    @property
    def shipped_bytes(self) -> int:
        """Bytes of all messages of one trip as they are pickled, each once: views bring their storage along."""
        return sum(message.shipped_bytes for message in self.messages)

    @property
    def emitted_bytes(self) -> int:
        """Bytes of all messages of one trip, each once."""
        return sum(message.bytes for message in self.messages)


def packed(flow: Flow) -> Flow:
    """The same flow with one flat buffer a message."""
    tasks = tuple(replace(task, emits=flat(task.emits.packed_bytes)) for task in flow.tasks)
    return replace(flow, query=flat(flow.query.packed_bytes), tasks=tasks)


def into_dataset(flow: Flow) -> Flow:
    """The same flow with a reader of its results behind it, which answers the driver with a word a trip."""
    return replace(flow, tasks=(*flow.tasks, Task(DATASET, flow.returns, WORD)), returns=(DATASET,))


def with_trainer(flow: Flow) -> Flow:
    """The same flow with the driver's two ends in an actor: it is sent a word, and answers with one."""
    tasks = [replace(task, reads=tuple("query" if s == DRIVER else s for s in task.reads)) for task in flow.tasks]
    begin = Task("query", (DRIVER,), flow.query, TRAINER, TRAINER)
    end = Task("result", flow.returns, WORD, TRAINER, TRAINER)
    return replace(flow, query=WORD, tasks=(begin, *tasks, end), returns=("result",))
