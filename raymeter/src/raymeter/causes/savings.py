"""Make the savings of messages: which time of which event gets shorter."""

from collections.abc import Iterable

from raymeter.findings import Saving
from raymeter.profile.groups import own_call_seconds, store_seconds
from raymeter.profile.program import Message, Program

CALL_SECONDS = 0.0002  # that a call of Ray with a small message takes in any case


def save_sending(program: Program, message: Message, share: float = 1.0) -> list[Saving]:
    """Return what sending one message takes its sender, times a share: the call, or storing the result of the task."""
    sent = message.sent
    if message.call is None:
        if message.stored is None:
            start = sent.start + sent.seconds / 2
            return [Saving(sent.process, sent.thread, start, share * sent.seconds, "serialise")]
        seconds = share * store_seconds(message)
        return [Saving(sent.process, 0, middle(message.stored), seconds, "store")]
    call = message.call
    seconds = max(0.0, own_call_seconds(message) - CALL_SECONDS) / max(1, len(call.messages))
    return [
        Saving(call.process, call.thread, call.start + call.seconds / 2, share * seconds, "call")
    ]


def save_reading(message: Message, share: float = 1.0) -> list[Saving]:
    """Return what reading one message takes each of its readers, times a share."""
    savings = []
    for received in message.received:
        start = received.start + received.seconds / 2
        seconds = share * received.seconds
        savings.append(Saving(received.process, received.thread, start, seconds, "deserialise"))
    return savings


def total(savings: Iterable[Saving]) -> float:
    return sum(saving.seconds for saving in savings)


def middle(phase: tuple[float, float]) -> float:
    return (phase[0] + phase[1]) / 2
