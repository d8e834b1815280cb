# SPDX-License-Identifier: Apache-2.0
"""Test what follows from the flags: GPUs, the record, and what a machine must have."""

import importlib.util
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest
from conftest import KILOBYTES, parse_options

from dataflow.catalogue.catalogue import TRANSPORTS
from dataflow.errors import Skipped, UsageError
from dataflow.plan import validate
from dataflow.plan.options import FLAGS
from dataflow.plan.plan import PROCESS_BYTES, resolve_plan

MIB = 2**20
DELIVERED = 448 * MIB  # bytes per iteration of the demo for all readers
SENT = (32 + 96 + 64 + 160) * MIB
PROCESSES = 4 * PROCESS_BYTES  # the driver and three models
LARGE = 2**40


@pytest.mark.parametrize(
    ("configuration", "flags", "limits", "error"),
    [  # Over torch, readers hold two inputs and senders three payloads, which mapped has in shared memory.
        ("store refs", ["--object-store-bytes", str(2 * (DELIVERED + SENT))], {}, ""),
        (
            "store refs",
            ["--object-store-bytes", str(2 * (DELIVERED + SENT) - 1)],
            {},
            "of object store with online",
        ),
        (
            "store refs",
            ["--in-flight", "4", "--object-store-bytes", str(5 * (DELIVERED + SENT))],
            {},
            "",
        ),
        (
            "store refs",
            ["--in-flight", "4", "--object-store-bytes", str(5 * (DELIVERED + SENT) - 1)],
            {},
            "of object",
        ),
        ("torch gloo", [], {"memory": 3 * SENT + 2 * DELIVERED + PROCESSES, "shared": 0}, ""),
        (
            "torch gloo",
            [],
            {"memory": 3 * SENT + 2 * DELIVERED + PROCESSES - 1, "shared": 0},
            "of memory with online-dpo",
        ),
        ("torch mapped", [], {"shared": 3 * SENT}, ""),
        (
            "torch mapped",
            [],
            {"shared": 3 * SENT - 1},
            r"1\.031 GiB of /dev/shm for messages with online-dpo",
        ),
        (
            "torch gloo",
            [],
            {"limit": 350 * MIB},
            "of memory under the limit of this container .* 350 MiB are free",
        ),
    ],
)
def test_messages_that_do_not_fit_are_rejected(
    monkeypatch, make_plan, configuration, flags, limits, error
):
    free = {"memory": LARGE, "shared": LARGE, "limit": LARGE} | limits
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free["memory"]))
    monkeypatch.setattr(psutil, "disk_usage", lambda _: SimpleNamespace(free=free["shared"]))
    monkeypatch.setattr(validate, "limited_memory", lambda: free["limit"])
    runtime, transport = configuration.split()
    with (
        pytest.raises(UsageError, match=f"{error}.*send smaller messages")
        if error
        else nullcontext()
    ):
        make_plan(runtime, "--transport", transport, *flags)


def test_processes_that_do_not_fit_are_rejected_however_small_the_messages_are(
    monkeypatch, make_plan
):
    flags = ("--transport", "gloo", "--flow", "fan-out", "--message-bytes", "1KiB", "--actors")
    free = SimpleNamespace(available=20 * PROCESS_BYTES)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    monkeypatch.setattr(validate, "limited_memory", lambda: LARGE)
    assert make_plan("torch", *flags, "16").memory_bytes < free.available
    with pytest.raises(UsageError, match=r"^gloo needs .* of memory .*: start fewer than \d+ proc"):
        make_plan("torch", *flags, "40")
    alone = make_plan("torch", "--transport", "memcpy", *KILOBYTES)
    assert alone.processes == 1  # all actors are in the driver's process


def test_a_configuration_of_a_suite_that_does_not_fit_is_skipped(monkeypatch, no_gpu):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=350 * MIB))
    (options,) = parse_options("torch", "--transport", "gloo")
    with pytest.raises(UsageError, match="of memory with online-dpo"):
        resolve_plan(TRANSPORTS["torch gloo"], options)
    _, skipped = resolve_plan(TRANSPORTS["torch gloo"], options, "quick", "configurations")
    assert isinstance(skipped, Skipped) and "of memory with online-dpo" in str(skipped)


