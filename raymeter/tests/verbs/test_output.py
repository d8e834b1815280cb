# SPDX-License-Identifier: Apache-2.0
"""A reader that has ended, such as `head`, changes neither the exit code nor the files of a profile."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from made_programs import make_finding, make_loop_profile
from raymeter.commands import output, run, show

from raymeter import command_line

SOURCE = Path(command_line.__file__).parents[1]


def run_into_a_closed_pipe(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run raymeter, whose output nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            [sys.executable, "-m", "raymeter", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)


@pytest.mark.parametrize("words", [["explain"], ["explain", "numbers"]])
def test_a_reader_that_has_ended_is_no_error(words: list[str], tmp_path: Path) -> None:
    process = run_into_a_closed_pipe(words, tmp_path)
    assert (process.returncode, process.stderr) == (0, "")


def test_the_files_of_a_profile_are_written_although_nobody_reads_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = make_loop_profile(make_finding())
    monkeypatch.setattr(show, "load_profile", lambda *_: profile)

    def fail(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(output, "print", fail, raising=False)
    monkeypatch.setattr(output, "drop_output", lambda: None)
    show.show_new_profile(tmp_path, None, has_page=True)
    written = {path.name for path in tmp_path.iterdir()}
    assert {"profile.txt", "profile.html", "profile.json", "trace.json"} <= written
    text = (tmp_path / "profile.txt").read_text()
    assert text.startswith("Moving data is")
    assert text.endswith("\n")


def test_a_full_disk_behind_the_output_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*words: object, **named: object) -> None:
        if "file" not in named:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        print(*words, **named)

    monkeypatch.setattr(output, "print", fail, raising=False)
    monkeypatch.setattr(output, "drop_output", lambda: None)
    output.show_text("a profile")
    assert capsys.readouterr().err == "raymeter: standard output: No space left on device\n"


@pytest.mark.parametrize("words", [["show", "nowhere"], ["show", "nowhere", "--html"]])
def test_a_folder_that_is_not_there_is_named(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command_line.main(words) == 2
    assert capsys.readouterr().err == "error: nowhere: no such folder\n"


def test_a_system_without_a_folder_for_the_profile_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    monkeypatch.setattr(run, "fill_folder", fail)
    monkeypatch.setattr(run.tempfile, "mkdtemp", fail)
    assert command_line.main(["train.py"]) == 2
    assert capsys.readouterr().err == (
        "error: neither raymeter-profiles nor a temporary folder can hold a profile. "
        "Give a folder with --output\n"
    )
