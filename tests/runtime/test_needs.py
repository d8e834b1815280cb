"""What a machine must have for a row, and what is said where it has less."""

import sys
from importlib import metadata

import psutil
import pytest

from common.errors import UsageError, Waived
from common.plan.command_line import parse
from common.plan.options import MINIMUM_STORE_BYTES
from common.record.rows import transports
from common.run.settle import settle
from common.runtime import gpus, needs

KILOBYTES = ("--batch-size", "4", "--prompt-seq-len", "256")
MIB = 2**20
TRIP = 448 * MIB  # what the readers of the demo's trip receive
EMITTED = (32 + 96 + 64 + 160) * MIB


@pytest.fixture
def machine(monkeypatch):
    """machine(memory, shared): let it have this much free."""

    def has(memory=2**40, shared=2**40):
        monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": memory}))
        monkeypatch.setattr(psutil, "disk_usage", lambda _: type("Disk", (), {"free": shared}))

    return has


@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        (("--transport", "refs"), 2 * (TRIP + EMITTED)),
        (("--transport", "refs", "--in-flight", "4"), 5 * (TRIP + EMITTED)),
    ],
)
def test_the_store_holds_what_the_trips_under_way_and_the_one_before_emit_and_deliver(machine, make_plan, flags, asked):
    machine()
    assert make_plan("store", *flags, "--object-store-bytes", str(asked)).store_bytes == asked
    with pytest.raises(UsageError, match=r"trips of online-dpo need [\d.]+ [GM]iB of object store"):
        make_plan("store", *flags, "--object-store-bytes", str(asked - 1))


def test_the_channels_of_a_graph_are_counted_and_handles_are_not(machine, make_plan):
    machine()
    shm = make_plan("graph", "--transport", "shm")
    mapped = make_plan("graph", "--transport", "mapped")
    assert 2 * EMITTED < needs.stored_bytes(shm.row, shm.options, shm.flow) < 2 * EMITTED + MIB
    assert needs.stored_bytes(mapped.row, mapped.options, mapped.flow) == 0


@pytest.mark.parametrize(("transport", "trips"), [("pickle", 9), ("zero-copy", 16)])
def test_readers_that_hold_views_of_eight_trips_leave_room_for_eight_others(machine, make_plan, transport, trips):
    machine()
    plan = make_plan("graph", "--transport", transport, "--in-flight", "8", "--payload", "1MiB")
    assert needs.stored_trips(plan.row, plan.options) == trips


@pytest.mark.parametrize(
    ("memory", "shared", "store"),
    [
        (10 * 2**30, 100 * 2**30, 3 * 2**30),
        (10 * 2**30, 2**30, int(0.95 * 2**30)),
        (2**27, 2**30, MINIMUM_STORE_BYTES),
    ],
)
def test_the_default_store_is_rays(machine, make_plan, memory, shared, store):
    machine(memory, shared)
    assert make_plan("store", *KILOBYTES).store_bytes == store


def test_payloads_that_do_not_fit_into_memory_are_refused(machine, make_plan):
    machine(memory=3 * EMITTED + TRIP)  # a pool of three, and what the readers hold
    make_plan("torch", "--transport", "gloo")
    machine(memory=3 * EMITTED + TRIP - 1)
    with pytest.raises(UsageError, match="of memory are free: lower --batch-size"):
        make_plan("torch", "--transport", "gloo")


def test_every_replica_and_rank_has_a_pool_and_inputs_of_its_own(machine, make_plan):
    machine()

    def resident(*flags):
        plan = make_plan("store", "--flow", "grpo", "--in-flight", "2", *flags)
        return needs.resident_bytes(plan.row, plan.options, plan.flow), plan.flow

    alone, flow = resident()
    several, _ = resident("--replicas", "reward=2", "--ranks", "reward=3")
    inputs = sum(edge.bytes for edge in flow.edges_to("reward"))
    assert several - alone == 5 * (4 * flow.message("reward").bytes + 2 * inputs)


def test_what_is_behind_the_last_queue_keeps_storages_and_what_its_trainers_read(machine, make_plan):
    machine()

    def resident(*flags):
        plan = make_plan("store", "--flow", "ppo", *flags)
        return needs.resident_bytes(plan.row, plan.options, plan.flow), plan.flow

    def of_trainers(*flags):
        with_them, flow = resident("--sink", "trainer", *flags)
        return with_them, sum(edge.bytes for edge in flow.edges_to("stream-dataset")), flow

    two, samples, _ = of_trainers()
    one, _, _ = of_trainers("--trainers", "1")
    assert two - one == samples  # of policy and value
    shipped, _, flow = of_trainers("--as-shipped")
    kept = sum(edge.message.shipped_bytes for edge in flow.edges_to("stream-dataset"))
    plan = make_plan("store", "--flow", "ppo", "--sink", "trainer", "--as-shipped")
    stored = needs.stored_bytes(plan.row, plan.options, plan.flow)
    compact = make_plan("store", "--flow", "ppo", "--sink", "trainer")
    assert shipped - two == kept - samples + stored - needs.stored_bytes(compact.row, compact.options, compact.flow)