def test_a_flow_beside_that_does_not_fit_skips_a_configuration_of_a_suite(monkeypatch, no_gpu):
    flags = ("--transport", "gloo", *KILOBYTES, "--beside", "fan-out")
    (options,) = parse_options("torch", *flags)
    plan, skipped = resolve_plan(TRANSPORTS["torch gloo"], options, "quick", "configurations")
    assert skipped is None and plan.beside is not None
    free = SimpleNamespace(available=(plan.memory_bytes + plan.beside.memory_bytes) // 2)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    monkeypatch.setattr(validate, "limited_memory", lambda: LARGE)
    assert plan.memory_bytes < free.available < plan.beside.memory_bytes
    _, skipped = resolve_plan(TRANSPORTS["torch gloo"], options, "quick", "configurations")
    assert "of memory with fan-out" in str(skipped)
    with pytest.raises(UsageError, match=r"^--beside fan-out: .* of memory with fan-out"):
        resolve_plan(TRANSPORTS["torch gloo"], options)


@pytest.mark.study("weights")
@pytest.mark.parametrize("configuration", ["store refs", "torch mapped"])
def test_the_part_of_a_model_that_is_advised_fits_into_the_memory(
    monkeypatch, make_plan, configuration
):
    gibibyte = 2**30
    free = SimpleNamespace(available=22 * gibibyte, free=12 * gibibyte)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    monkeypatch.setattr(psutil, "disk_usage", lambda _: free)
    monkeypatch.setattr(validate, "limited_memory", lambda: float("inf"))
    runtime, transport = configuration.split()
    flow = ("--flow", "weights", "--model", "qwen2.5-7b", "--receivers", "4")
    with pytest.raises(UsageError, match="a part of the model with --model-scale") as error:
        make_plan(runtime, "--transport", transport, *flow)
    scale = str(error.value).split()[-1]
    make_plan(runtime, "--transport", transport, *flow, "--model-scale", scale)


def write_cgroup(folder, limit, used, prefix="", names=("memory.max", "memory.current")):
    """Write the files of a memory controller, in which 3 MiB of the used memory are pages of files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(
        f"{prefix}active_file {MIB}\n{prefix}inactive_file {2 * MIB}\ncache 7\n"
    )


def test_the_memory_limit_of_a_container_and_of_those_around_it_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(validate, "CGROUPS", tmp_path)
    monkeypatch.setattr(validate, "MY_CGROUPS", tmp_path / "self")
    assert validate.limited_memory() == float("inf")
    (tmp_path / "self").write_text("3:cpu:/x\n0::/outer/inner\n")
    write_cgroup(tmp_path / "outer" / "inner", "max", 5 * MIB)
    assert validate.limited_memory() == float("inf")
    write_cgroup(tmp_path / "outer", 100 * MIB, 40 * MIB)
    assert validate.limited_memory() == 63 * MIB
    write_cgroup(tmp_path / "outer" / "inner", 20 * MIB, 40 * MIB)
    assert validate.limited_memory() == 0
    # Version 1. A container without a namespace of its own sees its own controller at the root, under another name.
    (tmp_path / "self").write_text("4:cpu,memory:/docker/0123\n0::/\n")
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    write_cgroup(tmp_path / "memory", 50 * MIB, 10 * MIB, "total_", names)
    assert validate.limited_memory() == 43 * MIB


def test_a_configuration_is_skipped_if_a_requirement_is_missing(monkeypatch, no_gpu):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    for runtime, transport, reason in (
        ("graph", "nccl", "nccl needs 3 GPUs and this machine has 0"),
        ("rdt", "nccl", "nccl needs 4 GPUs and this machine has 0"),
        ("rdt", "cuda-ipc", "cuda-ipc needs 1 GPU and this machine has 0: choose another config"),
        ("graph", "cuda-ipc", "cuda-ipc needs 1 GPU and this machine has 0: choose another config"),
        ("rdt", "nixl", "nixl needs nixl, which is not installed: pip install --no-deps nixl=="),
    ):
        (options,) = parse_options(runtime, "--transport", transport, *KILOBYTES)
        plan, skipped = resolve_plan(TRANSPORTS[f"{runtime} {transport}"], options)
        assert (
            isinstance(skipped, Skipped)
            and reason in str(skipped)
            and plan.transport.name == transport
        )


@pytest.mark.parametrize(("configuration", "machine", "is_skipped"), [
    ("graph mapped", "aarch64", True), ("torch mapped", "aarch64", True), ("torch mapped", "x86_64", False),
    ("torch gloo", "aarch64", False), ("graph shm", "aarch64", False),
])  # fmt: skip
def test_transports_that_rely_on_the_memory_order_of_x86_are_skipped_elsewhere(
    monkeypatch, no_gpu, configuration, machine, is_skipped
):
    monkeypatch.setattr(validate.platform, "machine", lambda: machine)
    runtime, transport = configuration.split()
    (options,) = parse_options(runtime, "--transport", transport, *KILOBYTES)
    _, skipped = resolve_plan(TRANSPORTS[configuration], options)
    assert isinstance(skipped, Skipped) == is_skipped
    if is_skipped:
        assert str(skipped) == (
            "mapped relies on the memory order of x86_64 and this machine is aarch64: "
            "choose another configuration ('dataflow list' shows all)"
        )


@pytest.mark.parametrize(("cuda", "missing"), [
    (None, None), ("12.8", None), ("13.0", "nixl_cu13"),
])  # fmt: skip
def test_nixl_needs_the_package_of_torchs_cuda_version(monkeypatch, no_gpu, cuda, missing):
    monkeypatch.setattr(validate, "cuda_version", lambda: cuda)
    installed = ("nixl", "nixl_cu12")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name in installed or None)
    with_nixl = [
        name for name, of in TRANSPORTS.items() if "nixl" in of.requirements.modules
    ]  # those of peers too
    assert {"rdt nixl", "rdt nixl-pull"} <= set(with_nixl)
    for name in with_nixl:
        runtime, transport = name.split()
        (options,) = parse_options(runtime, "--transport", transport, *KILOBYTES)
        _, skipped = resolve_plan(TRANSPORTS[name], options)
        if missing is None:
            assert skipped is None
        else:
            assert f"needs {missing}, which is not installed" in str(skipped)
            assert "nixl-cu13==1.5.1" in str(skipped)


def test_actors_are_on_the_cpu_or_get_the_largest_equal_share_of_a_gpu_that_fits(make_plan):
    plan = make_plan("store", *KILOBYTES)
    assert (plan.gpus_per_actor, {plan.gpu_of(name) for name in plan.worker_names}) == (0, {"cpu"})
    plan = replace(plan, device="cuda", gpus=2)
    assert [plan.gpu_of(name) for name in plan.worker_names] == [
        "cuda:0",
        "cuda:0",
        "cuda:1",
        "cuda:0",
    ]
    for actors in (1, 2, 3, 7):
        plan = make_plan("store", "--flow", "chain", "--actors", str(actors))
        for gpus in range(1, 9):
            share = replace(plan, device="cuda", gpus=gpus).gpus_per_actor
            assert 0 < share <= 1 and int(10_000 // (share * 10_000)) * gpus >= actors
            assert share == {(3, 2): 0.5, (3, 1): 0.3333, (7, 3): 0.3333, (3, 3): 1}.get(
                (actors, gpus), share
            )


def test_the_record_has_every_flag_workload_configuration_and_table_without_folders(
    make_plan, tmp_path
):
    plan = make_plan(
        "graph", "--transport", "mapped", "--copy-out", "--timeout", "7", "--trace", *KILOBYTES
    )
    record = plan.new_record()
    assert {flag.name for flag in FLAGS} <= record.arguments.keys()
    assert (record.suite, record.table, record.traced, record.runs) == ("", "stages", True, [])
    assert (record.workload.flow, record.workload.message, record.arguments["timeout"]) == (
        "online-dpo",
        "flat",
        7,
    )
    assert record.workload.sizes == {
        "batch_size": 4,
        "prompt_seq_len": 256,
        "max_new_tokens": 0,
        "num_samples": 2,
    }
    assert (record.configuration.name, record.configuration.device) == (
        "graph mapped --copy-out",
        "cpu",
    )
    plan, _ = resolve_plan(plan.transport, plan.options, "quick", "configurations")
    assert (plan.new_record().suite, plan.new_record().table) == ("quick", "configurations")
    given = make_plan("store", "--flow", "ppo", "--prompt-len", "512").workload
    assert given == make_plan("store", "--flow", "ppo").workload
    (tmp_path / "mine.py").write_text("from dataflow.flows.catalogue import chain as make")
    assert make_plan("store", "--flow", f"{tmp_path}/mine.py:make").workload.flow == "mine.py:make"
