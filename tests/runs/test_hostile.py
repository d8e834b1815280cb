"""Use the commands in hostile ways, and check the exit code, the one line, and what is left behind.

The quick ones are a part of `make test`. All of them: pytest tests/runs/test_hostile.py --all, which writes a line per
case to the file in the variable FAULT_RESULTS. fault_tables.py writes them into docs/failures.md.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import DEFAULT_TRANSPORTS, ROOT, run_words
from faults import store_result
from hostile import CANNOT_PREPARE, HOSTILE

CASES = [pytest.param(case, id=case.name, marks=() if case.is_quick else pytest.mark.long) for case in HOSTILE]


@pytest.mark.parametrize("case", CASES)
def test_a_hostile_use_ends_with_one_line_and_leaves_nothing_behind(case, tmp_path):
    if case.prefix and os.geteuid() != 0:
        pytest.skip("only root can make the surroundings of this case")
    if not Path(case.needs or "/").exists():
        pytest.skip(f"this machine has no {case.needs}")
    if case.prefix and not shutil.which(case.prefix[0]):
        pytest.skip(f"{case.prefix[0]} is not installed")
    for name, content in case.files.items():
        (tmp_path / name).write_text(content)
    first, *flags = [word.replace("{folder}", str(tmp_path)) for word in case.command]
    words = ["-m", "dataflow", first, *flags]
    if first in DEFAULT_TRANSPORTS:
        words = run_words(first, *flags, "--output", str(tmp_path / "record.json"))
    variables = os.environ | {"DATA_FLOW_LOCK": str(tmp_path), "PYTHONPATH": str(ROOT)} | case.variables
    begin = time.monotonic()
    done = subprocess.run(
        [*case.prefix, sys.executable, *words], cwd=tmp_path, env=variables, timeout=200,
        capture_output=True, text=True, encoding="utf-8",
    )  # fmt: skip
    if done.returncode == CANNOT_PREPARE:
        pytest.skip("this user cannot make the surroundings of this case")
    lines = (done.stdout if case.code == 0 else done.stderr).strip().splitlines() or [""]
    left = [] if case.code == 0 else sorted(path.name for path in tmp_path.iterdir() if path.name not in case.files)
    command = " ".join(case.command).replace(f"{ROOT}/", "")
    if "--help" not in case.command:  # its last line says nothing
        store_result(case.name, command[:90], lines[-1], done.returncode, time.monotonic() - begin, left)
    assert done.returncode == case.code, done.stderr
    assert any(re.search(case.expected, line) for line in lines), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if case.code == 2:
        assert (len(lines), left) == (1, []), done.stderr
