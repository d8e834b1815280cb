# SPDX-License-Identifier: Apache-2.0
"""A full disk ends recording, and leaves lines that can be read."""

import os
from pathlib import Path

import pytest

pytest.importorskip("ray")
from raymeter.inside.recorder import Recorder


def test_nothing_is_added_after_a_write_that_failed(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path), "1", [])
    [path] = tmp_path.iterdir()
    before = path.read_text()
    working = recorder.file
    recorder.file = os.open("/dev/full", os.O_WRONLY)
    recorder.write({"event": "put"})
    with pytest.raises(OSError, match="No space left"):
        recorder.flush()
    os.close(recorder.file)
    recorder.file = working
    recorder.close()
    assert path.read_text() == before
