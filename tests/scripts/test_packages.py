# SPDX-License-Identifier: Apache-2.0
"""Test what users read who start a program with a Python that lacks its packages."""

import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

COMMANDS = (
    ["simulate_chat_learn_data_flow.py"],
    ["ray_cg_simulate_chat_learn_data_flow.py"],
    ["plot_results.py"],
    ["-m", "dataflow", "list"],
)
NAMES = ("common", "dataflow", *(command[0] for command in COMMANDS[:3]))


@pytest.fixture
def clone(tmp_path):
    """Return a copy of the programs, in which no environment was made."""
    for name in NAMES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def start_bare(command, folder):
    """Start a program with a Python that finds no installed package, and return its error."""
    python = [sys.executable, "-E", "-s", "-S"]
    done = subprocess.run(
        [*python, *command], cwd=folder, capture_output=True, check=False, text=True, timeout=60
    )
    assert done.returncode != 0
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_without_an_environment_a_missing_package_has_to_be_installed(clone, command):
    error = start_bare(command, clone)
    assert "is not installed: run make demo, or pip install -r requirements.txt" in error


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_after_make_the_environment_is_named(clone, command):
    python = clone / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    error = start_bare(command, clone)
    expected = "use .venv/bin/python, or run source .venv/bin/activate\n"
    assert error.endswith(f"is not installed for this Python: {expected}")


def test_the_environment_is_found_from_another_folder(clone):
    python = clone / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    other = clone / "results"
    other.mkdir()
    error = start_bare([str(clone / "plot_results.py")], other)
    assert f"use {python}, or run source {clone}/.venv/bin/activate" in error
