# SPDX-License-Identifier: Apache-2.0
"""Define a flow as a value: the tasks, the actors that run them, and who reads what."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

from dataflow.flows.message import ACKNOWLEDGEMENT, Field, Message

DRIVER = "driver"
# The actor that `with_proxy_actor` adds; a user's flow may have a trainer of its own.
PROXY = "proxy"
# Names of actors are parts of the names of files, which have at most 255 characters.
MAX_NAME_LENGTH = 100


@dataclass(frozen=True)
class Task:
    """One call that reads messages, in argument order, and sends one."""

    name: str
    reads: tuple[str, ...]  # names of tasks, or DRIVER
    sends: Message  # ACKNOWLEDGEMENT if the task only reports that it has finished
    actor: str = ""  # default: the name of the task
    work: Any = None  # what a part of a study does for it before it sends; None: nothing
    other_bytes: int = 0  # that it sends besides its message, inside the clock

    def __post_init__(self) -> None:
        object.__setattr__(self, "actor", self.actor or self.name)


@dataclass(frozen=True)
class Edge:
    """One message from one actor to another. The same source may have several readers."""

    source: str
    reader: str
    message: Message

    @property
    def bytes(self) -> int:
        return self.message.bytes

    def __str__(self) -> str:
        return f"{self.source} -> {self.reader}"

    def __hash__(self) -> int:
        # Hashing all fields would take longer than sending a small message.
        return hash((self.source, self.reader))


@dataclass(frozen=True)
class Flow:
    """Tasks in an order in which they can run. The driver sends the query and reads the messages of `returns`.

    A message between two tasks of the same actor stays there and is not an edge. Raise ValueError if a name is unknown,
    not possible, used twice or read too early, or if a message has no reader.
    """

    name: str
    title: str
    query: Message
    tasks: tuple[Task, ...]
    returns: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raise ValueError for a name that is wrong or taken, a wrong source or result, or a message without reader."""
        names = {DRIVER}
        for task in self.tasks:
            check_name(task.name, others="._-")
            check_name(task.actor)
            if task.name in names:
                raise ValueError(f"flow {self.name}: the name {task.name} is taken")
            if task.actor == DRIVER:
                raise ValueError(
                    f"flow {self.name}: {task.name} cannot run on an actor named {DRIVER}: give another name"
                )
            if not task.reads or not names.issuperset(task.reads):
                raise ValueError(
                    f"flow {self.name}: {task.name} reads {list(task.reads)}: "
                    f"give names of tasks before it or {DRIVER}, at least one"
                )
            names.add(task.name)
        returned = set(self.returns)
        if not returned or not returned <= names - {DRIVER}:
            raise ValueError(
                f"flow {self.name} returns {list(self.returns)}: give names of its tasks, at least one"
            )
        read = returned.union(*(task.reads for task in self.tasks))
        for source in sorted(names - read):
            raise ValueError(f"flow {self.name}: the message of {source} has no reader")

    def task(self, name: str) -> Task:
        """Return the task of this name; raise KeyError if there is none."""
        return self._tasks[name]

    @cached_property
    def _tasks(self) -> dict[str, Task]:
        return {task.name: task for task in self.tasks}

    def actor(self, name: str) -> str:
        """Return the actor that runs a task; DRIVER for the driver itself."""
        return DRIVER if name == DRIVER else self.task(name).actor

    @property
    def actors(self) -> tuple[str, ...]:
        """Return the names of the actors, in the order of their first tasks."""
        return tuple(dict.fromkeys(task.actor for task in self.tasks))

    def message(self, name: str) -> Message:
        """Return the message that a task sends, or the query for DRIVER."""
        return self.query if name == DRIVER else self.task(name).sends

    @property
    def messages(self) -> tuple[Message, ...]:
        """Return each message once, however many readers it has."""
        return (self.query, *(task.sends for task in self.tasks))

    @property
    def is_flat(self) -> bool:
        """Return whether each message is one tensor, and no dict."""
        return all(message.is_flat for message in self.messages)

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Return all edges in the order in which their readers run. The driver's are last."""
        return tuple(chain.from_iterable(self._inputs.values()))

    def edges_to(self, reader: str) -> tuple[Edge, ...]:
        """Return the edges that a task or DRIVER reads, in argument order."""
        return self._inputs[reader]

    def edges_from(self, source: str) -> tuple[Edge, ...]:
        """Return the edges of the message of a task or DRIVER, one per reader."""
        return self._outputs[source]

    # Cached, because transports ask inside the timed section.
    @cached_property
    def _inputs(self) -> dict[str, tuple[Edge, ...]]:
        inputs = {task.name: self._edges_between(task.reads, task.name) for task in self.tasks}
        inputs[DRIVER] = self._edges_between(self.returns, DRIVER)
        return inputs

    def _edges_between(self, sources: Iterable[str], reader: str) -> tuple[Edge, ...]:
        """Return the edges to a reader from the sources that are on other actors."""
        actor = self.actor(reader)
        others = [source for source in sources if self.actor(source) != actor]
        return tuple(Edge(source, reader, self.message(source)) for source in others)

    @cached_property
    def _outputs(self) -> dict[str, tuple[Edge, ...]]:
        outputs: dict[str, list[Edge]] = {name: [] for name in self._inputs}
        for edge in self.edges:
            outputs[edge.source].append(edge)
        return {name: tuple(edges) for name, edges in outputs.items()}

    def edges_to_actor(self, actor: str) -> tuple[Edge, ...]:
        """Return the edges that the tasks of an actor read, in the order in which they run."""
        return tuple(edge for edge in self.edges if self.actor(edge.reader) == actor)

    @property
    def has_parameters(self) -> bool:
        """Return whether a sender keeps its tensors in one place and changes them there."""
        return any(message.is_parameters for message in self.messages)

    def slots(self, in_flight: int) -> int:
        """Return the payloads per sender: those in flight, as many that readers still hold, and the next one.

        A reader releases a message when it gets the one that many later, which the sender may not have sent yet if it
        waits for a result. Parameters have two states, and an update begins after the last one has ended.
        """
        # At least three otherwise: a transport that reuses two buffers would show an old one as new.
        return 2 if self.has_parameters else 2 * in_flight + 1

    def path_length(self, choose: Callable[[Iterable[int]], int]) -> int:
        """Return the number of edges on the longest (max) or shortest (min) path from the query to a result."""
        edges = {DRIVER: 0}
        for task in self.tasks:
            lengths = []
            for source in task.reads:
                is_edge = self.actor(source) != task.actor
                lengths.append(edges[source] + is_edge)
            edges[task.name] = choose(lengths)
        return 1 + choose(edges[name] for name in self.returns)

    @property
    def bytes_per_iteration(self) -> int:
        """Return the bytes that all readers of one iteration receive: the sum over the edges."""
        return sum(edge.bytes for edge in self.edges)

    @property
    def sent_bytes(self) -> int:
        """Return the bytes of all messages, each of them once, however many readers it has."""
        return sum(message.bytes for message in self.messages)

    def with_messages(self, change: Callable[[Message], Message]) -> "Flow":
        """Return a copy of the flow in which the query and the message of each task are changed by `change`."""
        tasks = []
        for task in self.tasks:
            message = change(task.sends)
            tasks.append(replace(task, sends=message))
        return replace(self, query=change(self.query), tasks=tuple(tasks))


