# SPDX-License-Identifier: Apache-2.0
"""Building the package leaves the clone as it is, and packs nothing of an earlier build."""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

PACKAGE = Path(__file__).resolve().parents[2]
LEFT_OUT = ("tests", "*.egg-info", "build", "__pycache__")
# As pip does it, each in a process of its own.
METADATA = "build_meta.prepare_metadata_for_build_wheel('../metadata')"
WHEEL = "build_meta.build_wheel('../wheels')"


def call_setuptools(call: str, source: Path) -> None:
    """Make one call of setuptools in the folder of the package."""
    assert find_spec("setuptools"), "this test builds a wheel: pip install setuptools"
    code = f"from setuptools import build_meta; {call}"
    subprocess.run(
        [sys.executable, "-c", code], cwd=source, check=True, capture_output=True, timeout=120
    )


def build(source: Path) -> set[str]:
    """Build a wheel as pip does, and return the names of its files."""
    wheels = source.parent / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    call_setuptools(METADATA, source)
    call_setuptools(WHEEL, source)
    [wheel] = wheels.glob("*.whl")
    return set(ZipFile(wheel).namelist())


def test_a_build_leaves_nothing_in_the_clone_and_packs_no_deleted_module(tmp_path: Path) -> None:
    source = tmp_path / "raymeter"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns(*LEFT_OUT))
    (tmp_path / "metadata").mkdir()
    module = source / "src" / "raymeter" / "deleted_later.py"
    module.touch()
    before = set(source.rglob("*"))
    first = build(source)
    assert set(source.rglob("*")) == before
    assert {"raymeter/report/page.html", "raymeter/report/causes.md"} <= first
    module.unlink()
    assert first - build(source) == {"raymeter/deleted_later.py"}
