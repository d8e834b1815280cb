# SPDX-License-Identifier: Apache-2.0
"""Let the calls and messages that were written stand for those of their line that were left out next to them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from raymeter.profile.counted import sampled_lines
from raymeter.profile.events import Call, CountedLine, LeftOut, Process, Received, Sent
from raymeter.profile.reader import Recording

Line = tuple[str, str]  # with its function
LineKey = tuple[str, Line, str, str]  # process, line, what is called, and how
MessageKey = tuple[str, str, str, str]  # process, line, name of the task, and type of what is sent
ReaderKey = tuple[str, str, str]  # process, line, and name of the task
ROUNDED_UP = 1 + 1e-9  # of a mean, which may be smaller than each of many equal numbers


@dataclass
class Burst:
    """Messages that were written with none left out between them, and those that were left out after them."""

    events: list[Sent | Received] = field(default_factory=list)
    left_out: int = 0
    seconds: float | None = 0.0  # that these took; None if that is unknown

    def leave_out(self, count: int, seconds: float | None) -> None:
        self.left_out += count
        is_known = self.seconds is not None and seconds is not None
        self.seconds = (self.seconds or 0.0) + (seconds or 0.0) if is_known else None


def weigh_calls(recording: Recording) -> None:
    """Let each call stand for those that its line has made until the next one that was written.

    So a phase with many calls and one with few are not mixed up. Calls that were made again share what is left.
    """
    groups: dict[LineKey, list[Call]] = defaultdict(list)
    for call in recording.calls:
        line = call.line, call.function
        key = call.process, line, call.name, call.event
        same_line = groups[key]
        same_line.append(call)
    for process in recording.processes:
        name = process.process
        for item in sampled_lines(process):
            line = item.line, item.function
            key = name, line, item.name, item.kind
            calls = groups.get(key, [])
            if calls:
                weigh_line(calls, item)


def weigh_messages(recording: Recording) -> None:
    """Let messages stand for those like them that were left out until the next one that was written, or the end.

    The weights of a kind sum up to the number of all messages. Their seconds, times the weights, sum up to the time of
    all, which the recorder knows also of those that it has left out. Which of them are written depends on how long they
    take: slow ones are written over the budget, too, and a budget often ends in a slow one. So equal weights would
    take the written ones for longer or shorter than the others are.
    """
    kinds: dict[MessageKey, list[Burst]] = {}
    events: list[Sent | Received] = [*recording.sent, *recording.received]
    for event in events:
        event.weight = 1.0
        key = message_key(event)
        bursts = kinds.setdefault(key, [])
        if not bursts:
            bursts.append(Burst())
        elif event.left_out:
            bursts[-1].leave_out(event.left_out, event.left_out_seconds)
            bursts.append(Burst())
        bursts[-1].events.append(event)
    for process in recording.processes:
        name = process.process
        for item in left_out_at_end(process):
            kind = ""
            if item.kind == "sent":
                kind = item.type
            key = name, item.line, item.by_name, kind
            if key in kinds:
                last = kinds[key][-1]
                last.leave_out(item.count, item.seconds)
    for bursts in kinds.values():
        weigh_bursts(bursts)


def weigh_bursts(bursts: list[Burst]) -> None:
    """Let the messages of a kind stand for those that were left out, if possible after the same burst."""
    rest = Burst()
    for burst in bursts:
        rest.events += burst.events
        if burst.seconds is None:  # of an older profile
            burst.events[-1].weight += burst.left_out
        elif burst.left_out and not share_out(burst):
            rest.leave_out(burst.left_out, burst.seconds)
    if rest.left_out and not share_out(rest):
        add_weight(rest.events, rest.left_out)


def share_out(burst: Burst) -> bool:
    """Let the written messages of a burst stand for those left out, so that their count and their seconds are right.

    Some messages must be left out, and their seconds known. Messages longer than the mean of those left out get one
    part of the weight, shorter ones the rest. Return False, and change no weight, if all are longer, or none is.
    """
    mean = ROUNDED_UP * (burst.seconds or 0.0) / burst.left_out
    shorter = [event for event in burst.events if event.seconds <= mean]
    longer = [event for event in burst.events if event.seconds > mean]
    if not shorter or not longer:
        return False
    low = fmean(event.seconds for event in shorter)
    high = fmean(event.seconds for event in longer)
    share = (mean - low) / (high - low)
    count_of_longer = share * burst.left_out
    add_weight(longer, count_of_longer)
    add_weight(shorter, burst.left_out - count_of_longer)
    return True


def add_weight(events: Sequence[Sent | Received], count: float) -> None:
    """Let events stand for so many more, in equal parts."""
    each = count / len(events)
    for event in events:
        event.weight += each


def message_key(event: Sent | Received) -> MessageKey:
    kind = ""
    if isinstance(event, Sent):
        kind = event.type
    return event.process, event.line, event.by_name, kind


def left_out_at_end(process: Process) -> list[LeftOut]:
    """Return the messages that were left out after the last ones that a process has written."""
    cost = process.recorder
    if cost is None:
        return []
    return cost.last_left_out


def leaves_out_messages(recording: Recording) -> bool:
    """Return whether some large messages were not written, or not everywhere."""
    costs = [process.recorder for process in recording.processes]
    return any(cost.left_out_messages for cost in costs if cost is not None)


def weigh_readers(received: list[Received], joined: set[int]) -> None:
    """Let what was read of the messages that are known, by id(), also stand for what was read of others.

    Sender and readers leave messages out on their own, so that many of those that are read have no sender.
    """
    all_weights: dict[ReaderKey, float] = defaultdict(float)
    known_weights: dict[ReaderKey, float] = defaultdict(float)
    for item in received:
        key = reader_key(item)
        all_weights[key] += item.weight
        if id(item) in joined:
            known_weights[key] += item.weight
    for item in received:
        key = reader_key(item)
        if key not in known_weights:
            continue
        if id(item) in joined:
            factor = all_weights[key] / known_weights[key]
            item.weight *= factor
        else:
            item.weight = 0.0


def reader_key(received: Received) -> ReaderKey:
    return received.process, received.line, received.by_name


def weigh_line(calls: list[Call], item: CountedLine) -> None:
    """Let each call of a line stand for itself and those left out after it, until the next one that was written.

    calls: in the order of time, at least one. Calls that were made again share this weight with the written one before
    them. If it is not known when calls were left out, all weights are equal.
    """
    left_out = [call.left_out for call in calls]
    if not any(left_out):  # it is not known when they were made
        set_weights(calls, item.count)
        return
    first, *others = calls
    part = [first]
    for call in others:
        if not call.is_restored:
            set_weights(part, 1 + call.left_out)
            part = []
        part.append(call)
    known = item.written
    known += sum(left_out)
    at_end = item.count - known
    set_weights(part, 1 + at_end)


def set_weights(calls: list[Call], count: int) -> None:
    """Let these calls stand for so many, and each at least for itself."""
    weight = max(1.0, count / len(calls))
    for call in calls:
        call.weight = weight
