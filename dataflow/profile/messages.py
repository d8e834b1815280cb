"""Find the messages of a profiled program and their causes."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from dataflow.errors import UsageError
from dataflow.profile.events import Event, read_events
from dataflow.profile.steps import find_steps, measure_seconds
from dataflow.units import format_bytes

MIN_VIEW_FACTOR = 1.2  # stored bytes by held bytes, from which on views are a cause
MIN_FIELD_SHARE = 0.1  # of the stored bytes, from which on a field is a cause
MIN_FAULT_SHARE = 0.2  # of the time, from which on page faults are a cause


@dataclass
class Message:
    """All messages with the same sender, line, way, readers and names of fields. Times are seconds per step."""

    place: str  # the method or task that sends it
    line: str
    how: str
    fields: list[list[Any]]  # of the largest one
    start: float  # of the first one
    forwards: str  # the place from which the sender has it
    count: int
    readers: list[str]  # places
    route: str  # sender and readers as text
    get_line: str
    stored_bytes: float
    held_bytes: float
    causes: dict[str, float]  # the work that a change removes at most
    seconds: dict[str, float]  # serialise, write, deserialise, and wait, which is no work
    seconds_per_step: float  # of work
    faults_per_step: float
    senders: int  # processes


@dataclass
class Profile:
    """What a program sends, and what it costs. Times are seconds."""

    schema: int
    step: str  # the method that ends a step; "" if the whole program is one
    steps: int
    step_seconds: float
    fault_seconds: float  # of one page fault
    ray: str
    retained: bool  # processes keep the memory that they free
    missing: list[str]  # functions that this version of Ray does not have
    places: dict[str, float]  # in calls that move data, of the busiest process of each class
    seconds: float
    small_messages: int
    messages: list[Message]
    flow_seconds: float = 0.0  # of the messages in flow.toml, per step


def load_profile(data: dict[str, Any]) -> Profile:
    """Return the profile of a profile.json."""
    messages = [Message(**message) for message in data["messages"]]
    return Profile(**data | {"messages": messages})


@dataclass(frozen=True)
class Work:
    """Seconds per step that all processes spend on a message."""

    serialise: float
    write: float  # the rest of ray.put or .remote()
    deserialise: float
    wait: float  # the rest of ray.get, which is no work

    @property
    def pickling(self) -> float:
        return self.serialise + self.deserialise

    @property
    def total(self) -> float:
        return self.pickling + self.write


class Group:
    """The events of one message, and their numbers per step."""

    def __init__(self, sent: Sequence[Event], steps: int) -> None:
        self.sent = sent
        self.received: list[Event] = []
        for event in sent:
            self.received += event.readers
        self.steps = steps
        self.largest = max(sent, key=lambda event: event.stored)
        self.stored = mean(event.stored for event in sent)
        self.held = mean(event.bytes for event in sent)
        self.faults = self.per_step([*sent, *self.received], "faults")
        self.work = Work(
            serialise=self.per_step(sent, "seconds"),
            write=self.per_step(sent, "other"),
            deserialise=self.per_step(self.received, "seconds"),
            wait=self.per_step(self.received, "wait"),
        )

    def per_step(self, events: Sequence[Event], name: str) -> float:
        """Return the sum per step. Events that imported modules, as torch, count as the median of the others."""
        values = [getattr(event, name) for event in events if not event.imports]
        if not values:
            return 0.0
        importing = len(events) - len(values)
        total = sum(values) + importing * median(values)
        return total / self.steps


def count_repeats(sent: Sequence[Event]) -> float:
    """Return how often an argument was serialised for each time that it had to be: once for all readers."""
    readers: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for number, event in enumerate(sent):
        key = event.process, event.token or -number
        processes = {reader.process for reader in event.readers}
        readers[key].update(processes or {""})
    needed = sum(max(counts.values()) for counts in readers.values())
    return len(sent) / needed


def find_causes(group: Group, fault_seconds: float) -> dict[str, float]:
    """Return the causes of a message, each with the seconds of work per step that its advice removes at most."""
    work = group.work
    sending = work.serialise + work.write
    causes = find_driver_causes(group)
    is_by_value = group.largest.how == "by value"
    repeats = count_repeats(group.sent) if is_by_value else 1.0
    if repeats > 1:
        causes[f"serialised {repeats:.3g} times"] = sending - sending / repeats
    causes |= find_field_causes(group)
    fault_work = group.faults * fault_seconds
    if fault_work > MIN_FAULT_SHARE * work.total:
        causes["page faults"] = min(fault_work, work.pickling)  # they were counted in it
    if any(event.crosses_nodes for event in group.sent):
        causes["another node"] = 0.0
    return causes


def find_driver_causes(group: Group) -> dict[str, float]:
    """Return the cause of a message that its sender has received, or that its reader sends on."""
    causes: dict[str, float] = {}
    work = group.work
    forwarding = [event for event in group.sent if event.forwards]
    sent_on = [event for event in group.received if event.forwarded and event.is_driver]
    if forwarding and group.largest.is_driver:
        share = len(forwarding) / len(group.sent)
        causes["through the driver"] = (work.serialise + work.write) * share
    elif forwarding:
        causes["forwarded"] = 0.0
    if sent_on:
        causes["through the driver"] = group.per_step(sent_on, "seconds")
    return causes


def find_field_causes(group: Group) -> dict[str, float]:
    """Return the causes that follow from what a message holds."""
    causes: dict[str, float] = {}
    work = group.work
    shares = share_fields(group)
    factor = group.stored / max(1, group.held)
    if shares["view"] and factor > MIN_VIEW_FACTOR:
        causes[f"views, stored {factor:.1f} times"] = work.total - work.total / factor
    removable = {
        "numbers": work.total,
        "bytes in the pickle": work.pickling,
        "not contiguous": work.serialise,
        "tensors in the pickle": 0.0 if group.largest.how == "RDT" else work.pickling,
    }
    for cause, seconds in removable.items():
        share = min(1.0, shares[cause])
        if share * seconds:
            causes[cause] = share * seconds
    if shares["pickled by its class"]:  # a setting of Ray does not reach these tensors
        causes["pickled by its class"] = 0.0
    return causes


def share_fields(group: Group) -> Counter[str]:
    """Return, by cause, the share of the stored bytes in fields with this cause. Small fields do not count."""
    shares: Counter[str] = Counter()
    hidden = max(0.0, group.stored - group.held)  # bytes that views store and do not show
    for *_, size, causes in group.largest.fields:
        stored = size + hidden if "view" in causes else size
        share = min(1.0, stored / group.stored)
        if share > MIN_FIELD_SHARE:
            shares.update(dict.fromkeys(causes, share))
    return shares


def describe_message(group: Group, fault_seconds: float) -> Message:
    """Return the message of a group of events."""
    largest = group.largest
    readers = sorted({reader.place for reader in group.received})
    forwards = [event.forwards for event in group.sent if event.forwards]
    get_lines = [reader.line for reader in group.received if reader.how == "get"]
    work = group.work
    return Message(
        place=largest.place,
        line=largest.line,
        how=largest.how,
        fields=largest.fields,
        start=group.sent[0].start,
        forwards=first_or_nothing(forwards),
        count=len(group.sent),
        readers=readers,
        route=f"{largest.place} -> {', '.join(readers) or 'nobody'}",
        get_line=first_or_nothing(get_lines),
        stored_bytes=group.stored,
        held_bytes=group.held,
        causes=find_causes(group, fault_seconds),
        seconds=vars(work),
        seconds_per_step=work.total,
        faults_per_step=group.faults,
        senders=len({event.process for event in group.sent}),
    )


def first_or_nothing(texts: Sequence[str]) -> str:
    """Return the first text, or an empty one."""
    if texts:
        return texts[0]
    return ""


def group_events(events: Sequence[Event]) -> list[list[Event]]:
    """Return the events of senders by message: place, line, way, readers, and names of fields."""
    groups: dict[tuple[Any, ...], list[Event]] = defaultdict(list)
    for event in events:
        if event.side == "sent":
            readers = tuple(sorted({reader.place for reader in event.readers}))
            names = tuple(field[0] for field in event.fields)  # a call can have several arguments
            key = event.place, event.line, event.how, readers, names
            groups[key].append(event)
    return list(groups.values())


def measure_places(events: Sequence[Event]) -> dict[str, float]:
    """Return, by class, the seconds in calls that move data of its busiest process."""
    busy: dict[tuple[str, str], float] = defaultdict(float)
    for event in events:
        if not event.imports:
            busy[event.class_name, event.process] += event.seconds + event.other
    places: dict[str, float] = {}
    for (name, _), seconds in busy.items():
        places[name] = max(seconds, places.get(name, 0.0))
    return places


def make_profile(folder: Path, fault_seconds: float, step: str | None) -> Profile:
    """Return the profile of the program whose processes have written into this folder; raise UsageError without one."""
    processes, events = read_events(folder)
    if not events:
        largest = max(process.largest_small_bytes for process in processes)
        raise UsageError(
            f"the largest message had {format_bytes(largest)}: give --min-bytes {largest // 4}B"
        )
    steps = find_steps(events, step)
    groups = [Group(sent, steps.count) for sent in group_events(events)]
    messages = [describe_message(group, fault_seconds) for group in groups]
    messages.sort(key=lambda message: -message.seconds_per_step)
    return Profile(
        schema=1,
        step=steps.place,
        steps=steps.count,
        step_seconds=steps.seconds,
        fault_seconds=fault_seconds,
        ray=processes[0].ray,
        retained=processes[0].retained,
        missing=processes[0].missing,
        places=measure_places(events),
        seconds=measure_seconds(events),
        small_messages=sum(process.small for process in processes),
        messages=messages,
    )
