"""Read the files that a profiled program has written: its processes, and its events with their readers."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from math import inf
from pathlib import Path
from typing import Any

from dataflow.errors import UsageError

ASYNC = (
    "async"  # the identity of an argument that an async actor has read: it does not know the task
)
FIRST_RESULT = (
    "01000000"  # the end of the name of a task's first result, and of an argument of the driver
)


@dataclass(eq=False)
class Event:
    """A message that a process has sent or received, as inside/dataflow_recorder.py writes it. Times are seconds."""

    side: str  # sent or received
    how: str  # result, by value, put, channel, RDT; argument or get for one that was received
    place: str  # the method or task that sends or receives it
    line: str
    start: float
    seconds: float  # of serialisation or deserialisation
    faults: int
    stored: int  # bytes
    imports: int  # modules that were imported meanwhile
    token: int | None  # equal for messages with the same tensor object in one process
    node: str
    process: str = ""
    # Only of a sender:
    id: str = ""  # the object, argument or result that it becomes
    bytes: int = 0  # that the value holds
    fields: list[list[Any]] = field(default_factory=list)  # see `describe` in the recorder
    other: float = 0.0  # the rest of ray.put or .remote()
    # Only of a reader:
    object: str = ""
    sender_task: str = ""
    task: str = ""
    wait: float = 0.0  # the rest of ray.get
    # What `join_readers` adds:
    readers: list["Event"] = field(default_factory=list)
    forwards: str = ""  # the place from which this process has the message that it sends
    forwarded: bool = False  # this process sends the message on

    @property
    def class_name(self) -> str:
        """Return the class of the actor, the name of the task, or `driver`."""
        return self.place.partition(".")[0]

    @property
    def crosses_nodes(self) -> bool:
        return any(reader.node != self.node for reader in self.readers)

    @property
    def is_driver(self) -> bool:
        return self.class_name == "driver"


@dataclass
class Process:
    """A process of the program, and how many messages it has sent or received."""

    process: str
    ray: str
    missing: list[str]  # functions that this version of Ray does not have
    retained: bool  # it keeps the memory that it frees
    events: int
    small: int
    largest_small_bytes: int


MessageKey = tuple[
    str, int
]  # the identity of a message (object, argument or result), and its bytes
Senders = dict[MessageKey, list[Event]]
EVENT_NAMES = {name.name for name in fields(Event)}


def read_events(folder: Path) -> tuple[list[Process], list[Event]]:
    """Return the processes of a profile with their counts, and all events; raise UsageError without any process."""
    processes: list[Process] = []
    events: list[Event] = []
    end = inf
    for path in sorted(folder.glob("*.jsonl")):
        lines = read_lines(path)
        if not lines:
            continue
        process = make_process(lines)
        own = [make_event(line, process) for line in lines if "side" in line]
        processes.append(process)
        events += own
        if own and process.events > len(own):  # the recorder writes the first ones only
            end = min(end, own[-1].start)
    if not processes:
        raise UsageError(f"{folder} has no profile: the program has not called ray.init")
    complete = [event for event in events if event.start <= end]
    complete.sort(key=lambda event: event.start)
    join_readers(complete)
    return processes, complete


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file. A process that was killed may leave a part of the last one, which is left out."""
    complete = path.read_text(encoding="utf-8").rpartition("\n")[0]
    return [json.loads(line) for line in complete.splitlines()]


def make_process(lines: Sequence[dict[str, Any]]) -> Process:
    """Return the process that has written these lines, with its last counts."""
    header = dict(lines[0])
    for line in lines[1:]:
        if "side" not in line:
            header |= line
    return Process(**header)


def make_event(line: dict[str, Any], process: Process) -> Event:
    """Return the event of a line. Names that are not known, of another version of the recorder, are left out."""
    values = {name: value for name, value in line.items() if name in EVENT_NAMES}
    values["id"] = line.get("id") or ""
    return Event(**values, process=process.process, sender_task=line.get("from", ""))


def join_readers(events: Sequence[Event]) -> None:
    """Add to each event of a sender the events of its `readers`, and mark the messages that a process `forwards`."""
    sent = [event for event in events if event.side == "sent"]
    senders = group_by_key(sent)
    received = group_received(events, senders)
    for event in sent:
        if event.how == "by value" and (event.id, event.stored) not in received:
            senders[ASYNC, event.stored].append(event)
    origins: dict[tuple[str, int], str] = {}  # process, token -> the place that sent it there
    for key, objects in received.items():
        for sender, reader in pair_readers(key, senders[key], objects):
            sender.readers.append(reader)
            if reader.token is not None:
                origins[reader.process, reader.token] = sender.place
    sent_tokens = {(event.process, event.token) for event in sent}
    for event in events:
        if event.token is not None:
            token = event.process, event.token
            event.forwards = origins.get(token, "")
            event.forwarded = token in sent_tokens


def group_by_key(sent: Iterable[Event]) -> Senders:
    """Return the events by the identity and the bytes of their message: a task can have several results."""
    senders: Senders = defaultdict(list)
    for event in sent:
        senders[event.id, event.stored].append(event)
    return senders


def group_received(
    events: Iterable[Event], senders: Senders
) -> dict[MessageKey, dict[bytes, list[Event]]]:
    """Return the events of readers by the key of their message, and by their object, as a number to sort by."""
    received: dict[MessageKey, dict[bytes, list[Event]]] = {}
    for event in events:
        if event.side == "received":
            objects = received.setdefault(find_key(event, senders), {})
            number = bytes.fromhex(event.object)[::-1]  # numbers are little-endian
            objects.setdefault(number, []).append(event)
    return received


def find_key(event: Event, senders: Senders) -> MessageKey:
    """Return the key of the message that this event has received."""
    as_object = f"O{event.object}"
    as_argument = f"A{event.task}"
    as_result = f"R{event.sender_task}"
    identities = [as_object, as_argument, as_result]
    if event.object.endswith(FIRST_RESULT):
        identities = [as_object, as_result, as_argument]
    for identity in identities:
        if (identity, event.stored) in senders:
            return identity, event.stored
    return ASYNC, event.stored


def pair_readers(
    key: MessageKey, senders: Sequence[Event], objects: dict[bytes, list[Event]]
) -> list[tuple[Event, Event]]:
    """Return a sender for each event of a reader: equal messages have the order of their objects."""
    identity, _ = key
    is_channel = identity.startswith("O")  # it has one identity for all of its messages
    pairs = []
    for number, name in enumerate(sorted(objects)):
        readers = objects[name]
        for position, reader in enumerate(readers):
            index = number
            if is_channel:
                index = position * len(senders) // len(readers)
            if index < len(senders):
                pairs.append((senders[index], reader))
    return pairs
