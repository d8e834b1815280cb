"""CUDA IPC without a GPU: tensors of the host stand for those of the GPU, and notes for its events."""

from types import SimpleNamespace

import pytest
import torch
from common.run.options import UsageError

from common.payload.pattern import POOL_SIZE
from common.transport import ring_cuda as mapped_cuda
from common.transport.ring import SegmentError
from common.transport.ring_cuda import Export, Import


class Gpu:
    """Which GPU this process is on, what was asked of events in order, and what opening one raises."""

    def __init__(self):
        self.uuid = "GPU-1"
        self.notes = []
        self.refusal = None


@pytest.fixture
def gpu(monkeypatch):
    fake = Gpu()

    class Event:
        made = 0

        def __init__(self, interprocess=False):
            assert interprocess
            self.number, Event.made = Event.made, Event.made + 1
            self.recorded = False

        def record(self):
            self.recorded = True
            fake.notes.append(("record", self.number))

        def ipc_handle(self):
            assert self.recorded, "an event has no handle before it was recorded"
            return f"event {self.number}".encode()

        @classmethod
        def from_ipc_handle(cls, device, handle):
            if fake.refusal:
                raise fake.refusal
            event = cls(interprocess=True)
            event.number = int(handle.split()[1])
            return event

        def wait(self):
            fake.notes.append(("wait", self.number))

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid=fake.uuid))
    return fake


@pytest.fixture
def pool():
    return [torch.full((100,), slot, dtype=torch.int64) for slot in range(POOL_SIZE)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "policy.cuda"


def test_every_slot_is_opened_as_what_was_exported(gpu, pool, path):
    Export(path, pool)
    found = Import(path, "policy", "reward")
    for slot in range(POOL_SIZE):
        assert torch.equal(found.open(slot), pool[slot])


def test_a_slot_that_is_written_records_its_own_event(gpu, pool, path):
    export = Export(path, pool)
    gpu.notes.clear()
    for slot in (1, 2, 1):
        export.written(slot)
    assert gpu.notes == [("record", 1), ("record", 2), ("record", 1)]


def test_a_readers_stream_waits_for_the_slots_event_before_it_has_the_tensor(gpu, pool, path):
    Export(path, pool)
    found = Import(path, "policy", "reward")
    tensors = found.tensors

    class Watched:
        def __getitem__(self, slot):
            gpu.notes.append(("tensor", slot))
            return tensors[slot]

    found.tensors = Watched()
    gpu.notes.clear()
    found.open(2)
    found.open(0)
    assert gpu.notes == [("wait", 2), ("tensor", 2), ("wait", 0), ("tensor", 0)]


def test_memory_of_another_gpu_is_refused(gpu, pool, path):
    """Its index would be the same: each process numbers its own."""
    Export(path, pool)
    gpu.uuid = "GPU-2"
    with pytest.raises(SegmentError, match=r"reward and policy are on different GPUs.*: use nccl"):
        Import(path, "policy", "reward")


def test_what_cuda_does_not_open_is_said_in_one_line(gpu, pool, path):
    Export(path, pool)
    gpu.refusal = RuntimeError("CUDA error: invalid device context\nCUDA kernel errors might be ...")
    with pytest.raises(SegmentError) as error:
        Import(path, "policy", "reward")
    said = "CUDA refuses reward the memory of policy (CUDA error: invalid device context): use nccl or shm"
    assert str(error.value) == said


def test_a_tensor_that_cuda_does_not_open_is_said_in_one_line(gpu, pool, path, monkeypatch):
    def rebuild(*_):
        raise RuntimeError("CUDA error: mapping of buffer object failed")

    monkeypatch.setattr(mapped_cuda.pickle, "loads", lambda _: ("GPU-1", [(rebuild, ())], [b"event 0"]))
    path.write_bytes(b"")
    with pytest.raises(SegmentError, match=r"CUDA refuses reward the memory of policy .*mapping of buffer"):
        Import(path, "policy", "reward")


@pytest.mark.parametrize("variable", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_expandable_segments_are_refused(monkeypatch, variable):
    monkeypatch.setenv(variable, "max_split_size_mb:64,expandable_segments:True")
    with pytest.raises(UsageError, match=f"take expandable_segments out of {variable}"):
        mapped_cuda.refuse_expandable_segments()


def test_other_settings_of_the_allocator_are_not_refused(monkeypatch):
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:False")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
    assert mapped_cuda.refuse_expandable_segments() is None
