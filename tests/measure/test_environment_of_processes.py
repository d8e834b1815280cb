# SPDX-License-Identifier: Apache-2.0
"""Test the check that the processes of a run have the variables and libraries of --env."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import KILOBYTES

from dataflow.errors import RunFailed
from dataflow.measure.environment import (
    find_problem,
    mapped_files,
    read_environment,
    require_environment,
)
from dataflow.workers.worker_group import WorkerGroup

ME = os.getpid()


def test_a_variable_that_is_missing_or_differs_is_named():
    wanted = {"A": "1", "B": ""}
    assert find_problem(wanted, {"A": "1", "B": "", "C": "3"}, ME) == ""
    assert find_problem(wanted, {"A": "1"}, ME) == "has no B"
    assert find_problem(wanted, {"A": "2", "B": ""}, ME) == "has another A"


def test_a_library_that_is_not_loaded_is_named(tmp_path):
    library = next(path for path in sorted(mapped_files(ME)) if "/libc.so" in path)
    link = tmp_path / "libc.so"
    link.symlink_to(library)
    for path in (library, str(link)):
        assert find_problem({"LD_PRELOAD": path}, {"LD_PRELOAD": path}, ME) == ""
    other = str(tmp_path / "libother.so")
    Path(other).write_text("no library")
    both = {"LD_PRELOAD": f"{library}:{other}"}
    assert find_problem(both, both, ME).startswith("has not loaded libother.so: check with ldd")


def test_the_variables_of_another_process_are_those_that_it_was_started_with():
    program = [sys.executable, "-c", "print(flush=True); input()"]
    variables = {"A": "x=y", "B": ""}
    pipe = subprocess.PIPE
    with subprocess.Popen(program, env=variables, stdin=pipe, stdout=pipe) as process:
        # Popen returns before the kernel has all variables of the new program in its place.
        process.stdout.readline()
        environment = read_environment(process.pid)
        process.communicate(b"\n")
    assert {name: environment.get(name) for name in variables} == variables


@pytest.fixture
def workers_of(make_plan, monkeypatch):
    """workers_of(*flags) -> a plan, and workers of which the actor `policy` has no variable of this process."""

    def make(*flags):
        plan = make_plan("torch", "--transport", "memcpy", *KILOBYTES, *flags)
        workers = WorkerGroup(plan)
        monkeypatch.setattr(
            workers, "run_in_all", lambda check: {"policy": "", "reward": check(None)}
        )
        return plan, workers

    return make


def test_a_run_fails_if_a_process_lacks_a_variable(workers_of, monkeypatch):
    plan, workers = workers_of("--env", "OF_TEST=1")
    monkeypatch.delenv("OF_TEST", raising=False)
    with pytest.raises(RunFailed, match=r"^--env: the process of reward has no OF_TEST$"):
        require_environment(plan, workers)
    monkeypatch.setenv("OF_TEST", "1")
    require_environment(plan, workers)


def test_a_run_fails_if_a_raylet_lacks_a_variable(workers_of, monkeypatch):
    plan, workers = workers_of("--env", "OF_TEST=1")
    monkeypatch.setenv("OF_TEST", "1")
    workers.raylets = [ME]  # which began without the variable
    with pytest.raises(RunFailed, match=r"^--env: the process of raylet has no OF_TEST$"):
        require_environment(plan, workers)


def test_nothing_is_asked_without_the_flag(workers_of, monkeypatch):
    plan, workers = workers_of()
    monkeypatch.setattr(workers, "run_in_all", pytest.fail)
    require_environment(plan, workers)
