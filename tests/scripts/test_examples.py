# SPDX-License-Identifier: Apache-2.0
"""Test the examples where a user copies them from, and how they end."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from conftest import ROOT, RUN_SECONDS, require_nixl

from dataflow.workers.variables import RETAIN_MEMORY
from examples import retained_memory


def test_variables_that_a_user_can_copy_are_those_of_the_suite():
    assert retained_memory.RETAIN_MEMORY == RETAIN_MEMORY
    page = (ROOT / "docs" / "in-your-code.md").read_text()
    (line,) = re.findall("^ +export (MALLOC_.+)", page, re.MULTILINE)
    assert dict(word.split("=") for word in line.split()) == RETAIN_MEMORY


def run_with_a_cluster_of_its_own(*words):
    """Return the finished Python program, which starts a private cluster."""
    variables = {"RAY_ADDRESS": "local", "RAY_USAGE_STATS_ENABLED": "0"}
    with tempfile.TemporaryDirectory(prefix="h-", dir="/tmp") as home:  # for Ray's token
        environment = os.environ | variables | {"HOME": home}
        return subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            check=False,
            text=True,
            timeout=RUN_SECONDS,
        )


def find_dead_semaphores():
    """Return the semaphores of channels whose cluster has ended. Their names have the process id of its raylet."""
    dead = set()
    for path in Path("/dev/shm").glob("sem.*"):
        match = re.fullmatch(r"sem\.(?:hdr|obj)(\d+)-\d+", path.name)
        if match and not psutil.pid_exists(int(match[1])):
            dead.add(path.name)
    return dead


@pytest.mark.slow
@pytest.mark.runs
@pytest.mark.parametrize("example", ["compiled_graph", "nixl_read"])
def test_a_compiled_graph_ends_without_a_traceback_and_without_semaphores(example):
    if example == "nixl_read":
        require_nixl()
    before = find_dead_semaphores()
    done = run_with_a_cluster_of_its_own("-m", f"examples.{example}")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"before: [0-9.]+ ms, after: [0-9.]+ ms\n", done.stdout)
    for text in ("Traceback", "ERROR"):
        assert text not in done.stderr, done.stderr
    assert find_dead_semaphores() - before == set()
