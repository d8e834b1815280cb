"""Reused memory for received messages, and the channels of a compiled graph."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from in_process import COLOCATED, DEMO

from dataflow.errors import RunFailed
from dataflow.transports.ray_internals import MIN_REUSED_BYTES, ReusedBuffers, check_data_paths, reuse_receive_buffers


@pytest.mark.parametrize(
    "view_of",
    [
        lambda tensor: tensor,
        lambda tensor: tensor.view(torch.uint8)[500:],
        lambda tensor: tensor.numpy()[7:8],
        lambda tensor: memoryview(tensor.numpy()),
        lambda tensor: tensor.untyped_storage(),
    ],
    ids=["tensor", "slice", "array", "memoryview", "storage"],
)
def test_memory_is_used_again_when_its_tensor_and_all_views_of_it_are_gone(view_of):
    buffers = ReusedBuffers()
    tensor = buffers.copy(np.full(1000, 1))
    address, view = tensor.data_ptr(), view_of(tensor)
    del tensor
    other = buffers.copy(np.full(1000, 2))
    assert other.data_ptr() != address
    del view
    assert {buffers.copy(np.full(8000, number, np.uint8)).data_ptr() for number in range(9)} == {address}
    assert other.tolist() == [2] * 1000 and len(buffers.slots[8000]) == 2


def test_only_large_arrays_for_the_cpu_are_copied_into_reused_memory(monkeypatch):
    context = SimpleNamespace(deserialize_from_numpy_or_scalar=lambda *_: "Ray's method")
    current = SimpleNamespace(get_current=lambda: SimpleNamespace(serialization_context=context))
    monkeypatch.setitem(sys.modules, "ray.experimental.channel", SimpleNamespace(ChannelContext=current))
    reuse_receive_buffers()
    deserialize, large = context.deserialize_from_numpy_or_scalar, np.full(MIN_REUSED_BYTES, 5, np.uint8)
    copy = deserialize(large, torch.bfloat16, "cpu", None)
    assert (copy.dtype, copy.nbytes) == (torch.bfloat16, MIN_REUSED_BYTES)
    assert copy.data_ptr() != large.ctypes.data and bool((copy.view(torch.uint8) == 5).all())
    for other in ((large[:-1], torch.uint8, "cpu"), (large, torch.uint8, "cuda"), (5, torch.uint8, "cpu")):
        assert deserialize(*other, None) == "Ray's method"


SHARED_MEMORY = "TorchTensorType over BufferedSharedMemoryChannel"
NCCL = "TorchTensorType over TorchTensorAcceleratorChannel"
UNTYPED = "SharedMemoryType over BufferedSharedMemoryChannel"


@pytest.mark.parametrize("flow", [DEMO, COLOCATED], ids=lambda flow: flow.name)
@pytest.mark.parametrize(("hint", "path"), [(None, UNTYPED), ("shm", SHARED_MEMORY), ("nccl", NCCL)])
def test_a_graph_with_another_channel_for_one_edge_is_rejected(flow, hint, path):
    expected = {}
    for edge in flow.edges:
        is_drivers = "driver" in (edge.source, edge.reader)  # never over NCCL
        expected[str(edge)] = SHARED_MEMORY if is_drivers and hint == "nccl" else path
    check_data_paths(expected, flow, hint, "this")
    for edge, data_path in expected.items():
        for other in {NCCL, SHARED_MEMORY, UNTYPED} - {data_path}:
            with pytest.raises(RunFailed, match=f"{edge} uses {other}, which is not the data path of this"):
                check_data_paths(expected | {edge: other}, flow, hint, "this")
