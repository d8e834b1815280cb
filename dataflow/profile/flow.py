"""Write the messages of a step of a profile as a flow.toml, which `run --flow` measures in the suite.

A message that the driver only passes on goes to its last readers at once. All readers of a class are one actor.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dataflow.profile.messages import Message, Profile

DRIVER = "driver"
MAX_COPIES = 16  # of a message per step
MAX_NAME_LENGTH = 70  # of a method, without the numbers after it
RESERVED_NAMES = (DRIVER, "query", "result", "proxy")  # of tasks and actors of the suite
LIST_DTYPES = ("str", "ints", "floats")
TENSOR_DTYPES = ("int64", "int32", "uint8", "bool", "float64", "float32", "float16", "bfloat16")
NUMBER = '{name = "", dtype = "int64", shape = [1]}'  # the message of a task that only acknowledges
NAMED_NUMBER = '{name = "sequence number", dtype = "int64", shape = [1]}'
TASK = '    {{name = "{}", actor = "{}", reads = {}, sends.fields = [{}]}},\n'
FLOW = """name = "flow"
title = "profile"
returns = {}
query.fields = [{}]
tasks = [
{}]
"""


@dataclass
class Task:
    """A call that reads messages and sends one."""

    name: str
    actor: str
    reads: list[str]
    fields: str  # TOML


@dataclass
class Inbox:
    """The messages that a method or task gets, in their order."""

    names: list[str] = field(default_factory=list)  # of the tasks that send them
    read_counts: dict[str, int] = field(default_factory=dict)  # by actor

    def add(self, names: Sequence[str]) -> None:
        self.names += [name for name in names if name not in self.names]

    def take(self, actor: str) -> list[str]:
        """Return the messages that the actor has not read yet."""
        first = self.read_counts.get(actor, 0)
        self.read_counts[actor] = len(self.names)
        return self.names[first:]

    @property
    def unread(self) -> list[str]:
        """Return the messages that no actor has read yet."""
        first = max(self.read_counts.values(), default=0)
        return self.names[first:]


@dataclass
class Flow:
    """The tasks of a step in their order. A task reads only messages of tasks before it, so that there is no cycle."""

    tasks: list[Task] = field(default_factory=list)
    inboxes: dict[str, Inbox] = field(default_factory=dict)  # by place
    place_names: dict[str, str] = field(default_factory=dict)

    def name_place(self, place: str) -> str:
        """Return a name for a method or task of Ray, for example of a lambda: another one for each place."""
        if place not in self.place_names:
            name = make_name(place)
            while name in self.place_names.values():
                name += "-x"
            self.place_names[place] = name
        return self.place_names[place]

    def open_inbox(self, place: str) -> Inbox:
        """Return the messages that a place gets. All functions of the driver are one place."""
        is_driver = class_of(place) == DRIVER
        return self.inboxes.setdefault(DRIVER if is_driver else place, Inbox())

    def add_task(self, name: str, actor: str, reads: list[str], fields: str) -> str:
        """Add a task, which reads from the driver if nothing else; return its name."""
        taken = {task.name for task in self.tasks}
        while name in taken or name in RESERVED_NAMES:
            name += "-x"
        self.tasks.append(Task(name, actor, reads or [DRIVER], fields))
        return name

    def add_message(self, message: Message, number: int, copies: int) -> list[str]:
        """Add the tasks that send a message, each after what its actor has received so far; return their names."""
        place = self.name_place(message.place)
        inbox = self.open_inbox(message.place)
        fields = describe_fields(message)
        names = []
        for copy in range(copies):
            actor = name_actor(place, copy % message.senders)
            name = f"{place}-{number}-{copy}"
            names.append(self.add_task(name, actor, inbox.take(actor), fields))
        return names

    def end(self) -> list[str]:
        """Add a task for each reader of messages that no task has read; return what the driver reads."""
        returns = []
        for place, inbox in self.inboxes.items():
            if place == DRIVER:
                returns += inbox.unread
            elif inbox.unread:
                name = self.name_place(place)
                actor = self.find_reader(name, inbox.unread)
                returns.append(self.add_task(name, actor, inbox.unread, NUMBER))
        read = set(returns)
        for task in self.tasks:
            read.update(task.reads)
        returns += [task.name for task in self.tasks if task.name not in read]
        return returns

    def find_reader(self, name: str, unread: Sequence[str]) -> str:
        """Return an actor of the class that sends none of these messages: they would stay in it."""
        senders = {task.actor for task in self.tasks if task.name in unread}
        number = 0
        while name_actor(name, number) in senders:
            number += 1
        return name_actor(name, number)


def make_name(place: str) -> str:
    """Return a name that a task of a flow can have: letters, digits, dashes, underscores and dots, a letter first."""
    name = re.sub("[^A-Za-z0-9_.-]", "-", place).lstrip("_.-")
    name = name[:MAX_NAME_LENGTH]
    return name if name[:1].isalpha() else f"task-{name}"


def name_actor(name: str, number: int) -> str:
    """Return the name of an actor of the class of a method."""
    return f"{class_of(name)}-{number}"


def class_of(place: str) -> str:
    """Return the class of an actor's method, or the driver."""
    return place.partition(".")[0]


