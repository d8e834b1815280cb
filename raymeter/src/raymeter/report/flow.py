# SPDX-License-Identifier: Apache-2.0
"""Write the messages of a step as a flow.toml, which the laboratory runs with every transport.

A message that a process only passes on goes to its last readers at once. Each process that reads is an actor.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from raymeter.advice import Profile
from raymeter.causes.forwarded import find_hops
from raymeter.profile.groups import Group, group_messages
from raymeter.profile.program import Program
from raymeter.report.flow_fields import describe_fields

DRIVER = "driver"
MAX_COPIES = 16  # of a message per step
MAX_NAME_LENGTH = 70  # of a method, without the numbers after it
RESERVED_NAMES = (DRIVER, "query", "result", "proxy")  # of tasks and actors of the laboratory
Address = tuple[str, str]  # place and actor
NUMBER = '{name = "", dtype = "int64", shape = [1]}'  # the message of a task that only acknowledges


@dataclass
class Task:
    """A call that reads messages and sends one."""

    name: str
    actor: str
    reads: list[str]
    fields: str  # TOML

    def to_toml(self) -> str:
        reads = json.dumps(self.reads)
        return (
            f'    {{name = "{self.name}", actor = "{self.actor}", reads = {reads}, '
            f"sends.fields = [{self.fields}]}},\n"
        )


@dataclass(frozen=True)
class Reader:
    """A place that gets messages of a group."""

    place: str
    count: int  # of messages that it gets per step, in all of its processes together
    processes: int


@dataclass
class Flow:
    """The tasks of a step in their order. A task reads only messages of tasks before it, so that there is no cycle."""

    tasks: list[Task] = field(default_factory=list)
    inboxes: dict[Address, list[str]] = field(default_factory=dict)  # names of tasks
    place_names: dict[str, str] = field(default_factory=dict)

    def name_place(self, place: str) -> str:
        """Return a name for a method or task of Ray, for example of a lambda: another one for each place."""
        if place not in self.place_names:
            name = make_name(place)
            while name in self.place_names.values():
                name += "-x"
            self.place_names[place] = name
        return self.place_names[place]

    def take(self, address: Address) -> list[str]:
        """Return the messages that a place has got in an actor, and empty its inbox."""
        return self.inboxes.pop(address, [])

    def deliver(self, names: Sequence[str], readers: Sequence[Reader]) -> None:
        """Give messages (at least one) to their readers: each reader goes on where the one before it ended.

        After the last message comes the first one again. The messages of a reader go to one of its processes after the
        other; one that comes again goes to the next process.
        """
        first = 0
        for reader in readers:
            for number in range(reader.count):
                position = (first + number) % len(names)
                turn, rest = divmod(number, len(names))
                process = (turn + rest) % reader.processes
                self.give(names[position], reader, process)
            first += reader.count

    def give(self, name: str, reader: Reader, number: int) -> None:
        """Put a message into the inbox of the actor with this number at a place, or of the next one that can get it.

        An actor cannot get what it has sent, or has in its inbox. The driver has one inbox.
        """
        if reader.place == DRIVER:
            inbox = self.inboxes.setdefault((DRIVER, DRIVER), [])
            if name not in inbox:
                inbox.append(name)
            return
        place = self.name_place(reader.place)
        sender = next(task.actor for task in self.tasks if task.name == name)
        while True:
            actor = name_actor(place, number)
            inbox = self.inboxes.setdefault((reader.place, actor), [])
            if actor != sender and name not in inbox:
                inbox.append(name)
                return
            number += 1

    def add_task(self, name: str, actor: str, reads: list[str], fields: str) -> str:
        """Add a task, which reads from the driver if nothing else; return its name."""
        taken = {task.name for task in self.tasks}
        while name in taken or name in RESERVED_NAMES:
            name += "-x"
        self.tasks.append(Task(name, actor, reads or [DRIVER], fields))
        return name

    def add_group(self, group: Group, number: int, copies: int) -> list[str]:
        """Add the tasks that send these messages, each after what its actor has received; return their names."""
        place = self.name_place(place_of(group))
        fields = describe_fields(group)
        senders = count_senders(group)
        names = []
        for copy in range(copies):
            actor = name_actor(place, copy % senders)
            name = f"{place}-{number}-{copy}"
            address = place_of(group), DRIVER if place == DRIVER else actor
            reads = self.take(address)
            names.append(self.add_task(name, actor, reads, fields))
        return names

    def end(self) -> list[str]:
        """Add a task for each reader of messages that no task has read; return what the driver reads.

        That is its inbox, and what nobody else reads.
        """
        returns = self.take((DRIVER, DRIVER))
        for (place, actor), inbox in self.inboxes.items():
            if inbox:
                name = self.name_place(place)
                number = actor.rpartition("-")[2]
                if number != "0":
                    name = f"{name}-{number}"
                self.add_task(name, actor, inbox, NUMBER)
        read = set(returns)
        for task in self.tasks:
            read.update(task.reads)
        for task in self.tasks:
            if task.name not in read:
                returns.append(task.name)
        return returns

    def to_toml(self, returns: list[str]) -> str:
        tasks = "".join(task.to_toml() for task in self.tasks)
        return (
            'name = "flow"\n'
            'title = "profile"\n'
            f"returns = {json.dumps(returns)}\n"
            f"query.fields = [{NUMBER}]\n"
            f"tasks = [\n{tasks}]\n"
        )


def write(profile: Profile, path: Path) -> bool:
    """Write the messages of a step as a flow; return False, and write nothing, if there are no messages."""
    steps = profile.steps.count
    groups = choose_groups(profile)
    if not groups:
        return False
    origins = find_origins(profile.program, groups)
    flow = Flow()
    for number, group in enumerate(groups):
        if number in origins:
            continue
        onward = [groups[hop] for hop, origin in origins.items() if origin == number]
        copies = count_copies(group, steps)
        names = flow.add_group(group, number, copies)
        readers = find_readers(group, onward, copies)
        flow.deliver(names, readers)
    returns = flow.end()
    path.write_text(flow.to_toml(returns), encoding="utf-8")
    return True


def choose_groups(profile: Profile) -> list[Group]:
    """Return the messages of each step that have readers, or else those of some steps, or else all, in their order."""
    sent = [group for group in profile.groups if group.count]
    groups = sent or group_messages(profile.program.messages)
    read = [group for group in groups if group.readers]
    repeated = [group for group in read if round(group.count / profile.steps.count) > 0]
    chosen = repeated or read or list(groups)
    return sorted(chosen, key=lambda group: group.first.start)


def find_origins(program: Program, groups: Sequence[Group]) -> dict[int, int]:
    """Return, for each group whose messages are only passed on, the group in which they were made.

    Groups are numbers in the list. A group that comes from one that is passed on itself is sent as it is.
    """
    numbers: dict[int, int] = {}  # by message and by what was received of it
    for number, group in enumerate(groups):
        for message in group.messages:
            numbers[id(message)] = number
            for received in message.received:
                numbers[id(received)] = number
    hops: dict[int, Counter[int]] = {}
    for hop in find_hops(program):
        number = numbers.get(id(hop.message), -1)
        for origin in hop.origins:
            source = numbers.get(id(origin), -1)
            if number < 0 or source < 0:
                continue
            sender = place_of(groups[number])
            if place_of(groups[source]) != sender:
                sources = hops.setdefault(number, Counter())
                sources[source] += 1
    origins = {}
    for number, sources in hops.items():
        source, _ = sources.most_common(1)[0]
        if source not in hops:
            origins[number] = source
    return origins


def find_readers(group: Group, onward: Sequence[Group], copies: int) -> list[Reader]:
    """Return who gets a message in the end, without those that only pass it on.

    copies: of the message per step. Of parts that are passed on, as many as have its bytes count as the message.
    """
    between = {class_of(place_of(other)) for other in onward}
    shares: dict[str, float] = {}  # by place, of each message
    processes: dict[str, set[str]] = {}
    for other in (group, *onward):
        part = other.bytes / (group.bytes * group.count)
        for place in places_of_readers(other):
            if other is group and class_of(place) in between:
                continue
            readings = find_readings(other, place)
            share = part * sum(readings.values())
            earlier = shares.get(place, 0.0)
            shares[place] = earlier + share
            of_place = processes.setdefault(place, set())
            of_place.update(readings)
    readers = []
    for place, share in shares.items():
        width = min(MAX_COPIES, len(processes[place]))
        most = copies * width
        count = round(share * copies)
        count = min(most, max(1, count))
        reader = Reader(place, count, width)
        readers.append(reader)
    return readers


def find_readings(group: Group, place: str) -> dict[str, float]:
    """Return how often each process has got a message at a place, with those that were left out.

    A process that reads one object again has got it once.
    """
    readings: dict[str, float] = {}
    for message in group.messages:
        weights: dict[str, float] = {}
        for received in message.received:
            name = received.by_name or DRIVER
            if name == place:
                weights[received.process] = received.weight
        for process, weight in weights.items():
            earlier = readings.get(process, 0.0)
            readings[process] = earlier + weight
    return readings


def places_of_readers(group: Group) -> list[str]:
    return [reader or DRIVER for reader in group.readers]


def place_of(group: Group) -> str:
    """Return the method or task that sends a message, or "driver"."""
    return group.sender or DRIVER


def count_senders(group: Group) -> int:
    """Return how many processes send these messages."""
    return len({message.sent.process for message in group.messages})


def count_copies(group: Group, steps: int) -> int:
    """Return how often a step has the message."""
    copies = round(group.count / steps)
    return min(MAX_COPIES, max(1, copies))


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
