"""Delete studies with their tests from a copy of the project: everything else still works."""

import os
import shutil
import subprocess
import sys

import pytest
from conftest import KILOBYTES, ROOT, RUN_SECONDS

STUDIES = sorted(path.name for path in (ROOT / "dataflow" / "studies").iterdir() if (path / "__init__.py").exists())
NOT_COPIED = (".venv", ".git", "results", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache")
MEASURE = ["-m", "dataflow", "run", "torch memcpy", *KILOBYTES, "--iterations", "3", "--allow-disturbed"]
UNIT_TESTS = ["-m", "pytest", "-q", "-x", "-m", "not runs", "-p", "no:cacheprovider"]


@pytest.mark.parametrize(
    "deleted", [STUDIES, *(pytest.param([name], marks=pytest.mark.long) for name in STUDIES)], ids=" and ".join
)
@pytest.mark.timeout(1200)
def test_a_copy_without_studies_measures_and_passes_its_unit_tests(tmp_path, deleted):
    """The unit tests run only with --all, for each study alone."""
    copy = tmp_path / "copy"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
    (copy / "results").symlink_to(ROOT / "results")
    for name in deleted:
        for folder in ("dataflow", "tests"):
            shutil.rmtree(copy / folder / "studies" / name, ignore_errors=True)
    measuring = subprocess.run(
        [sys.executable, *MEASURE, "--output", tmp_path / "record.json"], cwd=copy, text=True, capture_output=True,
        timeout=RUN_SECONDS, env=os.environ | {"PYTHONPATH": str(copy)},
    )  # fmt: skip
    assert measuring.returncode == 0, measuring.stderr
    if deleted != STUDIES:
        testing = subprocess.run([sys.executable, *UNIT_TESTS], cwd=copy, text=True, capture_output=True, timeout=900)
        assert testing.returncode == 0, testing.stdout[-3000:]
