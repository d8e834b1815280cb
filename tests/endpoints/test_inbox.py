"""Test when messages are freed, and that a message with another sequence number than the next one is wrong."""

import weakref

import pytest
from in_process import FIELDS, LocalEdge

from dataflow.flows.message import flat_message


@pytest.mark.parametrize(("keep", "group"), [(1, 1), (1, 4), (2, 2), (2, 4)])
def test_a_message_is_freed_while_a_newer_one_is_taken_and_never_by_a_verification(keep, group):
    """So its time is inside the clock, or outside of it, in every mode: here it is inside."""
    edge, freed = LocalEdge(flat_message(64), keep + 2, keep), []
    for number in range(1, 9):

        def mark(payload, number=number):
            weakref.finalize(payload, freed.append, number)
            return payload

        edge.send(number, mark)
        assert freed == list(range(1, number - keep + 1))
        if number % group == 0:
            assert edge.verify(number - group + 1, number) == {}
            assert freed == list(range(1, number - keep + 1))


@pytest.mark.parametrize("message", [*map(flat_message, (1, 3, 8, 13, 64)), FIELDS], ids=lambda m: f"{m.bytes} B")
def test_a_message_of_an_earlier_iteration_is_wrong(message):
    """At multiples of the three slots, only the number differs. With two slots, a pair of buffers could hide it."""
    for age in range(1, 7):
        edge = LocalEdge(message)
        edge.inbox.last = 9
        assert edge.send(10 - age) == 10
        assert sum(edge.verify(10).values()) > (message.bytes / 2 if age % 3 and message.bytes > 13 else 0)
