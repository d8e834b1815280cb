"""CUDA IPC without a GPU: tensors in host memory replace those of the GPU, and a list of calls replaces its events."""

from types import SimpleNamespace

import pytest
import torch

from dataflow.errors import RunFailed
from dataflow.transports.cuda_ipc import Import, export_pool


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """The GPU of this process with the file of a pool of three tensors, and the calls of its events in order."""
    gpu = SimpleNamespace(uuid="GPU-1", calls=[], error=None, events=0, path=tmp_path / "policy.cuda")

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
    gpu.events_of_slots = export_pool(gpu.path, [torch.full((100,), slot) for slot in range(3)])
    gpu.calls.clear()
    return gpu


def test_the_readers_stream_waits_for_the_event_that_the_slot_has_recorded(gpu):
    imported = Import(gpu.path, "policy", "reward")
    for slot in (2, 0, 2):
        gpu.calls.clear()
        gpu.events_of_slots[slot].record()
        assert torch.equal(imported.open(slot), torch.full((100,), slot))
        assert gpu.calls == [("record", slot), ("wait", slot)]


def test_memory_of_another_gpu_is_rejected_although_its_index_is_the_same(gpu):
    gpu.uuid = "GPU-2"
    with pytest.raises(RunFailed, match=r"reward and policy are on different GPUs.*: use nccl"):
        Import(gpu.path, "policy", "reward")


def test_an_error_of_cuda_is_reported_in_one_line(gpu):
    gpu.error = RuntimeError("CUDA error: invalid device context\nCUDA kernel errors might be ...")
    with pytest.raises(RunFailed, match=r"^reward cannot open .* policy \(CUDA error: invalid .*\): use nccl.*$"):
        Import(gpu.path, "policy", "reward")
