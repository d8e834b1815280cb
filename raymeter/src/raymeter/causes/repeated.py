# SPDX-License-Identifier: Apache-2.0
"""Find content that is sent again although it has not changed.

Sources: "Anti-pattern: passing the same large argument by value repeatedly harms performance" and "Anti-pattern:
returning ray.put() ObjectRefs" in Ray's documentation of design patterns, and reports such as ray#61379.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from statistics import mean

from raymeter.causes.savings import save_reading, save_sending, total
from raymeter.causes.unchanged import find_unchanged, identity_of
from raymeter.findings import Finding, Saving
from raymeter.profile.groups import Group, group_messages, in_steps
from raymeter.profile.program import Message, Program
from raymeter.profile.steps import Steps
from raymeter.units import format_bytes, format_times

PartKey = tuple[str, int, int]  # process, bytes and sum of samples

MIN_SHARE = 0.4  # of a message that was sent before
MAX_KEPT = 8  # contents of a line, to which one would keep references
MIN_READING_SHARE = (
    0.3  # of sending and reading the same content again, from which on it is worth keeping it
)
CAUSE = "the same content is sent again"
KEEP = (
    "Give the value to each actor once, as an argument of its constructor (of a pool: of its initializer) or of a "
    "method that keeps it, and send only what changes."
)
MIN_PER_STEP = 0.5  # repeats; else most steps have none, and an equal content may be chance
PRICE_OF_KEEPING = "the actors must not change the value that they keep."
CHANGES = {
    "argument": "Call `ref = ray.put(value)` once, before the loop over the readers (or over the steps, while the "
    "value does not change), and pass `ref`.",
    "put": "Call ray.put once, and keep the reference as long as the value does not change.",
    "result": "Keep `self.ref = ray.put(value)` in the actor, and return `[self.ref]` until the value changes.",
    "channel": "Write the value once, and let the readers keep it.",
}


@dataclass(frozen=True)
class RepeatedShare:
    """How much of a message was sent before, and how much is equal to another part of it: bytes, or shares of them."""

    sent_before: float
    inside: float

    @property
    def total(self) -> float:
        return self.sent_before + self.inside


@dataclass(frozen=True)
class Said:
    """What is said of repeated parts."""

    title: str
    change: str
    price: str = ""


SENT_BEFORE = Said(
    "were sent before, and have not changed",
    "Store that part once, `ref = ray.put(part)`, as long as it does not change. Pass `ref` as an argument of its own, "
    "beside what changes.",
)
EQUAL_PARTS = Said(
    "are equal to other parts of the same message",
    "Let equal parts be one object, and no copies: Ray sends an object once that stands several times in a message.",
    "the reader gets one object for them, too, so what it writes into one of them is in all.",
)


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each line that sends equal content again, as whole messages or inside of them."""
    findings = []
    repeated: set[int] = set()
    for group in group_messages(program.messages):
        found = find_repeats(group.messages) or find_unchanged(program, group.messages)
        repeated |= {id(message) for message in found}
        repeats = in_steps(found, steps)
        if repeats:
            line = in_steps(group.messages, steps)
            reading = save_reading_again(group.messages, repeats, line)
            factor = factor_of_repeats(repeats, line, with_content(line))
            if factor * Group(repeats).count < MIN_PER_STEP * steps.count:
                continue
            finding = make_finding(program, steps, Group(repeats), reading, factor)
            findings.append(finding)
    others = [message for message in program.messages if id(message) not in repeated]
    return findings + find_parts(program, steps, others)


def find_repeats(messages: list[Message]) -> list[Message]:
    """Return the messages of one line whose content was sent before, by the same process or by another one.

    Return [] if a comparison of all bytes has shown a difference. Without a comparison, only what is put or an argument
    can be a repeat, by a sum of all its bytes. What comes back
    after many other contents is none: one would have to keep a reference to each of them.
    """
    verified = [message.sent.is_same for message in messages]
    if False in verified:
        return []
    is_verified = True in verified
    seen = Latest()
    wholes = Latest()
    repeats = []
    for message in messages:
        sent = message.sent
        if not sent.content:
            continue
        was_sent = seen.has_had(identity_of(message))
        was_sent_by_any = wholes.has_had((sent.content, sent.whole))
        is_elsewhere = message.how in ("put", "argument") and sent.whole and was_sent_by_any
        if is_elsewhere or (is_verified and was_sent):
            repeats.append(message)
    return repeats


