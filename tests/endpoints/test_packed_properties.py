# SPDX-License-Identifier: Apache-2.0
"""Properties of packed messages: every byte has its place, and unpacking gives what was packed."""

from itertools import pairwise

import torch
from endpoints.test_tensors import assert_equal, send
from hypothesis import assume, given
from hypothesis import strategies as st
from made_inputs import messages

from dataflow.endpoints.tensors import tensors_of, to_array, unpack
from dataflow.flows.message import ALIGNMENT_BYTES, jagged_message


@given(messages())
def test_fields_are_aligned_in_their_order_and_do_not_overlap(message):
    assert [span.stop - span.start for span in message.spans] == [f.bytes for f in message.fields]
    assert all(span.start % ALIGNMENT_BYTES == 0 for span in message.spans)
    for before, after in pairwise(message.spans):
        assert 0 <= after.start - before.stop < ALIGNMENT_BYTES
    assert message.packed_bytes == message.spans[-1].stop


@given(messages())
def test_what_was_packed_is_unpacked(message):
    buffer = send(message, is_packed=True)
    assert buffer.nbytes == message.packed_bytes
    payload = unpack(buffer, message)
    assert list(payload) == message.names
    assert_equal(payload, send(message), message)


@given(messages())
def test_a_jagged_message_is_packed_too_and_has_the_same_values(message):
    jagged = jagged_message(message)
    payload = unpack(send(jagged, is_packed=True), jagged)
    assert_equal(payload, send(jagged), jagged)
    offsets_bytes = sum(field.bytes for field in jagged.fields if field.offsets_of)
    assert jagged.bytes - offsets_bytes == message.bytes


def values_of(payload, field):
    """Return the values of a field as text or bytes, which compare equal also if they are no numbers."""
    items = tensors_of(payload, field)
    if field.is_python:
        return [repr(item) for item in items]
    return [to_array(item).tobytes() for item in items]


@given(messages(), st.data())
def test_each_byte_of_a_buffer_belongs_to_one_field_or_to_none(message, data):
    assume(message.packed_bytes)
    buffer = send(message, is_packed=True).clone()
    before = unpack(buffer.clone(), message)
    index = data.draw(st.integers(0, message.packed_bytes - 1))
    buffer.view(torch.uint8)[index] ^= 1
    after = unpack(buffer, message)
    changed = {f.name for f in message.fields if values_of(before, f) != values_of(after, f)}
    owners = set()
    for name, span in zip(message.names, message.spans, strict=True):
        if span.start <= index < span.stop:
            owners.add(name)
    assert changed == owners
