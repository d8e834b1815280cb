# SPDX-License-Identifier: Apache-2.0
"""Find messages that a process receives and sends on, whole or in parts.

Sources: "Anti-pattern: calling ray.get unnecessarily harms performance" in Ray's documentation, and the controllers of
RL systems, which get a batch, split it, and send the parts (verl, SkyRL#982).
"""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum

from raymeter.causes.savings import save_reading, save_sending_all, total
from raymeter.findings import Finding
from raymeter.profile.events import Received
from raymeter.profile.groups import Group, group_messages, in_steps
from raymeter.profile.program import TASK_DIGITS, Message, Program
from raymeter.profile.steps import Steps
from raymeter.units import format_bytes

CAUSE = "through a process that only passes it on"
QUEUE_ACTOR = "_QueueActor"  # of ray.util.queue.Queue
ARGUMENT = (
    "It is an argument there, and Ray gets each argument. Pass `[ref]` in its place: a reference inside of a list "
    "stays one."
)
TAKE_PART = "with the rows that the reader needs, and let the reader take its part."
PER_READER = "Or let the producer return one result per reader (num_returns)."


class Origin(Enum):
    """How a process has received a value."""

    GOT = "in a call of Ray"
    AWAITED = "by awaiting a reference"
    ARGUMENT = "as an argument"


CHANGES = {  # of a value that is sent on as a whole
    Origin.GOT: "If the value is only passed on there: do not call ray.get, and pass the reference.",
    Origin.AWAITED: "If the value is only passed on there: do not await the reference (alone, or with others in "
    "asyncio.gather), but pass it on.",
    Origin.ARGUMENT: f"{ARGUMENT} If the value is only passed on there: pass that reference.",
}
CHANGES_OF_PARTS = {
    Origin.GOT: f"Do not call ray.get there: pass the reference, {TAKE_PART} {PER_READER}",
    Origin.AWAITED: f"Do not await the reference there: pass it, {TAKE_PART} {PER_READER}",
    Origin.ARGUMENT: f"{ARGUMENT} Pass that reference on, {TAKE_PART}",
}
MIN_INSIDE = 0.5  # of the bytes of a message that lie in memory that was received


@dataclass
class Hop:
    """A message that was sent on, and those that it came from."""

    message: Message
    origins: list[Received]


