# SPDX-License-Identifier: Apache-2.0
"""Check that the processes of a run have the variables of --env, and have loaded the libraries of LD_PRELOAD.

The loader only warns of a library that it cannot load, and Ray decides which variables its processes pass on.
"""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dataflow.errors import RunFailed
from dataflow.plan.environment import parse_environment, preloaded_paths
from dataflow.plan.plan import Plan
from dataflow.workers.worker_group import WorkerGroup


def require_environment(plan: Plan, workers: WorkerGroup) -> None:
    """Raise RunFailed if the driver, an actor or a raylet of this run lacks a variable of --env, or a library."""
    wanted = parse_environment(plan.options.env)
    if not wanted:
        return
    problems = workers.run_in_all(partial(find_problem_here, wanted=wanted))
    for pid in getattr(workers, "raylets", ()):  # only Ray has some
        problems["raylet"] = find_problem(wanted, read_environment(pid), pid)
    for name, problem in problems.items():
        if problem:
            raise RunFailed(f"--env: the process of {name} {problem}")


def find_problem_here(_: Any, wanted: Mapping[str, str]) -> str:
    """Return what this process lacks; "" if it has all. The argument before the variables is its endpoint."""
    return find_problem(wanted, os.environ, os.getpid())


def find_problem(wanted: Mapping[str, str], environment: Mapping[str, str], pid: int) -> str:
    """Return which variable or library a process lacks; "" if it has all.

    The variables are given, because processes of Ray that have changed their title spoil /proc/PID/environ.
    """
    for name, value in wanted.items():
        own_value = environment.get(name)
        if own_value is None:
            return f"has no {name}"
        if own_value != value:
            return f"has another {name}"
    loaded = mapped_files(pid)
    for path in preloaded_paths(wanted):
        if os.path.realpath(path) not in loaded:
            name = Path(path).name  # records have the reason, and no folders
            return f"has not loaded {name}: check with ldd that it is a library for this machine"
    return ""


def read_environment(pid: int) -> dict[str, str]:
    """Return the variables with which a process was started."""
    environment = {}
    for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        name, _, value = os.fsdecode(entry).partition("=")
        environment[name] = value
    return environment


def mapped_files(pid: int) -> set[str]:
    """Return the paths of the files that a process has mapped, its libraries among them."""
    files = set()
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        _, slash, path = line.partition("/")
        files.add(slash + path)
    return files
