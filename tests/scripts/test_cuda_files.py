# SPDX-License-Identifier: Apache-2.0
"""What CUDA leaves of killed processes in /dev/shm, with files of the names that it gives them."""

import subprocess
from pathlib import Path

import psutil
import pytest

from common import cluster, cuda_files


@pytest.fixture
def sleeper():
    """Yield a process that is still there."""
    process = subprocess.Popen(["sleep", "600"])
    yield psutil.Process(process.pid)
    process.kill()
    process.wait()


def test_the_files_of_processes_that_were_killed_are_removed_and_no_others(
    sleeper, tmp_path, monkeypatch
):
    own = tmp_path / f"cuda.shm.0.{sleeper.pid:x}.1"
    others = [tmp_path / f"cuda.shm.0.{sleeper.pid + 1:x}.1", tmp_path / f"torch_{sleeper.pid}_1"]
    for path in (own, *others):
        path.touch()
    monkeypatch.setattr(
        cluster,
        "remove_cuda_files",
        lambda pid: [path.unlink() for path in cuda_files.find_cuda_files(pid, tmp_path)],
    )
    cluster.kill([sleeper])
    assert sorted(tmp_path.iterdir()) == sorted(others)


def test_a_file_that_cannot_be_removed_is_no_error(monkeypatch):
    found = [Path("/dev/shm/cuda.shm.missing.1.1")]
    monkeypatch.setattr(cuda_files, "find_cuda_files", lambda pid: found)
    cuda_files.remove_cuda_files(1)
