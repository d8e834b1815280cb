# SPDX-License-Identifier: Apache-2.0
"""Test the flags of the two scripts, the sizes of their messages, and what they import."""

import ast
import os
import platform
import subprocess
import sys
import tempfile
from datetime import datetime
from types import SimpleNamespace

import psutil
import pytest
from conftest import ROOT

from common import flags as script_flags
from common import sizes

STORE, GRAPH = "simulate_chat_learn_data_flow.py", "ray_cg_simulate_chat_learn_data_flow.py"


@pytest.fixture
def parse(monkeypatch, tmp_path):
    """parse(runtime, *flags) -> the flags of a script, which change no environment variable of this process."""
    monkeypatch.setattr(script_flags, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setattr(script_flags, "count_gpus", lambda: 0)

    def parse_words(runtime, *words):
        monkeypatch.setattr(sys, "argv", ["script", *words])
        return script_flags.parse_flags(runtime, "")

    return parse_words


@pytest.mark.parametrize(("arguments", "expected"), [
    ((1024, 4096), (32 * 2**20, 96 * 2**20, 64 * 2**20, 160 * 2**20)),  # the demo's
    ((7, 11, 4, 3), (8 * 77, 12 * 392, 8 * 392, 20 * 392)),  # 4 samples of 7 prompts with 11 + 3 tokens
])  # fmt: skip
def test_messages_have_the_bytes_of_the_formulas(arguments, expected):
    assert tuple(sizes.message_bytes(*arguments).values()) == expected


@pytest.mark.parametrize("name", ["/dev/shm", "memory"])
def test_too_little_memory_is_rejected_with_the_largest_batch_that_fits(monkeypatch, name):
    needed = {
        "/dev/shm": sizes.STORED_ITERATIONS,
        "memory": sizes.STORED_ITERATIONS + sizes.RESIDENT_ITERATIONS,
    }
    free = dict.fromkeys(needed, 2**50)
    free[name] = needed[name] * 700 * 448 * 1024 + 1  # the demo moves 448 KiB per prompt
    monkeypatch.setattr(psutil, "disk_usage", lambda path: SimpleNamespace(free=free[path]))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free["memory"]))
    sizes.check_memory(sizes.message_bytes(700, 4096), 700)
    with pytest.raises(
        ValueError, match=rf"--batch-size 701 .* free in {name}: the largest that fits is 700$"
    ):
        sizes.check_memory(sizes.message_bytes(701, 4096), 701)


def test_too_little_shared_memory_for_ray_itself_is_not_a_question_of_the_batch(monkeypatch):
    free_bytes = sizes.MIN_STORE_BYTES - 2**20
    monkeypatch.setattr(psutil, "disk_usage", lambda path: SimpleNamespace(free=free_bytes))
    with pytest.raises(ValueError, match=r"^99 MiB are free in /dev/shm, and .* takes 100 MiB"):
        sizes.check_memory(sizes.message_bytes(1, 2), 1)


@pytest.mark.parametrize(("runtime", "words", "message"), [
    ("store", ["--transport", "shm"], f"--transport shm belongs to {GRAPH}"),
    ("graph", ["--transport", "refs"], f"--transport refs belongs to {STORE}"),
    ("store", ["--transprot", "refs"], "unknown flag --transprot: did you mean --transport?"),
    ("store", ["--transport", "queue"], "--transport queue is unknown: use driver-queue, ref-queue, refs"),
    ("graph", ["--transport", "nccl"], "--transport nccl needs --device cuda: use shm"),
    ("store", ["--device", "cuda"], "--device cuda: no GPU found. Use --device cpu (--help"),
    ("graph", ["--device", "cuda", "--transport", "shm"], "--device cuda: no GPU found. Use --device cpu (--help"),
    ("graph", ["--device", "cuda", "--transport", "nccl"],
     "--device cuda: no GPU found. Use --device cpu --transport shm"),
    ("graph", ["--device", "cuda", "--transport", "cuda-ipc"],
     "--device cuda: no GPU found. Use --device cpu --transport shm"),
    ("store", ["--iterations", "0"], "--iterations 0: give 1 or more"),
    ("graph", ["--batch-size", "many"], "--batch-size: invalid int value: 'many'"),
    ("graph", ["--output", "/proc/no/record"], "--output /proc/no/record: No such file or directory"),
    ("graph", ["--output", __file__], f"--output {__file__}: File exists: give another one"),
    ("store", ["--address", "127.0.0.1:1"], "--address 127.0.0.1:1: Connection refused: give another one"),
    ("store", ["--rounds", "3"], "unknown flag --rounds (--help lists the flags)"),
    ("store", ["--iteration", "5"], "unknown flag --iteration: did you mean --iterations? (--help"),
    ("graph", ["--warm", "5"], "unknown flag --warm: did you mean --warmup? (--help"),
])  # fmt: skip
def test_a_wrong_flag_is_one_line(parse, capsys, runtime, words, message):
    with pytest.raises(SystemExit) as end:
        parse(runtime, *words)
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}") and error.count("\n") == 1 and end.value.code == 2


