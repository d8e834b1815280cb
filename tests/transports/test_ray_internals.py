"""Reused memory for received messages, and the channels of a compiled graph."""

import gc
import inspect
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from in_process import COLOCATED, DEMO

from dataflow.errors import RunFailed
from dataflow.transports.ray_internals import MIN_REUSED_BYTES, ReusedBuffers, check_data_paths, reuse_receive_buffers


def message(number, count=1000, dtype=np.int64):
    return np.full(count, number, dtype)


@pytest.fixture
def buffers():
    return ReusedBuffers()


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float32])
@pytest.mark.parametrize("shape", [(1000,), (2, 5, 100)])
def test_a_copy_has_the_type_the_shape_and_the_bytes_and_is_no_view(buffers, dtype, shape):
    array = np.arange(1000).astype(dtype).reshape(shape)
    tensor = buffers.copy(array)
    assert (tensor.shape, tensor.numpy().dtype) == (shape, dtype)
    assert np.array_equal(tensor.numpy(), array)
    array[:] = 0
    assert tensor.count_nonzero() > 0


def test_memory_is_used_again_only_when_its_tensor_is_gone(buffers):
    held = [buffers.copy(message(number)) for number in range(5)]
    assert len({tensor.data_ptr() for tensor in held}) == 5
    free = held.pop(2).data_ptr()
    assert {buffers.copy(message(number)).data_ptr() for number in range(9)} == {free}
    assert [int(tensor[0]) for tensor in held] == [0, 1, 3, 4]
    assert len(buffers.slots[8000]) == 5


VIEWS = {
    "slice": lambda tensor: tensor[500:],
    "view": lambda tensor: tensor.view(torch.uint8),
    "slice of the array": lambda tensor: tensor.numpy()[7:8],
    "tensor of the array": lambda tensor: torch.from_numpy(tensor.numpy()),
    "memoryview": lambda tensor: memoryview(tensor.numpy()),
    "storage": lambda tensor: tensor.untyped_storage(),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_memory_with_a_view_is_not_used_again(buffers, kind):
    tensor = buffers.copy(message(1))
    address, view = tensor.data_ptr(), VIEWS[kind](tensor)
    del tensor
    gc.collect()
    other = buffers.copy(message(2))
    assert other.data_ptr() != address
    del view, other
    assert len({buffers.copy(message(number)).data_ptr() for number in range(3)}) == 1
    assert len(buffers.slots[8000]) == 2


def test_messages_of_the_same_size_share_memory_whatever_their_type(buffers):
    address = buffers.copy(message(1, 8, np.uint8)).data_ptr()
    tensor = buffers.copy(message(1, 1, np.int64))
    assert (tensor.data_ptr(), tensor.dtype) == (address, torch.int64)
    del tensor
    assert [buffers.copy(message(7, count)).numel() for count in (10, 20, 10, 20)] == [10, 20, 10, 20]
    assert {count: len(slots) for count, slots in buffers.slots.items()} == {8: 1, 80: 1, 160: 1}


def test_only_large_arrays_for_the_cpu_are_copied_into_reused_memory(monkeypatch):
    context = SimpleNamespace(deserialize_from_numpy_or_scalar=lambda *_: "Ray's method")
    current = SimpleNamespace(get_current=lambda: SimpleNamespace(serialization_context=context))
    monkeypatch.setitem(sys.modules, "ray.experimental.channel", SimpleNamespace(ChannelContext=current))
    reuse_receive_buffers()
    deserialize, large = context.deserialize_from_numpy_or_scalar, message(5, MIN_REUSED_BYTES, np.uint8)
    copy = deserialize(large, torch.bfloat16, "cpu", None)
    assert (copy.dtype, copy.nbytes) == (torch.bfloat16, MIN_REUSED_BYTES)
    assert bool((copy.view(torch.uint8) == 5).all()) and copy.data_ptr() != large.ctypes.data
    for other in ((large[:-1], torch.uint8, "cpu"), (large, torch.uint8, "cuda"), (5, torch.uint8, "cpu")):
        assert deserialize(*other, None) == "Ray's method"


def test_the_method_of_ray_that_reuse_buffers_replaces_exists():
    from ray.experimental.channel import ChannelContext

    method = ChannelContext.get_current().serialization_context.deserialize_from_numpy_or_scalar
    assert len(inspect.signature(method).parameters) == 4


SHARED_MEMORY = "TorchTensorType over BufferedSharedMemoryChannel"
NCCL = "TorchTensorType over TorchTensorAcceleratorChannel"
UNTYPED = "SharedMemoryType over BufferedSharedMemoryChannel"
DATA_PATHS = {None: UNTYPED, "shm": SHARED_MEMORY, "nccl": NCCL}  # by type hint


@pytest.mark.parametrize("flow", [DEMO, COLOCATED], ids=lambda flow: flow.name)
@pytest.mark.parametrize("hint", DATA_PATHS)
def test_a_graph_with_another_channel_for_one_edge_is_rejected(flow, hint):
    expected = {}
    for edge in flow.edges:
        is_drivers = "driver" in (edge.source, edge.reader)  # never over NCCL
        expected[str(edge)] = SHARED_MEMORY if is_drivers and hint == "nccl" else DATA_PATHS[hint]
    check_data_paths(expected, flow, hint, "this")
    for edge, data_path in expected.items():
        for other in {NCCL, SHARED_MEMORY, UNTYPED} - {data_path}:
            with pytest.raises(RunFailed, match=f"{edge} uses {other}, which is not the data path of this"):
                check_data_paths(expected | {edge: other}, flow, hint, "this")
