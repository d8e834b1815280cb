# SPDX-License-Identifier: Apache-2.0
"""Test that messages are equal in every process, and survive every conversion, and how they have sequence numbers."""

import itertools
import pickle

import numpy as np
import pytest
import torch
from in_process import FIELDS, RICH, LocalEndpoints

from dataflow.endpoints import tensors
from dataflow.endpoints.actor import pass_messages
from dataflow.endpoints.payload import (
    Outbox,
    PayloadForm,
    digest,
    encode_number,
    make_field,
    number_part,
)
from dataflow.endpoints.tensors import ARRAYS, BYTES, DENSE, HOST, tensors_of, unpack
from dataflow.flows.message import ITEM_BYTES, PYTHON_DTYPES, Field, Message, flat_message

CPU = torch.device("cpu")
NUMBER = Field("number", "int64", (2,))
SHORT = [Field("a", "uint8", (3,)), Field("b", "float32", lengths=(3, 0, 1)), Field("c", "bool", (0, 2)),
         Field("d", "str", lengths=(1, 0)), Field("e", "float16", lengths=(0, 0))]  # fmt: skip
# Every two of the short fields at the end of a message, where nothing is padded.
PAIRS = [Message((NUMBER, *two)) for two in itertools.permutations(SHORT, 2)]
MESSAGES = [flat_message(1), flat_message(13), flat_message(16), FIELDS, *PAIRS]


def send(message, is_packed=False, memory=None, copy_in=False):
    form = PayloadForm(is_packed, memory, copy_in)
    return Outbox("policy", message, 3, CPU, form).make(4)


def assert_equal(payload, expected, message):
    for field in message.fields:
        for item, expected_item in zip(
            tensors_of(payload, field), tensors_of(expected, field), strict=True
        ):
            if field.is_python:
                assert item == expected_item
            else:
                assert (item.dtype, item.shape) == (expected_item.dtype, expected_item.shape)
                assert tensors.to_array(item).tobytes() == tensors.to_array(expected_item).tobytes()


def by_tensor_list(payload, message):
    sent = tensors.to_tensor_list(payload, message)
    received = tensors.to_tensor_list(tensors.like(message, CPU), message)
    for buffer, tensor in zip(received, sent, strict=True):
        buffer.copy_(tensor)
    return tensors.from_tensor_list(received, message)


CONVERSIONS = {
    "packed": lambda payload, message: unpack(send(message, is_packed=True), message),
    "arrays": lambda payload, message: ARRAYS.decode(ARRAYS.encode(payload), message, "cpu"),
    "bytes": lambda payload, message: BYTES.decode(BYTES.encode(payload), message, "cpu"),
    "list of tensors": by_tensor_list,
    "copy": lambda payload, message: tensors.copy(payload, tensors.like(message, CPU)),
}


@pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)
@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: "-".join(message.names) or "flat")
def test_a_converted_payload_is_equal(message, convert):
    payload = send(message)
    assert_equal(convert(payload, message), payload, message)


@pytest.mark.parametrize(
    ("codec", "kind"),
    [(ARRAYS, np.ndarray), (BYTES, bytes), (DENSE, torch.Tensor), (HOST, torch.Tensor)],
    ids=["arrays", "bytes", "dense", "host"],
)
def test_actors_encode_and_decode_messages_as_contiguous_tensors_arrays_or_bytes(codec, kind):
    """The driver's side is in the transports, so only the actors' messages are passed on here."""
    endpoints = LocalEndpoints(
        RICH, codec=pickle.loads(pickle.dumps(codec))
    )  # as Ray sends it to the actors
    encoded = []

    def carry(data, edge):
        tensors.map_tensors(encoded.append, data)
        return data

    flow = endpoints.plan.sent_flow
    results = pass_messages(flow, endpoints.actors, carry, codec.encode(endpoints.make_query(1)))
    assert {type(item) for item in encoded} == {kind}
    assert codec is not DENSE or all(tensor.is_contiguous() for tensor in encoded)
    endpoints.receive(codec.decode_all(results, flow.edges_to("driver"), "cpu"))
    assert endpoints.verify(1) == {}


@pytest.mark.parametrize(("is_packed", "copy_in"), [(False, False), (True, False), (False, True)])
def test_payloads_lie_in_the_given_memory_with_copy_in_only_when_they_are_sent(is_packed, copy_in):
    memory = [torch.ones(FIELDS.packed_bytes, dtype=torch.uint8) for _ in range(3)]
    form = PayloadForm(is_packed, lambda slot: memory[slot], copy_in)
    outbox = Outbox("policy", FIELDS, 3, CPU, form)
    fields = [tensor.data_ptr() for tensor in tensors.list_tensors(outbox.pool[1]) if tensor.nbytes]
    begin, end = memory[1].data_ptr(), memory[1].data_ptr() + FIELDS.packed_bytes
    assert {begin <= address < end for address in fields} == {not (is_packed or copy_in)}
    payload = outbox.make(4)
    assert (payload if is_packed else payload["tokens"]).data_ptr() == memory[1].data_ptr()
    assert_equal(unpack(memory[1], FIELDS), send(FIELDS), FIELDS)


def test_every_process_makes_the_same_payload():
    assert digest(make_field(Field("", "int64", (512,)), "policy", 1), 0) == 1902335284193023386


@pytest.mark.parametrize("shape", [(), (1,), (3,), (9,), (100,), (4, 5)], ids=str)
def test_a_sequence_number_has_as_many_bytes_or_bits_as_fit_into_the_first_row(shape):
    def encode(dtype, shape, number):
        return encode_number(number)[number_part(Field("", dtype, shape))]

    for dtype in set(ITEM_BYTES) - set(PYTHON_DTYPES) - {"bool"}:
        count = min(8, (shape or (1,))[-1] * ITEM_BYTES[dtype])
        for number in (1, 255, 256, 70_000):
            assert encode(dtype, shape, number) == (number % 256**count).to_bytes(count, "little")
    count = min(32, (shape or (1,))[-1])
    assert encode("bool", shape, 0b101) == bytes([1, 0, 1] + 29 * [0])[:count]
    assert encode("bool", (0, *shape), 0b101) == b""


def test_a_process_waits_only_for_its_own_gpu(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *gpu: waited.append(gpu))
    tensors.synchronise()
    assert waited == []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    tensors.synchronise()
    assert waited == [()]
