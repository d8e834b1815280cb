# SPDX-License-Identifier: Apache-2.0
"""What readers hold when the next message arrives: the same memory with other bytes, or memory of its own (--keep)."""

import weakref

import pytest
import torch
from in_process import DEMO, FIELDS, LocalEndpoints

from dataflow.endpoints import tensors
from dataflow.endpoints.payload import digest
from dataflow.transports.process_group import new_buffers, reused_buffers

TASK = "reward"


def held_tensors(endpoints):
    """Return the tensors that the reader of two messages holds of the newest ones."""
    _, inputs = endpoints.actors[TASK].inboxes[TASK].held[-1]
    listed = []
    for payload in inputs:
        listed += tensors.list_tensors(payload)
    return listed


def digest_all(listed):
    return [digest([tensors.to_array(tensor)], skip=0) for tensor in listed]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("in_flight", [1, 2])
def test_a_copy_is_overwritten_by_the_message_that_comes_in_flight_later_or_never(keep, in_flight):
    endpoints = LocalEndpoints(DEMO, copy_out=True, keep=keep, in_flight=in_flight)
    endpoints.run(1)
    first = held_tensors(endpoints)
    before = digest_all(first)
    for number in range(2, in_flight + 1):
        endpoints.run(number)
        assert digest_all(first) == before
    endpoints.run(in_flight + 1)
    assert (digest_all(first) == before) is keep
    assert endpoints.verify(1, in_flight + 1) == {}


def test_a_copy_that_its_reader_does_not_keep_is_freed_with_the_next_message():
    endpoints = LocalEndpoints(DEMO, copy_out=True, keep=True)
    endpoints.run(1)
    references = [weakref.ref(tensor) for tensor in held_tensors(endpoints)]
    assert all(reference() is not None for reference in references)
    endpoints.run(2)
    assert [reference() for reference in references] == [None] * len(references)


def addresses(buffers):
    return [tensor.data_ptr() for tensor in buffers if tensor.nbytes]


def test_gloo_receives_into_the_same_memory_in_turn_or_into_new_memory():
    cpu = torch.device("cpu")
    reused = reused_buffers(FIELDS, cpu, count=2)
    first, second, third = [addresses(next(reused)) for _ in range(3)]
    assert first == third and not {*first} & {*second}
    new = new_buffers(FIELDS, cpu)
    held = [next(new) for _ in range(3)]
    used = [address for buffers in held for address in addresses(buffers)]
    assert len(set(used)) == len(used)
    expected = [(tensor.dtype, tensor.shape) for tensor in next(reused)]
    assert [(tensor.dtype, tensor.shape) for tensor in held[0]] == expected


def test_gloo_holds_no_new_memory_that_it_has_given_to_a_reader():
    new = new_buffers(FIELDS, torch.device("cpu"))
    buffers = next(new)
    references = [weakref.ref(tensor) for tensor in buffers]
    del buffers
    assert [reference() for reference in references] == [None] * len(references)
