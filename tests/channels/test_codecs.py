"""Codecs: what one side encodes, the other side decodes."""

import pickle

import numpy as np
import pytest
import torch
from in_process import DEMO, FIELDS, LocalEdge

from common.channels.codecs import ARRAYS, BYTES, DENSE, HOST, UNCHANGED
from common.endpoints.tensors import map_tensors

CODECS = {"unchanged": UNCHANGED, "dense": DENSE, "host": HOST, "arrays": ARRAYS, "bytes": BYTES}


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("message", [DEMO.query, FIELDS], ids=["flat", "fields"])
def test_a_decoded_message_has_every_byte_of_the_encoded_one(name, message):
    codec = pickle.loads(pickle.dumps(CODECS[name]))  # as Ray sends it to the actors
    link = LocalEdge(message)
    for number in (1, 2):
        link.send(number, lambda payload: codec.decode_all([codec.encode(payload)], link.inbox.edges, "cpu")[0])
        assert link.verify(number) == {}


def test_encoded_tensors_are_contiguous_arrays_or_bytes():
    payload = LocalEdge(FIELDS).outbox.payload(0)
    assert not payload["corner"].is_contiguous()
    for codec, kind in ((DENSE, torch.Tensor), (ARRAYS, np.ndarray), (BYTES, bytes)):
        encoded = []
        map_tensors(encoded.append, codec.encode(payload))
        assert {type(item) for item in encoded} == {kind}
        assert codec is not DENSE or all(tensor.is_contiguous() for tensor in encoded)
