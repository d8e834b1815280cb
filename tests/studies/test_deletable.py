# SPDX-License-Identifier: Apache-2.0
"""Delete a study from a copy of the project: everything else works as before."""

import os
import shutil
import subprocess
import sys

import pytest
from conftest import KILOBYTES, ROOT, RUN_SECONDS

from dataflow.study import studies

PACKAGES = ("dataflow/", "common/")


def files_without(*folders):
    """Return the files that git knows or would add, without those of these folders."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return [path for path in listed if (ROOT / path).is_file() and not path.startswith(folders)]


def copy_without(name, folder, top=""):
    for path in files_without(f"dataflow/studies/{name}/"):
        if path.startswith(top):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, folder / path)


def run_in(folder, *words, seconds=RUN_SECONDS):
    """Run Python in a copy of the project, and expect that it succeeds."""
    variables = {**os.environ, "PYTHONPATH": str(folder), "DATA_FLOW_LOCK": str(folder)}
    command = [sys.executable, *words]
    finished = subprocess.run(
        command,
        cwd=folder,
        env=variables,
        text=True,
        capture_output=True,
        check=False,
        timeout=seconds,
    )
    assert finished.returncode == 0, (finished.stdout + finished.stderr)[-5000:]


@pytest.mark.parametrize("name", studies())
def test_nobody_imports_a_study(name):
    folders = [f"{folder}/studies/{name}/" for folder in ("dataflow", "tests")]
    paths = [
        path
        for path in files_without(*folders)
        if path.endswith(".py") and not path.startswith("results/")
    ]
    assert [path for path in paths if f"dataflow.studies.{name}" in (ROOT / path).read_text()] == []


# Flags for memory, because other tests run at the same time.
LOOK_AT_ALL = """
from dataflow.__main__ import main
from dataflow.report import sections
for words in ("list", "run --help flows", "run --help all", "run --suite published --dry-run --object-store-bytes 7GB"):
    try:
        assert main(words.split()) == 0
    except SystemExit as end:  # of --help
        assert not end.code
sections.find_tables()
"""


def of_studies(*quick):
    """Return all studies; only --all runs those that are not among the quick ones."""
    names = []
    for name in studies():
        marks = () if name in quick else pytest.mark.long
        names.append(pytest.param(name, marks=marks))
    return names


# The one with most flags of its own. Unit tests see that nobody imports the others.
@pytest.mark.runs  # because each copy starts a process
@pytest.mark.parametrize("name", of_studies("chatlearn"))
def test_all_that_remains_can_be_listed_and_planned(tmp_path, name):
    copy_without(name, tmp_path, PACKAGES)
    run_in(tmp_path, "-c", LOOK_AT_ALL)


@pytest.mark.long
@pytest.mark.runs
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", studies())
def test_unit_tests_and_runs_pass_without_a_study(tmp_path, name):
    copy_without(name, tmp_path)
    run_in(
        tmp_path,
        "-m",
        "dataflow",
        "run",
        "store refs",
        "graph shm",
        *KILOBYTES,
        "--iterations",
        "3",
    )
    tests = (
        "-m",
        "pytest",
        "-q",
        "-m",
        "not runs",
        "-n",
        "2",
        "--ignore",
        "tests/studies/test_deletable.py",
    )
    run_in(tmp_path, *tests, seconds=900)