class Latest:
    """The contents that were sent last: as many as one would keep references to."""

    def __init__(self) -> None:
        self.keys: dict[Hashable, None] = {}  # in the order in which they were sent last

    def has_had(self, key: Hashable) -> bool:
        """Return whether a content is one of the latest, and let it be the last one."""
        is_known = key in self.keys
        self.keys.pop(key, None)
        self.keys[key] = None
        if len(self.keys) > MAX_KEPT:
            oldest = next(iter(self.keys))
            del self.keys[oldest]
        return is_known


def with_content(line: list[Message]) -> list[Message]:
    """Return the messages of which it is known whether their content was sent before."""
    return [message for message in line if message.sent.content]


def factor_of_repeats(repeats: list[Message], line: list[Message], known: list[Message]) -> float:
    """Return by what to multiply the weights of repeats, so that they stand for all repeats of their line.

    line: all written messages of a line in the steps, which stand for the left-out ones, too; known: those of which it
    is known whether they are repeats, with the repeats among them. Of all others, as large a share are repeats. The
    factor is below 1 if the weights of the repeats also stand for messages that are none.
    """
    weight = sum(message.sent.weight for message in line)
    weight_of_repeats = sum(message.sent.weight for message in repeats)
    share = len(repeats) / max(1, len(known))
    return share * weight / weight_of_repeats


def save_reading_again(
    messages: list[Message], repeats: list[Message], line: list[Message]
) -> list[Saving]:
    """Return what actors save if they keep the content of arguments that they have read before.

    ray.put alone saves no reading: an actor reads an argument in each call. That takes no time worth saving if it is
    an array in the store. `line` are those of the messages that are in the steps, and `repeats` those of the line
    whose content was sent before. Return [] if one of the messages is no argument of a method.
    """
    counted = {id(message) for message in repeats}
    seen: set[tuple[str, int]] = set()
    again: list[Message] = []
    for message in messages:
        if message.call is None or message.call.kind != "method":
            return []
        if not message.sent.content:
            continue
        before = [item for item in message.received if (item.process, message.sent.content) in seen]
        if id(message) in counted:
            again.append(Message(message.sent, message.call, before))
        seen |= {(item.process, message.sent.content) for item in message.received}
    return save_reading_of(again, line)


def save_reading_of(repeats: list[Message], line: list[Message]) -> list[Saving]:
    """Return what reading repeats takes. Of left-out messages, as large a share were read as of the known ones."""
    read = weights_of_readers(line)
    read_again = weights_of_readers(repeats)
    if not read_again:
        return []
    known = weights_of_readers(with_content(line))
    share = len(read_again) / max(1, len(known))
    factor = share * sum(read) / sum(read_again)
    savings = []
    for message in repeats:
        savings += save_reading(message, factor)
    return savings


def weights_of_readers(messages: list[Message]) -> list[float]:
    weights = []
    for message in messages:
        weights += [received.weight for received in message.received]
    return weights


def find_parts(program: Program, steps: Steps, messages: list[Message]) -> list[Finding]:
    """Return a finding for each line whose messages have large arrays that were sent before, or stand there twice."""
    shares = repeated_shares(messages)
    lines = group_messages(in_steps(messages, steps))
    findings = []
    for line in lines:
        repeats = [message for message in line.messages if id(message) in shares]
        if repeats:
            described = [message for message in line.messages if not message.sent.is_short]
            factor = factor_of_repeats(repeats, line.messages, described)
            findings.append(make_finding_of_parts(program, steps, Group(repeats), shares, factor))
    return findings


