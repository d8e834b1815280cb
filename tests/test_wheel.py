# SPDX-License-Identifier: Apache-2.0
"""Check that installing this project leaves the modules of users alone."""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from zipfile import ZipFile

from conftest import ROOT


def test_an_installation_puts_no_module_into_the_projects_of_users(tmp_path):
    assert find_spec("setuptools"), "this test builds a wheel: pip install setuptools"
    for name in ("common", "dataflow", "pyproject.toml"):
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(source, tmp_path)
    code = "from setuptools import build_meta; print(build_meta.build_wheel('wheels'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    names = ZipFile(wheel).namelist()
    assert [name for name in names if ".dist-info/" not in name] == []
