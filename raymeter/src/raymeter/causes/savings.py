"""Make the savings of messages: which time of which event gets shorter."""

from collections.abc import Iterable

from raymeter.findings import Saving
from raymeter.profile.groups import own_call_seconds, store_seconds
from raymeter.profile.program import Message, Program

CALL_SECONDS = 0.0002  # that a call of Ray with a small message takes in any case


def save_sending(program: Program, message: Message, share: float = 1.0) -> list[Saving]:
    """Return what sending one message takes its sender, times a share: the call, or storing the result of the task."""
    sent = message.sent
    call = message.call
    if call is not None:
        needed = max(0.0, own_call_seconds(message) - CALL_SECONDS)
        seconds = share * needed / max(1, len(call.messages))
        start = call.start + call.seconds / 2
        return [Saving(call.process, call.thread, start, seconds, "call")]
    if message.stored is not None:
        seconds = share * store_seconds(message)
        start = middle(message.stored)
        return [Saving(sent.process, 0, start, seconds, "store")]
    seconds = share * sent.seconds
    start = sent.start + sent.seconds / 2
    return [Saving(sent.process, sent.thread, start, seconds, "serialise")]


def save_reading(message: Message, share: float = 1.0) -> list[Saving]:
    """Return what reading one message takes each of its readers, times a share."""
    savings = []
    for received in message.received:
        start = received.start + received.seconds / 2
        seconds = share * received.seconds
        saving = Saving(received.process, received.thread, start, seconds, "deserialise")
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


def middle(phase: tuple[float, float]) -> float:
    start, end = phase
    return (start + end) / 2