def repeated_shares(messages: list[Message]) -> dict[int, RepeatedShare]:
    """Return for messages, by their id(), which share of their bytes the same process has sent before.

    An array that stands twice in a message counts the second time. Only arrays count of which all bytes were compared
    and never differed, in messages that are put or arguments, and shares of MIN_SHARE or more.
    """
    known = never_different(messages)
    seen: set[PartKey] = set()
    shares = {}
    for message in messages:
        size = max(1, message.sent.bytes)
        repeated = share_of_parts(message, known, seen)
        share = RepeatedShare(repeated.sent_before / size, repeated.inside / size)
        if share.total >= MIN_SHARE and message.how in ("put", "argument"):
            shares[id(message)] = share
    return shares


def never_different(messages: list[Message]) -> set[PartKey]:
    """Return the arrays of which all bytes were compared with an earlier one, and were the same each time."""
    differ: set[PartKey] = set()
    verified: set[PartKey] = set()
    for message in messages:
        for size, samples, is_same in message.sent.parts:
            key = message.sent.process, size, samples
            if is_same is False:
                differ.add(key)
            elif is_same:
                verified.add(key)
    return verified - differ


def share_of_parts(message: Message, known: set[PartKey], seen: set[PartKey]) -> RepeatedShare:
    """Return how many bytes of a message were seen before, and how many stand twice in it; add its parts to `seen`."""
    own: set[PartKey] = set()
    sent_before = 0
    inside = 0
    for size, samples, _ in message.sent.parts:
        key = message.sent.process, size, samples
        if key in known and key in seen:
            sent_before += size
        elif key in known and key in own:
            inside += size
        own.add(key)
    seen |= own
    return RepeatedShare(sent_before, inside)


def make_finding_of_parts(
    program: Program,
    steps: Steps,
    group: Group,
    shares: dict[int, RepeatedShare],
    factor: float,
) -> Finding:
    """Return the finding for messages of which a part was sent before, or is in them twice.

    shares: of each message, by its id(). factor: the part of the group for which this holds, if not all were looked at.
    """
    savings = []
    for message in group.messages:
        share = factor * shares[id(message)].total
        savings += save_sending(program, message, share)
    own = [shares[id(message)] for message in group.messages]
    sizes = [shares[id(message)].total * message.sent.bytes for message in group.messages]
    again = format_bytes(mean(sizes))
    is_inside = sum(share.inside for share in own) > sum(share.sent_before for share in own)
    said = EQUAL_PARTS if is_inside else SENT_BEFORE
    return Finding(
        cause=CAUSE,
        title=f"{again} of the {format_bytes(group.bytes)} in each message ({group.type}) {said.title}",
        line=group.line,
        change=said.change,
        price=said.price,
        seconds=total(savings) / steps.count,
        savings=savings,
        messages=[(message.sent.process, message.sent.number) for message in group.messages],
    )


def make_finding(
    program: Program, steps: Steps, group: Group, reading: list[Saving], factor: float
) -> Finding:
    """Return the finding for messages that have the same content.

    reading: what is saved if each actor keeps what it has read; it is advised only if that is a large part of all.
    factor: the part of the group that is sent again.
    """
    savings = []
    for message in group.messages:
        savings += save_sending(program, message, factor)
    is_read_again = total(reading) >= MIN_READING_SHARE * (total(reading) + total(savings))
    is_kept = bool(reading) and is_read_again
    if is_kept:
        savings += reading
    per_step = factor * group.count / steps.count
    size = format_bytes(group.bytes)
    title = f"The same {size} are sent again {format_times(per_step)} per step"
    if per_step > 1:
        title += f" ({group.type}{name_readers(group)})"
    if is_kept:
        title += ", and read again by the same actors"
    return Finding(
        cause=CAUSE,
        title=title,
        line=group.line,
        change=KEEP if is_kept else CHANGES.get(group.how, CHANGES["argument"]),
        price=PRICE_OF_KEEPING if is_kept else "",
        seconds=total(savings) / steps.count,
        savings=savings,
        messages=[(message.sent.process, message.sent.number) for message in group.messages],
    )


def name_readers(group: Group) -> str:
    """Return ", to 4 processes"; "" if no reader is known."""
    count = len(reader_processes(group))
    if not count:
        return ""
    return ", to one process" if count == 1 else f", to {count} processes"


def reader_processes(group: Group) -> set[str]:
    processes = set()
    for message in group.messages:
        processes |= {received.process for received in message.received}
    return processes
