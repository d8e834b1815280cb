# SPDX-License-Identifier: Apache-2.0
"""The words with which users start programs, and flags in places where they expect them."""

import sys
from pathlib import Path

import pytest
from made_programs import make_loop, write_recording
from raymeter.commands import compare
from raymeter.units import parse_bytes

from raymeter import command_line

RUNS = "open('ran', 'a').write('x')"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with a script, a module, and a folder that Python can run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    (tmp_path / "app").mkdir()
    for name in ("train.py", "app/__main__.py"):
        (tmp_path / name).write_text(RUNS)
    return tmp_path


@pytest.mark.parametrize("verb", [[], ["run"], ["memory"], ["try"], ["compare"]])
@pytest.mark.parametrize(
    "words",
    [
        ["--", "train.py"],
        ["python", "train.py"],
        [sys.executable, "train.py"],
        ["python", "-m", "train"],
        ["app"],
        ["python", "app"],
    ],
)
def test_a_program_is_started_with_the_words_that_users_type(
    folder: Path, verb: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    if verb == ["compare"]:
        words = ["--set", "A=1", *(words if words[0] == "--" else ["--", *words])]
    command_line.main([*verb, *words])
    error = capsys.readouterr().err
    assert Path("ran").read_text() == "x"
    assert "Ray has not called raymeter" in error
    assert not Path("raymeter-profiles").exists()


def test_another_python_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = folder / "bin" / "python3"
    other.parent.mkdir()
    other.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(other.parent))
    assert command_line.main(["python3", "train.py"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "raymeter runs programs with" in line
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["a", "--", "b", "--markdown"],
        ["a", "b", "--markdown"],
        ["a", "--markdown", "b"],
        ["--markdown", "a", "b"],
    ],
)
def test_flags_may_follow_two_profiles(
    folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        (folder / name).mkdir()
        write_recording(make_loop(), folder / name)
    assert command_line.main(["compare", *words]) == 0
    assert capsys.readouterr().out.count("| message |") == 1


def test_flags_after_a_script_are_those_of_the_script(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / name).mkdir()
        write_recording(make_loop(), folder / name)
    words = ["train.py", "a", "--", "train.py", "b", "--markdown"]
    assert compare.put_flags_first(words) == words


@pytest.mark.parametrize(
    ("text", "size"), [("1mb", 10**6), ("100kib", 102_400), ("2 MB", 2 * 10**6), ("5b", 5)]
)
def test_sizes_need_no_capital_letters(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["1", "x", "1.2.3MB", "1mbit"])
def test_other_sizes_are_wrong(text: str) -> None:
    with pytest.raises(ValueError, match="give a size with its unit"):
        parse_bytes(text)
