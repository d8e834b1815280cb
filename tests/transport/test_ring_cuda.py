"""CUDA IPC without a GPU: tensors of the host stand for those of the GPU, and notes for its events."""

from types import SimpleNamespace

import pytest
import torch

from common.errors import SegmentError
from common.transport import ring_cuda
from common.transport.ring_cuda import Export, Import

SLOTS = 3


class Gpu:
    """Which GPU this process is on, what was asked of events in order, and what opening one raises."""

    def __init__(self):
        self.uuid, self.notes, self.refusal, self.made = "GPU-1", [], None, 0


@pytest.fixture
def gpu(monkeypatch):
    gpu = Gpu()

    class Event:
        def __init__(self, interprocess=False):
            assert interprocess
            self.number, self.recorded = gpu.made, False
            gpu.made += 1

        def record(self):
            self.recorded = True
            gpu.notes.append(("record", self.number))

        def ipc_handle(self):
            assert self.recorded, "an event has no handle before it was recorded"
            return self.number

        @classmethod
        def from_ipc_handle(cls, device, handle):
            if gpu.refusal:
                raise gpu.refusal
            return SimpleNamespace(wait=lambda: gpu.notes.append(("wait", handle)))

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid=gpu.uuid))
    return gpu


@pytest.fixture
def path(tmp_path):
    return tmp_path / "policy.cuda"


@pytest.fixture
def export(gpu, path):
    """With the tensors' slot in every word of them."""
    made = Export(path, [torch.full((100,), slot, dtype=torch.int64) for slot in range(SLOTS)])
    gpu.notes.clear()
    return made


def test_a_slot_that_is_written_records_its_own_event(gpu, export):
    for slot in (1, 2, 1):
        export.written(slot)
    assert gpu.notes == [("record", 1), ("record", 2), ("record", 1)]


def test_a_readers_stream_waits_for_the_slots_event_before_it_has_the_tensor(gpu, export, path):
    found = Import(path, "policy", "reward")
    tensors = found.tensors

    class Watched:
        def __getitem__(self, slot):
            gpu.notes.append(("tensor", slot))
            return tensors[slot]

    found.tensors = Watched()
    for slot in (2, 0, 1):
        gpu.notes.clear()
        assert torch.equal(found.open(slot), torch.full((100,), slot, dtype=torch.int64))
        assert gpu.notes == [("wait", slot), ("tensor", slot)]


def test_memory_of_another_gpu_is_refused(gpu, export, path):
    """Its index would be the same: each process numbers its own."""
    gpu.uuid = "GPU-2"
    with pytest.raises(SegmentError, match=r"reward and policy are on different GPUs.*: use nccl"):
        Import(path, "policy", "reward")


@pytest.mark.parametrize("what", ["an event", "a tensor"])
def test_what_cuda_does_not_open_is_said_in_one_line(gpu, export, path, monkeypatch, what):
    gpu.refusal = RuntimeError("CUDA error: invalid device context\nCUDA kernel errors might be ...")

    def rebuild():
        raise gpu.refusal

    if what == "a tensor":
        monkeypatch.setattr(ring_cuda.pickle, "loads", lambda _: ("GPU-1", [(rebuild, ())], []))
    with pytest.raises(
        SegmentError, match=r"^CUDA refuses reward .* of policy \(CUDA error: invalid .*\): use nccl.*$"
    ):
        Import(path, "policy", "reward")
