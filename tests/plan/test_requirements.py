"""Test what a machine must have for a configuration, and the errors if it has less."""

import importlib.util
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import psutil
import pytest
from conftest import parse_options

from dataflow.catalogue.catalogue import TRANSPORTS, Requirements
from dataflow.errors import Skipped, UsageError
from dataflow.plan import memory, validate
from dataflow.plan.plan import resolve_plan
from dataflow.records import machine as machine_record

MIB = 2**20
DELIVERED = 448 * MIB  # bytes per iteration of the demo for all readers
SENT = (32 + 96 + 64 + 160) * MIB
KILOBYTES = ("--batch-size", "4", "--prompt-seq-len", "256")


@pytest.fixture
def machine(monkeypatch):
    """machine(memory, shared): make this many bytes free."""

    monkeypatch.setattr(machine_record, "MY_CGROUPS", Path("/nonexistent"))  # a container may have a limit

    def change(memory=2**40, shared=2**40):
        monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": memory}))
        monkeypatch.setattr(psutil, "disk_usage", lambda _: type("Disk", (), {"free": shared}))

    return change


def test_the_store_holds_the_iterations_in_flight_and_the_one_before(machine, make_plan):
    machine()
    for depth in (1, 4):
        flags, count = ["--transport", "refs", "--in-flight", str(depth)], (depth + 1) * (DELIVERED + SENT)
        assert make_plan("store", *flags, "--object-store-bytes", str(count)).store_bytes == count
        with pytest.raises(UsageError, match="object store with online-dpo"):
            make_plan("store", *flags, "--object-store-bytes", str(count - 1))


def test_channels_are_counted_with_the_iterations_that_they_hold(make_plan):
    for transport, iterations in (("shm", 3), ("pickle", 3), ("zero-copy", 4), ("mapped", 0)):
        plan = make_plan("graph", "--transport", transport, "--in-flight", "2", "--payload", "1MiB")
        count = memory.stored_bytes(plan.transport, plan.options, plan.task_flow)
        assert count == iterations * (plan.task_flow.sent_bytes + 4 * memory.CHANNEL_HEADROOM_BYTES)


def test_messages_that_do_not_fit_into_memory_or_shared_memory_are_rejected(machine, make_plan):
    pool = 3 * SENT
    for runtime, transport, limit, place in (
        ("torch", "gloo", {"memory": pool + 2 * DELIVERED, "shared": 0}, "of memory"),  # readers hold two inputs
        ("graph", "mapped", {"shared": pool}, "1.031 GiB of /dev/shm for messages"),
        ("rdt", "mapped", {"shared": pool}, "1.031 GiB of /dev/shm for messages"),
        ("torch", "multiprocessing", {"shared": pool}, "1.031 GiB of /dev/shm for messages"),
    ):
        machine(**limit)
        make_plan(runtime, "--transport", transport)
        machine(**{name: max(0, count - 1) for name, count in limit.items()})
        with pytest.raises(UsageError, match=f"{place} with online-dpo, .*lower --batch-size"):
            make_plan(runtime, "--transport", transport)


def test_memory_of_the_producers_own_messages_is_needed_with_copy_in(machine, make_plan):
    machine()
    plans = [make_plan("torch", "--transport", "mapped", *flags) for flags in ((), ("--copy-in",))]
    in_place, copied = (memory.resident_bytes(plan.transport, plan.options, plan.task_flow) for plan in plans)
    assert copied - in_place == 3 * SENT


