# SPDX-License-Identifier: Apache-2.0
"""A child of fork writes nothing into the file of its parent."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")

PROGRAM = """
import os, sys
from raymeter.inside import calls
calls.WRAPPERS.clear()
calls.install()
calls.recorder.ending.set()  # only the end writes what waits
calls.recorder.write({"event": "put"})
child = os.fork()
if child == 0:
    assert calls.recorder is False
    sys.exit(0)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_child_that_ends_does_not_write_the_lines_of_its_parent_again(tmp_path: Path) -> None:
    settings = {"RAYMETER_FOLDER": str(tmp_path), "RAYMETER_MIN_BYTES": "1"}
    settings["PYTHONPATH"] = os.pathsep.join(sys.path)
    words = [sys.executable, "-c", PROGRAM]
    subprocess.run(words, env=os.environ | settings, check=True, timeout=120)
    [path] = tmp_path.glob("*.jsonl")
    events = [json.loads(line)["event"] for line in path.read_text().splitlines()]
    assert events.count("put") == 1
    assert events[-1] == "recorder"