def with_proxy_actor(flow: Flow) -> Flow:
    """Return the same flow with an actor that sends the query and reads the results in place of the driver.

    The driver starts each iteration with 8 bytes and gets an acknowledgement. Raise ValueError if a task of the flow
    is named query or result.
    """
    tasks = []
    for task in flow.tasks:
        reads = tuple("query" if source == DRIVER else source for source in task.reads)
        changed = replace(task, reads=reads)
        tasks.append(changed)
    begin = Task("query", reads=(DRIVER,), sends=flow.query, actor=PROXY)
    end = Task("result", reads=flow.returns, sends=ACKNOWLEDGEMENT, actor=PROXY)
    return replace(flow, query=ACKNOWLEDGEMENT, tasks=(begin, *tasks, end), returns=("result",))


def shrink_messages(flow: Flow) -> Flow:
    """Return the flow with as many fields in each message, of one tensor of 8 bytes each, and tasks that only send."""

    def shrink(message: Message) -> Message:
        fields = [Field(name, "int64", (1,)) for name in message.names]
        return Message(tuple(fields))

    shrunk = flow.with_messages(shrink)
    tasks = [replace(task, work=None, other_bytes=0) for task in shrunk.tasks]
    return replace(shrunk, tasks=tuple(tasks))


def tasks_in_turn(actor: str, messages: Sequence[Message]) -> list[Task]:
    """Return one task per message. The first one waits for the driver, and each of the others for the one before it."""
    names = [actor]
    if len(messages) > 1:
        names = [f"{actor}.{index}" for index in range(len(messages))]
    tasks = []
    before = DRIVER
    for name, message in zip(names, messages, strict=True):
        task = Task(name, reads=(before,), sends=message, actor=actor)
        tasks.append(task)
        before = name
    return tasks


def check_name(name: str, others: str = "_-") -> None:
    """Raise ValueError if this cannot be the name of an actor, or of a task with these `others` in it."""
    match = isinstance(name, str) and re.fullmatch(f"[A-Za-z][A-Za-z0-9{others}]*", name)
    if not match or len(name) > MAX_NAME_LENGTH:
        raise ValueError(
            f"{name!r} is not a name: use letters, digits, dashes and underscores, a letter first, "
            f"and at most {MAX_NAME_LENGTH} characters"
        )
