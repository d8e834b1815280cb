# SPDX-License-Identifier: Apache-2.0
"""Test what a class that pickles itself would cost without that, if its tensors are inside of a library's object."""

import io

import pytest
from raymeter.inside import conversions

torch = pytest.importorskip("torch")
pytest.importorskip("ray")

NUMBERS = 2**19


class Columns:
    """An object of a library with tensors that pickles itself, as a TensorDict."""

    def __init__(self, **extra):
        storage = torch.zeros(2 * NUMBERS)
        self._columns = {"tokens": storage[:NUMBERS], "scores": torch.zeros(NUMBERS)}
        self.extra = extra

    def __getstate__(self):
        return dict(vars(self))


class Message:
    """A class that pickles itself into the bytes of torch.save, as verl's DataProto."""

    def __init__(self, columns):
        self.batch = columns
        self.info = {"step": 1}

    def __getstate__(self):
        buffer = io.BytesIO()
        torch.save(self.batch._columns, buffer)
        return {"data": buffer.getvalue()}


def test_tensors_inside_of_an_object_become_arrays():
    content = conversions.without_own_pickling(Message(Columns()))
    arrays = content["batch"]
    assert [array.nbytes for array in arrays] == [4 * NUMBERS, 4 * NUMBERS]
    assert content["info"] == {"step": 1}


def test_an_object_with_more_than_its_tensors_stays_as_it_is():
    columns = Columns(texts=[f"text number {number}" for number in range(200_000)])
    content = conversions.without_own_pickling(Message(columns))
    assert content["batch"] is columns
