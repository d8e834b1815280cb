# SPDX-License-Identifier: Apache-2.0
"""A full disk ends recording, and leaves lines that can be read."""

import os
from pathlib import Path

import pytest

pytest.importorskip("ray")
from raymeter.inside.recorder import Recorder

from raymeter import command_line

# Without an end, as a recorder leaves its file after a full disk.
ENDS_EARLY = """
import os
from raymeter.inside import calls, hook
hook.add_to_runtime_env(None)
os._exit(3)
"""


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


@pytest.mark.parametrize(("end", "words"), [
    ("os._exit(3)", "recording ended before the program did, as on a full disk"),
    ("os.kill(os.getpid(), 9)", "the program was killed"),
])  # fmt: skip
def test_only_a_program_that_a_signal_ended_is_said_to_be_killed(
    end, words, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(ENDS_EARLY.replace("os._exit(3)", end))
    assert command_line.main(["train.py"]) in (3, 128 + 9)
    assert words in " ".join(capsys.readouterr().out.split())


def test_a_killed_process_that_the_program_has_started_is_named_beside_the_full_disk(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(ENDS_EARLY.replace("os._exit(3)", "os.kill(os.getpid(), 9)"))
    Path("start.py").write_text(
        "import subprocess, sys\nsubprocess.run([sys.executable, 'train.py'])"
    )
    assert command_line.main(["start.py"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "on a full disk, or if a process that the program has started is killed" in text
