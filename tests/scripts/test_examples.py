# SPDX-License-Identifier: Apache-2.0
"""Test the examples where a user copies them from, whether they stand alone, and how they end."""

import ast
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from conftest import ROOT, RUN_SECONDS, require_nixl

from common.cluster import remove_semaphores
from dataflow.workers.variables import RETAIN_MEMORY

EXAMPLES = ROOT / "examples"
PAGE = (ROOT / "docs" / "in-your-code.md").read_text()
# The ones that cannot be sent to somebody who has not this project.
NOT_ALONE = ("actors", "nixl_read", "put_records", "receive_in_place", "shared_memory_ring")
ALONE = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem not in NOT_ALONE)
MAX_LINES = 40
PACKAGES = {"numpy", "ray", "torch", *sys.stdlib_module_names}


def find_packages(text):
    """Return the packages that a program imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("." * node.level + (node.module or ""))
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("name", ALONE)
def test_an_example_is_short_and_needs_nothing_of_this_project(name):
    text = (EXAMPLES / f"{name}.py").read_text()
    assert len(text.splitlines()) <= MAX_LINES
    assert find_packages(text) <= PACKAGES


def test_imports_of_this_project_are_found():
    text = (
        "import numpy as n\nfrom ray.dag import InputNode\ndef f():\n    from common.x import y\n"
    )
    assert find_packages(text) == {"numpy", "ray", "common"}
    assert find_packages("from . import actors") == {""}


def test_the_page_lists_each_example():
    listed = re.findall(r"^\|.*\(\.\./examples/(\w+)\.py\)", PAGE, re.MULTILINE)
    expected = {path.stem for path in EXAMPLES.glob("*.py")} - {"actors", "put_records"}
    assert sorted(listed) == sorted(expected)


def test_variables_that_a_user_can_copy_are_those_of_the_suite():
    tree = ast.parse((EXAMPLES / "retained_memory.py").read_text())
    (value,) = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "RETAIN_MEMORY"
    ]
    assert ast.literal_eval(value) == RETAIN_MEMORY
    (line,) = re.findall("^ +export (MALLOC_.+)", PAGE, re.MULTILINE)
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


def check_end(done):
    """Check that a program with a compiled graph has ended well."""
    assert done.returncode == 0, done.stderr
    for text in ("Traceback", "ERROR"):
        assert text not in done.stderr, done.stderr


@pytest.mark.slow
@pytest.mark.runs
def test_a_compiled_graph_ends_without_a_traceback():
    with remove_semaphores():
        check_end(run_with_a_cluster_of_its_own(EXAMPLES / "compiled_graph.py"))


@pytest.mark.slow
@pytest.mark.runs
def test_a_compiled_graph_with_nixl_ends_without_a_traceback_and_without_semaphores():
    require_nixl()
    before = find_dead_semaphores()
    check_end(run_with_a_cluster_of_its_own("-m", "examples.nixl_read"))
    assert find_dead_semaphores() - before == set()


@pytest.mark.slow
@pytest.mark.runs
def test_a_freed_block_leaves_less_than_half_of_the_page_faults():
    done = run_with_a_cluster_of_its_own(EXAMPLES / "freed_block.py")
    faults = re.findall(r"([\d,]+) page faults$", done.stdout, re.MULTILINE)
    without, with_block = [int(count.replace(",", "")) for count in faults]
    assert with_block < without / 2, done.stdout


@pytest.mark.slow
@pytest.mark.runs
def test_without_the_repair_two_managers_are_made_and_the_first_tensor_does_not_arrive():
    require_nixl()
    done = run_with_a_cluster_of_its_own(EXAMPLES / "rdt_hang.py")
    lines = [line for line in done.stdout.splitlines() if "managers" in line]
    assert lines == ["slowed did not arrive managers: 2", "repaired arrived managers: 1"], (
        done.stderr
    )
