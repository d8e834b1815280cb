# SPDX-License-Identifier: Apache-2.0
"""Import the modules of users, also those with a name of this project."""

import os
import subprocess
import sys

from conftest import ROOT

from dataflow.flows.user_modules import user_modules

FLOW = """
from dataflow.flows.parser import parse_flow

def make():
    from common.settings import SIZE
    return parse_flow(f"rollout -> trainer: {SIZE}B")
"""


def test_a_flow_file_imports_the_package_common_beside_it(tmp_path):
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "settings.py").write_text("SIZE = 4096\n")
    (tmp_path / "my_flow.py").write_text(FLOW)
    words = ["run", "--flow", "my_flow.py:make", "store refs", "--dry-run"]
    command = [sys.executable, "-m", "dataflow", *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert done.stderr == ""
    assert "rollout -> trainer" in done.stdout


def test_afterwards_the_modules_of_this_project_are_back(tmp_path):
    import common.flags

    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "settings.py").write_text("SIZE = 4096\n")
    paths = set(sys.path)
    with user_modules(tmp_path):
        from common.settings import SIZE
    assert SIZE == 4096
    assert sys.modules["common.flags"] is common.flags
    assert "common.settings" not in sys.modules
    assert set(sys.path) == paths
