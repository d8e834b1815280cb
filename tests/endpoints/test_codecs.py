"""The form of encoded messages. tests/endpoints/test_verification.py verifies that every byte is decoded."""

import pickle

import numpy as np
import pytest
import torch
from in_process import FIELDS, LocalEdge

from dataflow.endpoints.codecs import ARRAYS, BYTES, DENSE
from dataflow.endpoints.tensors import map_tensors


@pytest.mark.parametrize(("codec", "kind"), [(DENSE, torch.Tensor), (ARRAYS, np.ndarray), (BYTES, bytes)])
def test_encoded_tensors_are_contiguous_tensors_arrays_or_bytes(codec, kind):
    payload, encoded = LocalEdge(FIELDS).outbox.payload(0), []
    assert not payload["corner"].is_contiguous()
    map_tensors(encoded.append, pickle.loads(pickle.dumps(codec)).encode(payload))  # as Ray sends it to the actors
    assert {type(item) for item in encoded} == {kind}
    assert kind is not torch.Tensor or all(tensor.is_contiguous() for tensor in encoded)
