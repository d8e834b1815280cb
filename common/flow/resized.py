"""The same flow with other bytes: its flat messages scaled in proportion, or cut into several tensors."""

from collections.abc import Callable
from dataclasses import replace

from common.flow.flow import Flow
from common.flow.message import ITEM_BYTES, WORD, Field, Message, flat

WORD_BYTES = WORD.bytes


def scaled_to(flow: Flow, trip_bytes: int) -> Flow:
    """A trip of about so many bytes: every message the same share of it, in whole words, so that all stay int64.

    A word that only ends a trip, or starts it, stays one.

    Raises:
        ValueError: messages are no flat tensors, or would be less than a word.
    """
    if not flow.bare:
        raise ValueError(f"--payload scales flat messages, and {flow.name} has messages of fields: give their own "
                         "sizes, --rows say")  # fmt: skip
    words = sum(edge.bytes for edge in flow.edges if edge.message == WORD)
    if words == flow.bytes_per_trip:  # a flow of words alone: they are its payload
        words = 0
    least = words + WORD_BYTES * sum(not words or edge.message != WORD for edge in flow.edges)
    if trip_bytes < least:
        raise ValueError(f"--payload {trip_bytes}: a trip of {flow.name} has {len(flow.edges)} messages of at least a "
                         f"word: give {least} or more")  # fmt: skip
    factor = (trip_bytes - words) / (flow.bytes_per_trip - words)

    def scaled(message: Message) -> Message:
        return flat(WORD_BYTES * max(1, round(message.bytes * factor / WORD_BYTES)))

    return _with(flow, scaled, words > 0)


def cut_into(flow: Flow, count: int) -> Flow:
    """Each flat message as a dict of `count` tensors, alike but for an item, with the same bytes.

    Raises:
        ValueError: messages are no flat tensors, or have fewer items.
    """
    if not flow.bare:
        raise ValueError(f"--fields cuts flat messages, and {flow.name} has messages of fields already: leave it out")
    names = [f"part_{index}" for index in range(count)]

    def cut(message: Message) -> Message:
        whole = message.fields[0]
        items, more = divmod(message.bytes // ITEM_BYTES[whole.dtype], count)
        if not items:
            raise ValueError(f"--fields {count}: a message of {flow.name} has {message.bytes} bytes: give fewer, or "
                             "larger messages")  # fmt: skip
        return Message(tuple(Field(name, whole.dtype, (items + (n < more),)) for n, name in enumerate(names)))

    return _with(flow, cut, True)


def _with(flow: Flow, change: Callable[[Message], Message], keep_words: bool) -> Flow:
    def changed(message: Message) -> Message:
        return message if keep_words and message == WORD else change(message)

    tasks = tuple(replace(task, emits=changed(task.emits)) for task in flow.tasks)
    return replace(flow, query=changed(flow.query), tasks=tasks)