@dataclass
class Memory:
    """Where the messages lie that a process has received: the last one at each address."""

    starts: list[int] = field(default_factory=list)
    owners: list[tuple[int, Received]] = field(default_factory=list)  # end of the memory

    def add(self, received: Received) -> None:
        for address, size in received.leaves:
            position = bisect_right(self.starts, address)
            if position and self.starts[position - 1] == address:
                self.owners[position - 1] = (address + size, received)
            else:
                self.starts.insert(position, address)
                self.owners.insert(position, (address + size, received))

    def owner(self, address: int, size: int) -> Received | None:
        """Return the message in whose memory an array lies."""
        position = bisect_right(self.starts, address) - 1
        if position < 0:
            return None
        end, received = self.owners[position]
        return received if address + size <= end else None


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each line that sends on what was received."""
    hops = find_hops(program)
    by_message = {id(hop.message): hop for hop in hops}
    sent_by = {
        id(received): message for message in program.messages for received in message.received
    }
    findings = []
    for group in group_messages(in_steps([hop.message for hop in hops], steps)):
        origins = [
            origin for message in group.messages for origin in by_message[id(message)].origins
        ]
        findings.append(make_finding(program, steps, group, origins, sent_by))
    return findings


def find_hops(program: Program) -> list[Hop]:
    """Return the messages that lie in memory which the same process has received."""
    memories: dict[str, Memory] = defaultdict(Memory)
    events: list[tuple[float, Received | Message]] = [
        (received.end, received) for received in program.recording.received
    ]
    events += [(message.sent.start, message) for message in program.messages]
    events.sort(key=lambda event: event[0])
    hops = []
    for _, event in events:
        if isinstance(event, Received):
            memories[event.process].add(event)
            continue
        origins = find_origins(memories[event.sent.process], event)
        if origins:
            hops.append(Hop(event, origins))
    return hops


def find_origins(memory: Memory, message: Message) -> list[Received]:
    """Return the received messages that a message was made of; [] if less than MIN_INSIDE of it lies there."""
    inside = 0
    origins: dict[int, Received] = {}
    for address, size in message.sent.leaves:
        owner = memory.owner(address, size)
        if owner is not None:
            inside += size
            origins[id(owner)] = owner
    return list(origins.values()) if inside > MIN_INSIDE * message.sent.bytes else []


def make_finding(
    program: Program,
    steps: Steps,
    group: Group,
    origins: list[Received],
    sent_by: dict[int, Message],
) -> Finding:
    """Return the finding for messages whose sender has received their content before, as `origins`.

    It saves sending the messages, and reading the origins; not that others read the messages. `sent_by` has the message
    of each origin, by the id() of the origin. Reading an origin whose message was not recorded is not counted.
    """
    savings = save_sending_all(program, group.messages)
    unique = {id(origin): origin for origin in origins}
    reads = [
        Message(sent_by[key].sent, sent_by[key].call, [origin])
        for key, origin in unique.items()
        if key in sent_by
    ]
    for message in reads:
        savings += save_reading(message)
    line, *other_lines = find_lines(program, group, list(unique.values()), reads)
    return Finding(
        cause=CAUSE,
        title=describe_hop(group, reads),
        line=line,
        change=describe_change(program, group, origins),
        seconds=total(savings) / steps.count,
        savings=savings,
        messages=[(message.sent.process, message.sent.number) for message in group.messages],
        other_lines=other_lines,
    )


def describe_hop(group: Group, reads: list[Message]) -> str:
    """Return what passes through which process, from whom, and to whom."""
    senders = sorted({message.sent.by_name or "the driver" for message in reads})
    place = "the driver" if group.sender == "driver" else name_actor(group.sender)
    text = (
        f"{format_bytes(group.bytes)} from {', '.join(senders) or 'elsewhere'} pass through {place}"
    )
    return f"{text} on their way to {', '.join(group.readers) or 'no recorded reader'}"


def name_actor(sender: str) -> str:
    """Return the name of a method as its user knows it: a queue of Ray is an actor inside."""
    return "the actor of the queue" if QUEUE_ACTOR in sender else sender


def find_lines(
    program: Program, group: Group, origins: list[Received], reads: list[Message]
) -> list[str]:
    """Return the lines to change, the most important first; [""] if none is known.

    That is the ray.get of the process which passes a message on. An actor that has it as an argument is no such line:
    then it is the line that sends the value to this actor, and after it the lines that ask the actor for it.
    """
    lines = sorted({line_of(program, origin) for origin in origins} - {""})
    senders = sorted({line_that_hands_over(program, message) for message in reads} - {""})
    asking = set()
    for message in group.messages:
        submission = program.submissions.get(message.sent.by)
        if message.call is None and submission is not None:
            asking.add(submission.line)
    others = [*senders, *sorted(asking - {""})]
    own = [] if QUEUE_ACTOR in group.sender else [group.line]
    found = [*lines, *own, *others] if lines else [*others, *own]
    return list(dict.fromkeys(found)) or [""]


def line_that_hands_over(program: Program, message: Message) -> str:
    """Return the line that hands a message to the process which passes it on; "" if it is not known.

    `message.received` has only that process. What was put, or returned by another task, is handed over by the call that
    has its reference as an argument. A result that the process has got by ray.get has no such line.
    """
    if message.how == "argument" and message.call is not None:
        return message.call.line
    lines = []
    for received in message.received:
        submission = program.submissions.get(received.by)
        is_argument = way_of(program, received) is Origin.ARGUMENT
        if submission is not None and is_argument:
            lines.append(submission.line)
    if lines:
        return lines[0]
    return message.call.line if message.call is not None else ""


def line_of(program: Program, received: Received) -> str:
    """Return the line of the ray.get that received a message; "" for an argument."""
    call = program.calls.get((received.process, received.scope))
    return call.line if call is not None else ""


def describe_change(program: Program, group: Group, origins: list[Received]) -> str:
    """Return what to do about messages whose sender has received their content before, as `origins`.

    It depends on the sender: a queue; a method that returns its argument; an actor that stores it, without ray.get;
    code that has it as an argument, or sends a part of it; or else code that passes it on.
    """
    if QUEUE_ACTOR in group.sender:
        return "Put a reference into the queue: `queue.put([ray.put(batch)])`, and `ray.get(queue.get()[0])`."
    is_result = group.messages[0].call is None
    ways = {way_of(program, origin) for origin in origins}
    is_argument = ways == {Origin.ARGUMENT}
    returners = {message.sent.by for message in group.messages}
    if is_result and Origin.ARGUMENT in ways and {origin.by for origin in origins} & returners:
        return (
            "The method returns what it has as an argument: return only what is new, and pass the reference of "
            "the argument to the next reader."
        )
    if is_result and is_argument:
        return (
            "The actor only stores the value and hands it out, so it is copied twice. Send it "
            "`[ray.put(value)]`, let it hand out that list, and call ray.get in the reader."
        )
    is_part = any(origin.bytes > 1.5 * group.bytes for origin in origins)
    changes = CHANGES_OF_PARTS if is_part else CHANGES
    if is_argument:
        return changes[Origin.ARGUMENT]
    return changes[Origin.GOT if Origin.GOT in ways else Origin.AWAITED]


def way_of(program: Program, received: Received) -> Origin:
    """Return how a process has received a message.

    No call of Ray shows an await. The driver has no arguments, and no process gets a result of a task that it has
    submitted itself as an argument.
    """
    if not received.is_argument:
        return Origin.GOT
    processes = program.recording.processes
    drivers = [process.process for process in processes if process.role == "driver"]
    submission = program.submissions.get(received.object[:TASK_DIGITS])
    is_own = submission is not None and submission.process == received.process
    return Origin.AWAITED if is_own or received.process in drivers else Origin.ARGUMENT
