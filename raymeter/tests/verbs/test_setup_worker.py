# SPDX-License-Identifier: Apache-2.0
"""A worker whose runtime_env sets PYTHONPATH still finds raymeter, behind the folders of the user."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")
from raymeter.inside import hook, ray_internals, setup_worker

SCRIPT = Path(setup_worker.__file__)
PACKAGES = str(SCRIPT.parents[2])
USERS = os.pathsep.join(["/users/first", "/users/second"])


@pytest.mark.parametrize(("env_vars", "expected"), [
    ({"PYTHONPATH": USERS}, f"{USERS}{os.pathsep}/package"),
    ({"PYTHONPATH": ""}, "/package"),
    ({"PYTHONPATH": f"{os.pathsep}{USERS}"}, os.pathsep.join(["", USERS, "/package"])),  # the current folder
    ({"A": "1"}, f"/package{os.pathsep}/driver"),
])  # fmt: skip
def test_the_package_stays_on_the_path(env_vars, expected, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"/package{os.pathsep}/driver")
    setup_worker.keep_package("/package", os.environ.update)(env_vars)
    assert os.environ["PYTHONPATH"] == expected


def test_the_settings_of_raymeter_stay(monkeypatch):
    monkeypatch.setenv("RAYMETER_FOLDER", "/profile")
    monkeypatch.setenv("OTHER", "1")
    update = setup_worker.keep_package("/package", os.environ.update)
    update({"RAYMETER_FOLDER": "/elsewhere", "OTHER": "2"})
    assert (os.environ["RAYMETER_FOLDER"], os.environ["OTHER"]) == ("/profile", "2")


def test_rays_script_starts_a_worker_that_can_import_the_recorder(tmp_path):
    """Ray's own script runs "exec python WORDS": here, WORDS is a program that prints what it sees."""
    context = json.dumps({"env_vars": {"PYTHONPATH": str(tmp_path)}})
    program = "import os, raymeter; print(os.environ['PYTHONPATH'], raymeter.__name__)"
    words = ["--language", "PYTHON", "--serialized-runtime-env-context", context, "-c", program]
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(
        [sys.executable, SCRIPT, *words], env=environment, capture_output=True, text=True
    )
    assert done.stdout == f"{tmp_path}{os.pathsep}{PACKAGES} raymeter\n", done.stderr


def test_a_worker_starts_although_the_package_cannot_be_imported(tmp_path):
    """Of another version of Ray, for example."""
    package = tmp_path / "raymeter" / "inside"
    package.mkdir(parents=True)
    script = package / SCRIPT.name
    script.write_text(SCRIPT.read_text())
    (package / "ray_internals.py").write_text("raise ImportError('another Ray')")
    words = [
        "--language",
        "PYTHON",
        "--serialized-runtime-env-context",
        "{}",
        "-c",
        "print('worker')",
    ]
    done = subprocess.run([sys.executable, script, *words], capture_output=True, text=True)
    assert done.stdout == "worker\n", done.stderr


def test_a_cluster_of_the_driver_starts_workers_with_the_script(monkeypatch):
    constants = ray_internals.ray._private.ray_constants
    monkeypatch.setattr(constants, "SETUP_WORKER_FILENAME", constants.SETUP_WORKER_FILENAME)
    monkeypatch.setattr("raymeter.inside.calls.install", lambda: None)
    monkeypatch.setattr(hook, "is_starting_cluster", lambda: True)
    for name in (hook.FOLDER, hook.MIN_BYTES, hook.STARTED_CLUSTER, ray_internals.PRELOAD):
        monkeypatch.setenv(name, "")
    assert hook.begin_to_record(None) is None
    assert Path(constants.SETUP_WORKER_FILENAME) == SCRIPT
    assert Path(setup_worker.find_script()).name == SCRIPT.name