def test_without_a_folder_for_temporary_files_nothing_begins(parse, capsys, monkeypatch, tmp_path):
    def find_none():
        raise FileNotFoundError

    monkeypatch.setattr(tempfile, "gettempdir", find_none)
    with pytest.raises(SystemExit) as end:
        parse("store", "--batch-size", "1")
    error = capsys.readouterr().err
    assert error.startswith("error: no folder for temporary files can be written")
    assert error.count("\n") == 1 and end.value.code == 2
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(("runtime", "gpus", "words", "device", "transport", "gpus_per_model"), [
    ("store", 0, [], "cpu", "driver-queue", 0),
    ("graph", 0, [], "cpu", "shm", 0),
    ("store", 3, [], "cuda", "driver-queue", 1),
    ("graph", 3, [], "cuda", "nccl", 1),
    ("store", 1, [], "cuda", "driver-queue", 0.3333),
    ("graph", 1, [], "cuda", "cuda-ipc", 0.3333),
    ("graph", 2, ["--device", "cuda"], "cuda", "cuda-ipc", 0.3333),
    ("graph", 1, ["--device", "cpu"], "cpu", "shm", 0),
    ("graph", 3, ["--device", "cpu"], "cpu", "shm", 0),
    ("graph", 1, ["--device", "cuda", "--transport", "shm"], "cuda", "shm", 0.3333),
    ("graph", 2, ["--transport", "shm"], "cuda", "shm", 0.5),
    ("graph", 3, ["--transport", "cuda-ipc"], "cuda", "cuda-ipc", 0.3333),
    ("graph", 1, ["--address", "auto"], "cuda", "shm", 0.3333),
    ("store", 2, [], "cuda", "driver-queue", 0.5),
    ("store", 4, [], "cuda", "driver-queue", 1),
    ("graph", 4, [], "cuda", "nccl", 1),
    ("store", 8, [], "cuda", "driver-queue", 1),
    ("graph", 8, [], "cuda", "nccl", 1),
    ("graph", 8, ["--transport", "shm"], "cuda", "shm", 1),
    ("graph", 8, ["--transport", "cuda-ipc"], "cuda", "cuda-ipc", 0.3333),
])  # fmt: skip
def test_defaults_depend_on_the_gpus(
    parse, monkeypatch, runtime, gpus, words, device, transport, gpus_per_model
):
    monkeypatch.setattr(script_flags, "count_gpus", lambda: gpus)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    flags = parse(runtime, *words)
    assert (flags.device, flags.transport, flags.gpus_per_model) == (
        device,
        transport,
        gpus_per_model,
    )


@pytest.mark.parametrize(("gpus", "words", "machine"), [
    (0, [], "x86_64"), (1, ["--device", "cpu"], "x86_64"), (1, ["--address", "auto"], "x86_64"), (1, [], "aarch64"),
])  # fmt: skip
def test_cuda_ipc_needs_a_gpu_of_this_machine(parse, monkeypatch, capsys, gpus, words, machine):
    monkeypatch.setattr(script_flags, "count_gpus", lambda: gpus)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(SystemExit):
        parse("graph", "--transport", "cuda-ipc", *words)
    error = capsys.readouterr().err
    has_no_gpu = not gpus or "cpu" in words
    reason = "--device cuda" if has_no_gpu else "a GPU of this"
    assert error.startswith(f"error: --transport cuda-ipc needs {reason}")
    assert parse("graph", *words).transport == "shm"


def test_with_an_address_the_models_gpus_may_be_elsewhere_but_the_driver_needs_one(
    parse, monkeypatch, capsys
):
    monkeypatch.setattr(script_flags, "check_address", lambda address: None)
    words = ("--device", "cuda", "--address", "10.0.0.1:6379")
    with pytest.raises(SystemExit):
        parse("graph", *words)
    assert "--device cuda: no GPU found" in capsys.readouterr().err
    monkeypatch.setattr(script_flags, "count_gpus", lambda: 1)
    flags = parse("graph", *words)
    assert (flags.transport, flags.gpus_per_model) == ("nccl", 1)


@pytest.mark.parametrize("has_token", [False, True])
def test_a_joined_cluster_is_asked_with_the_token_of_the_user(
    parse, monkeypatch, tmp_path, has_token
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    if has_token:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").touch()
    parse("graph", "--address", "auto")
    assert os.environ.get("RAY_AUTH_MODE") == ("token" if has_token else None)


def test_the_name_of_a_record_has_its_time_as_records_of_the_suite(parse):
    _, _, time = parse("store").output.stem.rpartition("-")
    datetime.strptime(time, "%Y%m%dT%H%M%S.%fZ")


@pytest.mark.parametrize("script", [STORE, GRAPH])
def test_a_wrong_flag_is_rejected_before_ray_and_torch_are_imported_and_without_the_suite(script):
    command = [sys.executable, "-X", "importtime", script, "--transport", "none"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True)
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 2 and "common.flags" in modules
    assert not {"ray", "torch", "numpy", "dataflow"} & modules


def test_scripts_import_only_the_standard_library_ray_torch_and_common_which_does_not_import_the_suite():
    allowed = sys.stdlib_module_names | {"ray", "torch", "common"}
    for path in (
        ROOT / STORE,
        ROOT / GRAPH,
        ROOT / "plot_results.py",
        *(ROOT / "common").glob("*.py"),
    ):
        nodes = [*ast.walk(ast.parse(path.read_text()))]
        names = {
            alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
        }
        names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
        packages = {name.partition(".")[0] for name in names}
        assert packages <= allowed if path.name in (STORE, GRAPH) else "dataflow" not in packages, (
            path
        )
