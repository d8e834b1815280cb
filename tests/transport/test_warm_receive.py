"""Memory that a reader copies messages into again, when nothing lies in it any more."""

import gc
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from common.transport.warm_receive import SMALLEST_BYTES, Buffers, install


def message(number, count=1000, dtype=np.int64):
    return np.full(count, number, dtype)


buffers = pytest.fixture(lambda: Buffers())


def slots(buffers):
    return sum(map(len, buffers.slots.values()))


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float32])
@pytest.mark.parametrize("shape", [(1000,), (2, 5, 100)])
def test_a_copy_has_type_shape_and_bytes_and_is_no_view(buffers, dtype, shape):
    array = np.arange(1000).astype(dtype).reshape(shape)
    tensor = buffers.copy(array)
    assert (tensor.shape, tensor.numpy().dtype) == (shape, dtype)
    assert np.array_equal(tensor.numpy(), array)
    array[:] = 0
    assert tensor.count_nonzero() > 0


def test_memory_is_used_again_when_its_tensor_has_gone_and_not_before(buffers):
    held = [buffers.copy(message(number)) for number in range(5)]
    assert len({tensor.data_ptr() for tensor in held}) == 5
    gone = held.pop(2).data_ptr()
    assert {buffers.copy(message(number)).data_ptr() for number in range(9)} == {gone}
    assert [int(tensor[0]) for tensor in held] == [0, 1, 3, 4]
    assert slots(buffers) == 5


@pytest.mark.parametrize(
    "make_view",
    [
        lambda tensor: tensor[500:],
        lambda tensor: tensor.view(torch.uint8),
        lambda tensor: tensor.numpy()[7:8],
        lambda tensor: torch.from_numpy(tensor.numpy()),
        lambda tensor: memoryview(tensor.numpy()),
        lambda tensor: tensor.untyped_storage(),
    ],
    ids=["slice", "view", "slice of the array", "there and back", "memoryview", "storage"],
)
def test_memory_in_which_a_view_lies_is_not_used(buffers, make_view):
    tensor = buffers.copy(message(1))
    address, view = tensor.data_ptr(), make_view(tensor)
    del tensor
    gc.collect()
    other = buffers.copy(message(2))
    assert other.data_ptr() != address
    del view, other
    assert len({buffers.copy(message(number)).data_ptr() for number in range(3)}) == 1
    assert slots(buffers) == 2


def test_messages_share_memory_when_they_have_as_many_bytes_whatever_their_type(buffers):
    first = buffers.copy(message(1, 8, np.uint8)).data_ptr()
    second = buffers.copy(message(1, 1, np.int64))
    assert (second.data_ptr(), second.dtype) == (first, torch.int64)
    del second
    assert [buffers.copy(message(7, count)).numel() for count in (10, 20, 10, 20)] == [10, 20, 10, 20]
    assert {count: len(found) for count, found in buffers.slots.items()} == {8: 1, 80: 1, 160: 1}


def test_only_large_arrays_that_stay_on_the_cpu_are_copied_into_it(monkeypatch):
    """Of Ray's channel, here with a stand-in, everything else keeps Ray's own way."""
    context = SimpleNamespace(deserialize_from_numpy_or_scalar=lambda *given: "Ray's own")
    current = SimpleNamespace(get_current=lambda: SimpleNamespace(serialization_context=context))
    monkeypatch.setitem(sys.modules, "ray.experimental.channel", SimpleNamespace(ChannelContext=current))
    install()
    deserialize, large = context.deserialize_from_numpy_or_scalar, message(5, SMALLEST_BYTES, np.uint8)
    copied = deserialize(large, torch.bfloat16, "cpu", None)
    assert (copied.dtype, copied.nbytes) == (torch.bfloat16, SMALLEST_BYTES)
    assert bool((copied.view(torch.uint8) == 5).all()) and copied.data_ptr() != large.ctypes.data
    for other in ((large[:-1], torch.uint8, "cpu"), (large, torch.uint8, "cuda"), (5, torch.uint8, "cpu")):
        assert deserialize(*other, None) == "Ray's own"
