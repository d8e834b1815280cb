# SPDX-License-Identifier: Apache-2.0
"""Test how GPUs are found and shared: the rule of scripts and suite."""

import subprocess
import sys
from pathlib import Path

import pytest

from common import flags as script_flags
from common import gpus
from dataflow.plan import validate


@pytest.fixture
def devices(monkeypatch, tmp_path):
    """Make a machine with three GPUs, and torch that can use them."""
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.setattr(gpus, "Path", lambda path: tmp_path if path == "/dev" else Path(path))
    monkeypatch.setattr(gpus, "cuda_version", lambda: "13.0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


@pytest.mark.parametrize("visible, count", [
    (None, 3), ("", 0), (" ", 0), ("-1", 0), ("NoDevFiles", 0), ("none", 0),
    ("0", 1), ("2,0", 2), ("0, 1", 2), ("0,1,2", 3), ("0, ", 1), ("0,,1", 1),
    ("0,-1,1", 1), ("0,3,1", 1), ("3", 0), ("0,x,1", 1), ("1,1", 0),
    ("GPU-8932f937", 1), ("GPU-8932f937,GPU-45cdef01", 2), ("GPU-8932f937,0", 1), ("0,GPU-8932f937", 1),
    ("MIG-c6d4f1ef", 1), ("MIG-c6d4f1ef,MIG-cba663e8", 1),
])  # fmt: skip
@pytest.mark.usefixtures("devices")
def test_gpus_are_counted_up_to_the_first_wrong_entry_of_cuda_visible_devices(
    monkeypatch, visible, count
):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus.count_gpus() == count


@pytest.mark.usefixtures("devices")
def test_no_gpu_counts_if_torch_is_built_for_cpus_and_torch_is_not_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert gpus.count_gpus() == 3
    monkeypatch.setattr(gpus, "cuda_version", lambda: None)
    assert gpus.count_gpus() == 0


def test_scripts_and_suite_count_and_choose_by_one_rule():
    assert script_flags.count_gpus is validate.count_gpus is gpus.count_gpus
    assert script_flags.default_device is validate.default_device is gpus.default_device


@pytest.mark.parametrize("actors", [1, 2, 3, 7])
@pytest.mark.parametrize("count", range(1, 9))
def test_all_actors_fit_on_the_gpus_and_none_is_split(actors, count):
    share = gpus.share_of_gpu(actors, count)
    units = round(10_000 * share)
    assert units == 10_000 * share, "Ray counts in ten-thousandths"
    assert 0 < share <= 1 and count * (10_000 // units) >= actors
    # No GPU is empty that an actor could have alone.
    assert share == 1 or count < actors


def test_the_names_of_gpus_come_from_nvidia_smi_where_a_container_hides_proc(
    monkeypatch, devices, tmp_path
):
    def run(command, **_):
        values = {"name": "NVIDIA H100 80GB HBM3\n", "driver_version": "580.1\n"}
        field = command[1].removeprefix("--query-gpu=")
        return subprocess.CompletedProcess(command, 0, stdout=values[field])

    missing = Path(tmp_path / "missing")
    monkeypatch.setattr(gpus, "Path", lambda path: devices if path == "/dev" else missing)
    monkeypatch.setattr(gpus.subprocess, "run", run)
    gpus.ask_nvidia_smi.cache_clear()
    assert gpus.name_gpus() == ["NVIDIA H100 80GB HBM3"]
    assert gpus.driver_version() == "580.1"
    monkeypatch.setattr(
        gpus, "Path", lambda _: missing
    )  # a machine without a GPU: nothing is asked
    assert gpus.name_gpus() == [] and gpus.driver_version() is None
    gpus.ask_nvidia_smi.cache_clear()


def test_a_machine_whose_nvidia_smi_is_missing_or_hangs_has_no_names(monkeypatch):
    for error in (FileNotFoundError(), subprocess.TimeoutExpired("nvidia-smi", 10)):

        def run(*_, error=error, **__):
            raise error

        monkeypatch.setattr(gpus.subprocess, "run", run)
        gpus.ask_nvidia_smi.cache_clear()
        assert gpus.ask_nvidia_smi("name") == []
    gpus.ask_nvidia_smi.cache_clear()
