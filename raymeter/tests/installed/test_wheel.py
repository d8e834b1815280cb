# SPDX-License-Identifier: Apache-2.0
"""The wheel in a fresh environment, beside a project of a user whose modules have the names of others."""

import os
import re
import shutil
import site
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytestmark = pytest.mark.runs

PACKAGE = Path(__file__).resolve().parents[2]
NAMES = ("common", "dataflow", "tests", "utils", "recorder")  # of the user's own modules
PROGRAM = """
import sys
import numpy as np
import ray
import common, dataflow, tests, utils, recorder


@ray.remote
def work(values):
    import common, recorder
    return common.OWNER + recorder.OWNER + str(len(values))


def main():
    ray.init(num_cpus=2, object_store_memory=200 * 10**6)
    owners = {module.OWNER for module in (common, dataflow, tests, utils, recorder)}
    for step in range(4):
        values = np.full(10**6, step)
        assert ray.get(work.remote(values)) == "useruser1000000"
    print("owners", owners, "words", sys.argv[1:])
    ray.shutdown()


if __name__ == "__main__":
    main()
"""
TEST = """
import train


def test_main():
    train.main()
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an environment with the wheel, which finds Ray where these tests find it."""
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "raymeter"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("tests", "*.egg-info", "build"))
    wheel = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*wheel, "-w", str(folder), "./raymeter"], check=True, cwd=folder)
    environment = folder / "venv"
    venv.create(environment, with_pip=False)
    [packages] = environment.glob("lib/python*/site-packages")
    before = set(os.listdir(packages))
    [file] = folder.glob("*.whl")
    python = environment / "bin" / "python"
    install = [sys.executable, "-m", "pip", f"--python={python}", "install", "-q", "--no-deps"]
    subprocess.run([*install, str(file)], check=True, cwd=folder)
    added = set(os.listdir(packages)) - before
    assert sorted(re.sub(r"-.*\.dist-info", ".dist-info", name) for name in added) == [
        "raymeter",
        "raymeter.dist-info",
    ]
    (packages / "ray.pth").write_text("\n".join(site.getsitepackages()))
    return environment


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with a program, its test, and modules of its own."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text('OWNER = "user"\n')
    (folder / "train.py").write_text(PROGRAM)
    (folder / "test_train.py").write_text(TEST)
    return folder


def run_installed(environment: Path, words: Sequence[str], folder: Path) -> str:
    """Return what raymeter prints. It ends without a fault."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.run(
        [str(environment / "bin" / "raymeter"), *words],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def check(text: str) -> None:
    assert re.search(r"Moving data is (up to )?[\d.]+ % of a step", text), text


def test_each_cause_is_explained(installed: Path, tmp_path: Path) -> None:
    text = run_installed(installed, ["explain", "same-content"], tmp_path)
    assert "weights_ref = ray.put(weights)" in text


def test_a_script_is_profiled(installed: Path, project: Path) -> None:
    text = run_installed(installed, ["train.py", "--lr", "1"], project)
    assert "owners {'user'} words ['--lr', '1']" in text
    check(text)
    assert (project / "raymeter-profiles").is_dir()


def test_a_module_is_profiled(installed: Path, project: Path) -> None:
    check(run_installed(installed, ["-m", "train"], project))


def test_a_program_in_another_folder_is_profiled(installed: Path, project: Path) -> None:
    check(run_installed(installed, [str(project / "train.py")], project.parent))


def test_a_program_under_pytest_is_profiled(installed: Path, project: Path) -> None:
    text = run_installed(installed, ["-m", "pytest", "-q", "-p", "no:cacheprovider", "."], project)
    assert "1 passed" in text
    check(text)
