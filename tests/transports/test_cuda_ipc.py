"""CUDA IPC without a GPU: tensors in host memory replace those of the GPU, and a list of calls replaces its events."""

import pickle
from types import SimpleNamespace

import pytest
import torch

from dataflow.errors import RunFailed
from dataflow.transports.cuda_ipc import Import, export_pool


@pytest.fixture
def gpu(monkeypatch):
    """The GPU of this process, the calls of its events in order, and the error of opening an event."""
    gpu = SimpleNamespace(uuid="GPU-1", calls=[], error=None, events=0)

    class Event:
        def __init__(self, interprocess=False):
            assert interprocess
            self.number, self.recorded = gpu.events, False
            gpu.events += 1

        def record(self):
            self.recorded = True
            gpu.calls.append(("record", self.number))

        def ipc_handle(self):
            assert self.recorded, "an event has no handle before it was recorded"
            return self.number

        @classmethod
        def from_ipc_handle(cls, device, handle):
            if gpu.error:
                raise gpu.error
            return SimpleNamespace(wait=lambda: gpu.calls.append(("wait", handle)))

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid=gpu.uuid))
    return gpu


@pytest.fixture
def path(gpu, tmp_path):
    """The file of a pool of three tensors, whose items are their slot."""
    gpu.events_of_slots = export_pool(tmp_path / "policy.cuda", [torch.full((100,), slot) for slot in range(3)])
    gpu.calls.clear()
    return tmp_path / "policy.cuda"


def test_each_written_slot_records_its_own_event(gpu, path):
    for slot in (1, 2, 1):
        gpu.events_of_slots[slot].record()
    assert gpu.calls == [("record", 1), ("record", 2), ("record", 1)]


def test_the_readers_stream_waits_for_the_event_of_the_slot(gpu, path):
    imported = Import(path, "policy", "reward")
    for slot in (2, 0, 1):
        gpu.calls.clear()
        assert torch.equal(imported.open(slot), torch.full((100,), slot))
        assert gpu.calls == [("wait", slot)]


def test_memory_of_another_gpu_is_rejected_although_its_index_is_the_same(gpu, path):
    gpu.uuid = "GPU-2"
    with pytest.raises(RunFailed, match=r"reward and policy are on different GPUs.*: use nccl"):
        Import(path, "policy", "reward")


@pytest.mark.parametrize("part", ["event", "tensor"])
def test_an_error_of_cuda_is_reported_in_one_line(gpu, path, monkeypatch, part):
    gpu.error = RuntimeError("CUDA error: invalid device context\nCUDA kernel errors might be ...")

    def rebuild():
        raise gpu.error

    if part == "tensor":
        monkeypatch.setattr(pickle, "loads", lambda _: ("GPU-1", [(rebuild, ())], []))
    with pytest.raises(RunFailed, match=r"^reward cannot open .* policy \(CUDA error: invalid .*\): use nccl.*$"):
        Import(path, "policy", "reward")
