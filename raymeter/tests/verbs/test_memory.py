# SPDX-License-Identifier: Apache-2.0
"""How `raymeter memory` starts a program."""

import json
from pathlib import Path

import pytest

from raymeter import command_line

WRITES_ENVIRONMENT = """
import json, os
open("environment.json", "w").write(json.dumps(dict(os.environ)))
raise SystemExit(3)
"""


def test_a_program_is_asked_for_samples_and_its_exit_code_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(WRITES_ENVIRONMENT)
    words = ["memory", "--seconds", "0.2", "--output", "out", "train.py"]
    assert command_line.main(words) == 3
    environment = json.loads(Path("environment.json").read_text())
    assert environment["RAYMETER_MEMORY_SECONDS"] == "0.2"
    assert environment["RAY_record_ref_creation_sites"] == "1"
    assert "exit code 3. If the program got as far as ray.init" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "-1", "x"])
def test_a_wrong_time_is_one_line(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line.main(["memory", "--seconds", seconds, "train.py"])
    assert "give a time in seconds" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["try", "compare"])
def test_a_wrong_number_of_runs_is_one_line(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line.main([verb, "--runs", "0", "train.py", "--", "train.py"])
    assert "give a number of runs" in capsys.readouterr().err