@pytest.mark.parametrize("transport", ["gloo", "memcpy"])
def test_a_machine_without_shared_memory_runs_what_needs_none(machine, make_plan, transport):
    machine(shared=0)
    assert make_plan("torch", "--transport", transport).store_bytes == 0


@pytest.mark.parametrize(
    ("runtime", "transport"), [("graph", "mapped"), ("rdt", "mapped"), ("torch", "multiprocessing")]
)
def test_segments_that_do_not_fit_into_shared_memory_are_refused(machine, make_plan, runtime, transport):
    machine(shared=3 * EMITTED - 1)
    with pytest.raises(UsageError, match=r"lays 1.031 GiB into /dev/shm, where .* lower --batch-size"):
        make_plan(runtime, "--transport", transport)
    machine(shared=3 * EMITTED)
    make_plan(runtime, "--transport", transport)


@pytest.mark.parametrize(
    ("runtime", "transport", "reason"),
    [
        ("graph", "nccl", "nccl needs 3 GPUs and found 0: use another --transport"),
        ("torch", "nccl", "nccl needs 3 GPUs and found 0: use another --transport"),
        ("torch", "nccl-one-gpu", "nccl-one-gpu needs 1 GPU and found 0: use another --transport"),
        ("rdt", "nccl", "nccl needs 4 GPUs and found 0: use another --transport"),
        ("rdt", "cuda-ipc", "cuda-ipc needs 1 GPU and found 0: use another --transport"),
        ("rdt", "nixl", "nixl is not installed: pip install --no-deps nixl=="),
    ],
)
def test_what_this_machine_does_not_have_is_waived(monkeypatch, no_gpu, runtime, transport, reason):
    monkeypatch.setattr(gpus.importlib.util, "find_spec", lambda name: None)
    plan, waived = settle(runtime, parse("", runtime, ["--transport", transport, *KILOBYTES]))
    assert isinstance(waived, Waived)
    assert reason in str(waived)
    assert plan.row.transport == transport


@pytest.mark.parametrize("missing", ["nixl", "nixl_cu12"])
def test_nixl_needs_the_wheel_of_torchs_cuda_too(monkeypatch, missing):
    monkeypatch.setattr(gpus, "cuda_version", lambda: "12.8")
    monkeypatch.setattr(gpus.importlib.util, "find_spec", lambda name: None if name == missing else name)
    with pytest.raises(Waived, match="nixl-cu12=="):
        gpus.need_modules(("nixl",))


def test_nccl_is_waived_without_the_cupy_of_torchs_cuda(monkeypatch):
    """cupy for CUDA 12 is no help to a torch of CUDA 13."""
    monkeypatch.setattr(gpus, "cuda_version", lambda: "13.0")
    monkeypatch.setattr(metadata, "version", _installed("cupy-cuda12x"))
    with pytest.raises(Waived, match="pip install cupy-cuda13x"):
        needs.need_gpus(transports("graph")["nccl"], 3, 3)


def test_nccl_takes_all_gpus_where_cupy_is_there(monkeypatch):
    monkeypatch.setattr(gpus, "cuda_version", lambda: "12.8")
    monkeypatch.setattr(metadata, "version", _installed("cupy-cuda12x"))
    assert needs.need_gpus(transports("graph")["nccl"], 8, 3) == 3


def _installed(*names):
    def version(name):
        if name not in names:
            raise metadata.PackageNotFoundError(name)
        return "1"

    return version


def test_what_shares_gpu_memory_takes_one_gpu_and_no_expandable_segments(monkeypatch):
    row = transports("rdt")["cuda-ipc"]
    assert needs.need_gpus(row, 4, 4) == 1
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    with pytest.raises(UsageError, match="take expandable_segments out of PYTORCH_CUDA_ALLOC_CONF"):
        needs.need_gpus(row, 4, 4)


@pytest.mark.parametrize(
    ("asked", "found", "device"),
    [("auto", 0, ("cpu", 0)), ("cpu", 0, ("cpu", 0)), ("cpu", 2, ("cpu", 0)), ("auto", 2, ("cuda", 2))],
)
def test_gpus_are_used_unless_there_are_none_or_the_cpu_is_asked_for(monkeypatch, asked, found, device):
    monkeypatch.setattr(gpus, "count", lambda: found)
    assert gpus.resolve(asked, False, "refs") == device


@pytest.mark.parametrize(("visible", "count"), [(None, 2), ("", 0), ("1", 1), ("0,1,2", 2), ("0, ", 1)])
def test_gpus_are_counted_without_torch(monkeypatch, tmp_path, visible, count):
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.setattr(gpus, "Path", lambda _: tmp_path)
    monkeypatch.setattr(gpus, "cuda_version", lambda: "12.8")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert gpus.count() == count


def test_a_torch_for_cpus_has_no_gpu(monkeypatch):
    monkeypatch.setattr(gpus, "cuda_version", lambda: None)
    assert gpus.count() == 0