def write_flow(path: Path, profile: Profile) -> float:
    """Write the messages of a step as a flow, and return their seconds per step in the program."""
    messages = choose_messages(profile)
    messages.sort(key=lambda message: message.start)
    origins = {message.place for message in messages if not message.forwards}
    passed_on = [m for m in messages if m.forwards in origins and m.forwards != m.place]
    flow = Flow()
    for number, message in enumerate(messages):
        if message in passed_on:
            continue
        copies = count_copies(message, profile)
        names = flow.add_message(message, number, copies)
        for reader in find_readers(message, passed_on):
            flow.open_inbox(reader).add(names)
    returns = flow.end()
    tasks = ""
    for task in flow.tasks:
        tasks += TASK.format(task.name, task.actor, json.dumps(task.reads), task.fields)
    path.write_text(FLOW.format(json.dumps(returns), NUMBER, tasks), encoding="utf-8")
    return sum(message.seconds_per_step for message in messages)


def choose_messages(profile: Profile) -> list[Message]:
    """Return the messages of each step that have readers; if there are none, those of the whole program, or all."""
    read = [message for message in profile.messages if message.readers]
    repeated = [message for message in read if round(message.count / profile.steps) > 0]
    return repeated or read or list(profile.messages)


def count_copies(message: Message, profile: Profile) -> int:
    """Return how often a step has the message."""
    copies = round(message.count / profile.steps)
    return min(MAX_COPIES, max(1, copies))


def find_readers(message: Message, passed_on: Sequence[Message]) -> list[str]:
    """Return the places that get a message in the end, without those that only pass it on."""
    onward = [other for other in passed_on if other.forwards == message.place]
    between = {class_of(other.place) for other in onward}
    readers = [reader for reader in message.readers if class_of(reader) not in between]
    for other in onward:
        readers += other.readers
    return readers


def describe_fields(message: Message) -> str:
    """Return name, dtype, and the shape of a tensor or the lengths of a list, of each field as TOML."""
    whole = [
        "message",
        "uint8",
        [round(message.stored_bytes)],
        1,
        0,
        0,
        [],
    ]  # if it is not described
    texts = []
    names: set[str] = set()
    has_tensor = False  # that can hold a sequence number
    for values in message.fields or [whole]:
        described = MessageField(*values)
        name = described.name or "message"
        while name in names:  # for example, one with tensors of two dtypes
            name += "'"
        names.add(name)
        texts.append(described.to_toml(name, message))
        has_tensor = has_tensor or described.is_tensor
    if not has_tensor:
        texts.append(NAMED_NUMBER)
    return ", ".join(texts)


@dataclass
class MessageField:
    """A field of a message, as the recorder describes it."""

    name: str
    dtype: str
    shape: list[int]  # of its largest tensor
    count: int  # of tensors, texts, or lists
    items: int  # of all of them
    size: int  # bytes
    causes: list[str]

    def __post_init__(self) -> None:
        if self.dtype not in (*LIST_DTYPES, *TENSOR_DTYPES):
            self.dtype = "uint8"
            self.items = self.size
            self.shape = [self.size]

    @property
    def is_list(self) -> bool:
        return self.count > 1 or self.dtype in LIST_DTYPES

    @property
    def length(self) -> int:
        """Return the items of each tensor of a list."""
        return self.items // self.count

    @property
    def is_tensor(self) -> bool:
        """Return whether its first tensor has bytes."""
        if self.dtype in LIST_DTYPES:
            return False
        return self.length > 0 if self.is_list else 0 not in self.shape

    def to_toml(self, name: str, message: Message) -> str:
        """Return the field with this name. Each tensor of a batch of views is pickled with all of its storage."""
        form = f"shape = {self.shape}"
        if self.is_list:
            form = f"lengths = {[self.length] * self.count}"
        if self.is_list and "view" in self.causes:
            item_bytes = self.size / max(1, self.items)
            row = int(message.stored_bytes / (item_bytes * self.count**2))
            form += f", storage = {[self.count, max(self.length, row)]}"
        label = json.dumps(name, ensure_ascii=False)
        return f'{{name = {label}, dtype = "{self.dtype}", {form}}}'
