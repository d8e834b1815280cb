"""Which number a message has, by its stamp, and that messages under way are told apart."""

import itertools

import pytest
import torch
from payload_ends import FIELDS, pipe, pour

from common.flow.message import Field, Message, flat

# Of the second kind one byte, or a few bits, are all that bears a number.
BEARERS = {
    "a word": flat(8),
    "one byte": flat(1),
    "three bytes": flat(3),
    "fields": FIELDS,
    "bools": Message((Field("mask", "bool", (2, 9)),)),
    "bools before a byte": Message((Field("mask", "bool", (3,)), Field("byte", "uint8", (1,)))),
    "after an empty field": Message((Field("empty", "int64", (0,)), Field("short", "float16", (1,)))),
}
every_bearer = pytest.mark.parametrize("message", BEARERS.values(), ids=BEARERS)


@every_bearer
@pytest.mark.parametrize(("keep", "episode"), [(1, 1), (1, 100), (4, 100)])
def test_numbers_past_what_the_stamp_can_count_are_right(message, keep, episode):
    outbox, inbox = pipe(message, keep + 2, keep)
    for first in range(1, 300, episode):
        for number in range(first, first + episode):
            assert pour(outbox, inbox, number) == number
        assert len(inbox.held) == min(keep, episode)
        assert inbox.verify(first, number, {"policy": outbox.digests})[0] == {}
        assert not inbox.held


@every_bearer
def test_messages_that_arrive_out_of_order_have_their_own_numbers(message):
    outbox, inbox = pipe(message, 6, 4)
    for first in (1, 255, 301):
        for order in itertools.permutations(range(3)):
            inbox.last = inbox.checked = first - 1
            assert [pour(outbox, inbox, first + ahead) for ahead in order] == [first + ahead for ahead in order]
            assert inbox.verify(first, first + 2, {"policy": outbox.digests})[0] == {}
            for number in (*order, order[0]):  # and one of them once more
                pour(outbox, inbox, first + 3 + number)
            assert inbox.verify(first + 3, first + 5, {"policy": outbox.digests})[0]


@pytest.mark.parametrize("bits", [0, 4, 1 << 60, 2**64 - 1], ids=["nothing", "checked", "far ahead", "all ones"])
def test_a_stamp_that_cannot_be_is_a_wrong_stamp_of_the_message_that_is_next(bits):
    """So what its reader sends on is of the trip that is run, and the one edge alone is wrong."""
    outbox, inbox = pipe(flat(64))
    pour(outbox, inbox, 4)
    inbox.verify(4, 4, {"policy": outbox.digests})

    def stamped(payload):
        payload.view(torch.uint8)[:8] = torch.tensor(list(bits.to_bytes(8, "little")), dtype=torch.uint8)
        return payload

    assert pour(outbox, inbox, 5, stamped) == 5
    assert 1 <= inbox.verify(5, 5, {"policy": outbox.digests})[0]["policy -> reward"] <= 8


@pytest.mark.parametrize("message", [*map(flat, (1, 3, 8, 13, 64)), FIELDS], ids=lambda message: f"{message.bytes} B")
@pytest.mark.parametrize("age", range(1, 7))
def test_what_an_earlier_trip_sent_is_wrong(message, age):
    """At multiples of three, of the slots, all but the stamp is the same; with two, buffers in turn would hide it."""
    outbox, inbox = pipe(message)
    inbox.last = inbox.checked = 9
    assert pour(outbox, inbox, 10 - age) == 10
    wrong, _ = inbox.verify(10, 10, {"policy": outbox.digests})
    assert sum(wrong.values()) > (message.bytes / 2 if age % 3 and message.bytes > 13 else 0)


def test_fields_on_another_device_are_wrong_as_a_whole():
    outbox, inbox = pipe(FIELDS)
    pour(outbox, inbox, 1)
    inbox.device = "cuda"
    wrong, _ = inbox.verify(1, 1, {"policy": outbox.digests})
    tensors = [field for field in FIELDS.fields if not field.python]
    assert wrong == {f"policy -> reward, {field.name}": max(1, field.bytes) for field in tensors}
