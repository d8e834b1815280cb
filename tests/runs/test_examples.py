"""Run each example as docs/in-your-code.md shows it, on the shared cluster."""

import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT

EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py") if path.stem != "actors")
QUICK = "shared_memory_ring"  # whose change is many times as fast
ATTEMPTS = 3  # because other processes may disturb the ones that are a little faster


def test_each_example_has_at_most_40_lines_and_is_explained():
    page = (ROOT / "docs" / "in-your-code.md").read_text()
    for name in EXAMPLES:
        assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) <= 40
        assert f"examples.{name}" in page


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == QUICK else pytest.mark.long)
                                  for name in EXAMPLES])  # fmt: skip
def test_an_example_is_faster_after_its_change_than_before(cluster, name):
    environment = os.environ | {"RAY_ADDRESS": cluster[1], "RAY_AUTH_MODE": "disabled"}
    command = [sys.executable, "-m", f"examples.{name}"]
    for _ in range(ATTEMPTS):
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        before, after = re.fullmatch(r"before: (\d+\.\d) ms, after: (\d+\.\d) ms\n", done.stdout).groups()
        if float(after) < float(before):
            return
    raise AssertionError(done.stdout)
