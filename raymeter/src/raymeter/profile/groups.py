# SPDX-License-Identifier: Apache-2.0
"""Group the messages of a program that are sent from one line, or returned by one method, in one way."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from statistics import mean

from raymeter.profile.events import Field, Sent
from raymeter.profile.program import Message, Program
from raymeter.profile.steps import Steps


@dataclass
class Group:
    """Messages of one kind. Times are sums over all of them, without those whose sender imported modules meanwhile."""

    messages: list[Message]
    others: list[Message] = field(default_factory=list)  # of the same kind, outside of the steps

    @property
    def described(self) -> list[Message]:
        """Return the messages that say what all of this kind consist of."""
        return [*self.messages, *self.others]

    @property
    def first(self) -> Sent:
        return self.messages[0].sent

    @property
    def how(self) -> str:
        return self.messages[0].how

    @property
    def line(self) -> str:
        """Return the line of the user's code that sends the messages."""
        call = self.messages[0].call
        return call.line if call is not None else self.first.line

    @property
    def sender(self) -> str:
        return self.first.by_name or "driver"

    @property
    def readers(self) -> list[str]:
        names = {
            received.by_name or "driver"
            for message in self.messages
            for received in message.received
        }
        return sorted(names)

    @property
    def type(self) -> str:
        return self.first.type

    @property
    def bytes(self) -> float:
        """Return the mean size of a message."""
        return mean(message.sent.bytes for message in self.messages)

    @property
    def inband_share(self) -> float:
        """Return the share of the bytes that lies inside of the pickle."""
        inband = sum(message.sent.inband_bytes for message in self.messages)
        return inband / sum(message.sent.bytes for message in self.messages)

    @property
    def fields(self) -> list[Field]:
        """Return the fields of the first message that was described."""
        return next((message.sent.fields for message in self.described if message.sent.fields), [])

    def seconds(self) -> float:
        """Return what sending and reading all of these messages took, in all processes together."""
        sending = sum(message.sent.weight * send_seconds(message) for message in self.messages)
        reading = sum(read_seconds(message) for message in self.messages)
        return sending + reading

    @property
    def count(self) -> float:
        """Return how many messages were sent, with those that were left out."""
        sent = [message.sent for message in self.messages if not message.is_only_read]
        return sum(item.weight for item in sent)

    @property
    def reads(self) -> float:
        """Return how often these messages were read, each by all of its readers, with those that were left out."""
        return sum(item.weight for message in self.messages for item in message.received)


def send_seconds(message: Message) -> float:
    """Return what one message took its sender: serialising, and the copy into the store if it is known."""
    if message.is_only_read:
        return 0.0
    if message.call is None:
        return max(message.sent.seconds, store_seconds(message))
    return own_call_seconds(message) / max(1, len(message.call.messages))


def own_call_seconds(message: Message) -> float:
    """Return the time of the call that sent a message, without that of the recorder."""
    if message.call is None:
        return 0.0
    return max(message.sent.seconds, message.call.seconds - message.call.own_seconds)


def read_seconds(message: Message) -> float:
    """Return what reading one message took all of its readers, without the wait for it."""
    return sum(received.weight * received.seconds for received in message.received)


def store_seconds(message: Message) -> float:
    """Return how long the task that returned a message stored it; 0 for other messages."""
    if message.stored is None:
        return 0.0
    start, end = message.stored
    seconds = (end - start - message.recorder_in_store) / message.in_one_store
    return max(message.sent.seconds, seconds)


def group_messages(messages: Iterable[Message]) -> list[Group]:
    """Return the groups of these messages, those that took most time first."""
    groups: dict[tuple[str, ...], list[Message]] = defaultdict(list)
    for message in messages:
        line = message.call.line if message.call else message.sent.line
        key = (message.how, line, message.sent.by_name, message.sent.type)
        groups[key].append(message)
    ordered = [Group(group) for group in groups.values()]
    ordered.sort(key=lambda group: group.seconds(), reverse=True)
    return ordered


def in_steps(messages: Iterable[Message], steps: Steps) -> list[Message]:
    """Return the messages that were sent during the steps."""
    return [message for message in messages if steps.of(message.sent.start) is not None]


def moved_in_steps(messages: Iterable[Message], steps: Steps) -> list[Message]:
    """Return the messages that were sent or read during the steps.

    What was put before the steps may be read in each of them, by each task that has it as an argument. Of such a
    message, only that reading counts.
    """
    moved = []
    for message in messages:
        if steps.of(message.sent.start) is not None:
            moved.append(message)
            continue
        read = [item for item in message.received if steps.of(item.start) is not None]
        if read:
            moved.append(replace(message, received=read, is_only_read=True))
    return moved


def groups_in_steps(program: Program, steps: Steps) -> list[Group]:
    """Return the groups of the messages that move during the steps. What other ones consist of is known, too."""
    groups = []
    for group in group_messages(program.messages):
        inside = moved_in_steps(group.messages, steps)
        known = {id(message.sent) for message in inside}
        others = [message for message in group.messages if id(message.sent) not in known]
        if inside:
            groups.append(Group(inside, others))
    return groups