def write_cgroup(folder, limit, used, prefix="", names=("memory.max", "memory.current")):
    """Write the files of a memory controller, in which 3 MiB of the used memory are pages of files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"{prefix}active_file {MIB}\n{prefix}inactive_file {2 * MIB}\ncache 7\n")


def test_the_memory_limit_of_a_container_and_of_those_around_it_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(machine_record, "CGROUPS", tmp_path)
    monkeypatch.setattr(machine_record, "MY_CGROUPS", tmp_path / "self")
    assert memory.limited_memory() == float("inf")
    (tmp_path / "self").write_text("3:cpu:/x\n0::/outer/inner\n")
    write_cgroup(tmp_path / "outer" / "inner", "max", 5 * MIB)
    assert memory.limited_memory() == float("inf")
    write_cgroup(tmp_path / "outer", 100 * MIB, 40 * MIB)
    assert memory.limited_memory() == 63 * MIB
    write_cgroup(tmp_path / "outer" / "inner", 20 * MIB, 40 * MIB)
    assert memory.limited_memory() == 0
    # Version 1. A container without a namespace of its own sees its own controller at the root, under another name.
    (tmp_path / "self").write_text("4:cpu,memory:/docker/0123\n0::/\n")
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    write_cgroup(tmp_path / "memory", 50 * MIB, 10 * MIB, "total_", names)
    assert memory.limited_memory() == 43 * MIB


def test_too_little_memory_for_a_container_names_its_limit(machine, make_plan, monkeypatch):
    machine()
    monkeypatch.setattr(memory, "limited_memory", lambda: 350 * MIB)
    with pytest.raises(UsageError, match=r"of memory under the limit of this container .* 350 MiB are free: lower --"):
        make_plan("torch", "--transport", "gloo")


def test_the_advice_for_a_flow_that_is_text_names_its_bytes(make_plan):
    with pytest.raises(UsageError, match=r"are free: lower the bytes of --flow$"):
        make_plan("torch", "--transport", "memcpy", "--flow", "a -> b: x int64 1099511627776B")


def test_replicas_ranks_and_trainers_have_memory_of_their_own(machine, make_plan):
    machine()

    def resident(*flags):
        plan = make_plan("store", "--transport", "ref-queue", "--flow", "ppo", "--in-flight", "2", *flags)
        return memory.resident_bytes(plan.transport, plan.options, plan.task_flow), plan.task_flow

    alone, flow = resident()
    several, _ = resident("--replicas", "reward=2", "--ranks", "reward=3")
    inputs = sum(edge.bytes for edge in flow.edges_to("reward"))
    assert several - alone == 5 * (5 * flow.message("reward").bytes + 3 * inputs)
    two, flow = resident("--sink", "trainer")  # policy and value
    one, _ = resident("--sink", "trainer", "--trainers", "1")
    assert two - one == 2 * sum(edge.bytes for edge in flow.edges_to("stream-dataset"))


def test_a_configuration_is_skipped_if_a_requirement_is_missing(monkeypatch, no_gpu):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    for runtime, transport, reason in (
        ("graph", "nccl", "nccl needs 3 GPUs and this machine has 0"),
        ("rdt", "nccl", "nccl needs 4 GPUs and this machine has 0"),
        ("rdt", "nixl", "nixl needs nixl-cu12, which is not installed: pip install --no-deps nixl=="),
    ):
        plan, skipped = resolve_plan(runtime, *parse_options(runtime, "--transport", transport, *KILOBYTES))
        assert isinstance(skipped, Skipped) and reason in str(skipped) and plan.transport.name == transport


def test_modules_must_be_installed_and_have_the_wheel_for_the_cuda_version_of_torch(monkeypatch):
    def require(*modules):
        needs = Requirements(modules=modules)
        validate.require_modules(replace(TRANSPORTS["store refs"], requirements=needs), None)

    require("json")
    with pytest.raises(Skipped, match="refs needs invented_module, which is not installed: pip install invented"):
        require("json", "invented_module")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: "spec")
    for module, wheel in (("cupy", "cupy-cuda12x"), ("nixl", "nixl-cu12")):
        monkeypatch.setattr(metadata, "distributions", lambda name, wheel=wheel: [name] if name == wheel else [])
        monkeypatch.setattr(validate, "cuda_version", lambda: "12.8")
        require(module)
        monkeypatch.setattr(validate, "cuda_version", lambda: "13.0")
        with pytest.raises(Skipped, match=wheel.replace("12", "13")):
            require(module)


def test_actors_share_one_gpu_with_cuda_ipc_and_not_with_expandable_segments(monkeypatch):
    assert validate.require_gpus(TRANSPORTS["rdt cuda-ipc"], 4, 4) == 1
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    with pytest.raises(UsageError, match="remove expandable_segments from PYTORCH_CUDA_ALLOC_CONF"):
        validate.require_gpus(TRANSPORTS["rdt cuda-ipc"], 4, 4)


def test_gpus_are_used_unless_the_cpu_is_asked_for_or_the_transport_moves_host_memory(monkeypatch):
    monkeypatch.setattr(validate, "count_gpus", lambda: 2)
    refs, gloo = TRANSPORTS["store refs"], TRANSPORTS["torch gloo"]
    assert validate.resolve_device(refs, "auto") == validate.resolve_device(refs, "cuda") == ("cuda", 2)
    assert validate.resolve_device(refs, "cpu") == validate.resolve_device(gloo, "auto") == ("cpu", 0)
    with pytest.raises(UsageError, match=r"--device cuda: gloo moves host memory. Use --device cpu."):
        validate.resolve_device(gloo, "cuda")


def test_gpus_are_counted_without_torch(monkeypatch, tmp_path):
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.setattr(validate, "Path", lambda _: tmp_path)
    monkeypatch.setattr(validate, "cuda_version", lambda: "12.8")
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert validate.count_gpus() == 2
    for visible, count in (("", 0), ("1", 1), ("0,1,2", 2), ("0, ", 1)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert validate.count_gpus() == count
    monkeypatch.setattr(validate, "cuda_version", lambda: None)  # torch for CPUs
    assert validate.count_gpus() == 0
