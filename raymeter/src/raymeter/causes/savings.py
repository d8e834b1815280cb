# SPDX-License-Identifier: Apache-2.0
"""Make the savings of messages: which time of which event gets shorter."""

from collections.abc import Iterable
from dataclasses import replace

from raymeter.findings import Saving
from raymeter.profile.events import Call, Sent
from raymeter.profile.groups import own_call_seconds, store_seconds
from raymeter.profile.program import Message, Phase, Program

CALL_SECONDS = 0.0002  # that a call of Ray with a small message takes in any case


def save_sending(program: Program, message: Message, share: float = 1.0) -> list[Saving]:
    """Return what sending one message takes its sender, times a share: the call, or storing the result of the task.

    It counts for the messages that were left out, too, whose work is in later events. What was sent outside of the
    steps saves nothing.
    """
    if message.is_only_read:
        return []
    weight = message.sent.weight
    share_of_all = weight * share
    is_spread = weight > 1 or share > 1
    if message.call is not None:
        saving = save_in_call(message, message.call, share_of_all)
    elif message.stored is not None:
        saving = save_storing(message, message.stored, share_of_all)
    else:
        saving = save_serialising(message.sent, share_of_all)
    if is_spread:
        saving = spread_over_later(saving, message)
    return [saving]


def spread_over_later(saving: Saving, message: Message) -> Saving:
    """Return a saving that also stands for messages that were left out, and whose work is in later events.

    What was put without being written has no call: it seems to be the code between two others.
    """
    part = saving.part
    is_put = message.call is not None and message.call.event in ("put", "channel")
    if is_put and part == "call":
        part = "send"
    return replace(saving, part=part, is_spread=True)


def save_in_call(message: Message, call: Call, share: float) -> Saving:
    """Return the part of a call that one of its messages takes."""
    own_seconds = own_call_seconds(message)
    needed = max(0.0, own_seconds - CALL_SECONDS)
    messages = max(1, len(call.messages))
    seconds = share * needed / messages
    start = call.start + call.seconds / 2
    return Saving(call.process, call.thread, start, seconds, "call")


def save_storing(message: Message, stored: Phase, share: float) -> Saving:
    """Return what storing the result of a task takes."""
    seconds = share * store_seconds(message)
    start = middle(stored)
    process = message.sent.process
    return Saving(process, 0, start, seconds, "store")


def save_serialising(sent: Sent, share: float) -> Saving:
    """Return what serialising a message takes."""
    seconds = share * sent.seconds
    start = sent.start + sent.seconds / 2
    return Saving(sent.process, sent.thread, start, seconds, "serialise")


def save_reading(message: Message, share: float = 1.0) -> list[Saving]:
    """Return what reading one message takes each of its readers, times a share."""
    savings = []
    for received in message.received:
        start = received.start + received.seconds / 2
        weight = received.weight
        seconds = weight * share * received.seconds
        process = received.process
        thread = received.thread
        is_spread = weight > 1 or share > 1
        saving = Saving(process, thread, start, seconds, "deserialise", is_spread)
        savings.append(saving)
    return savings


def save_sending_all(program: Program, messages: Iterable[Message]) -> list[Saving]:
    """Return what sending these messages takes their senders."""
    savings = []
    for message in messages:
        savings += save_sending(program, message)
    return savings


def total(savings: Iterable[Saving]) -> float:
    return sum(saving.seconds for saving in savings)


def middle(phase: Phase) -> float:
    start, end = phase
    return (start + end) / 2
