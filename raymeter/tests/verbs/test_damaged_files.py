# SPDX-License-Identifier: Apache-2.0
"""Files of a profile that are damaged, or that raymeter has not written."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from made_programs import make_loop, write_recording

from raymeter import command_line

VERBS = (["show", "out"], ["memory", "out"], ["compare", "out", "other"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the profile of a program with a driver and a worker; there is another one beside it."""
    monkeypatch.chdir(tmp_path)
    for name in ("out", "other"):
        (tmp_path / name).mkdir()
        write_recording(make_loop(send=0.002), tmp_path / name)
    return tmp_path / "out"


def add_foreign_lines(path: Path) -> None:
    path.with_name("foreign.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n')


def add_no_json(path: Path) -> None:
    path.with_name("foreign.jsonl").write_bytes(b"\xff\xfe\x00 no text\n")


def add_folder(path: Path) -> None:
    path.with_name("foreign.jsonl").mkdir()


def cut_a_line(path: Path) -> None:
    lines = path.read_text().splitlines()
    lines[2] = lines[2][:20]
    path.write_text("\n".join(lines) + "\n")


def change_a_type(path: Path) -> None:
    path.write_text(path.read_text() + '{"event":"received","start":"soon"}\n[1]\n')


def clear_first_start(path: Path) -> None:
    lines = path.read_text().splitlines()
    first = json.loads(lines[0])
    lines[0] = json.dumps(first | {"start": None})
    path.write_text("\n".join(lines) + "\n")


def clear_last_time(path: Path) -> None:
    lines = path.read_text().splitlines()
    last = {"event": "recorder", "time": None}
    path.write_text("\n".join([*lines, json.dumps(last)]) + "\n")


@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0])
@pytest.mark.parametrize(
    ("damage", "name", "sentence"),
    [
        (add_foreign_lines, "foreign.jsonl", "raymeter has not written it. It is left out"),
        (add_no_json, "foreign.jsonl", "raymeter has not written it. It is left out"),
        (add_folder, "foreign.jsonl", "Is a directory. It is left out"),
        (cut_a_line, "node-Trainer-0.jsonl", "1 of "),
        (change_a_type, "node-Trainer-0.jsonl", "2 of "),
        (clear_first_start, "node-Trainer-0.jsonl", "raymeter has not written it. It is left out"),
        (clear_last_time, "node-Trainer-0.jsonl", "1 of "),
    ],
)
def test_what_can_be_read_is_shown_without_an_all_clear_and_the_file_is_named(
    folder: Path,
    words: list[str],
    damage: Callable[[Path], None],
    name: str,
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damage(folder / "node-Trainer-0.jsonl")
    assert command_line.main(words) == 0
    shown = capsys.readouterr()
    [line] = shown.err.splitlines()
    assert line.startswith(f"raymeter: out/{name}: ")
    assert sentence in line
    assert "not your problem" not in shown.out


@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0])
def test_without_the_file_of_the_driver_nothing_is_shown(
    folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "node-1.jsonl").write_text("no JSON\n")
    assert command_line.main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    [line] = shown.err.splitlines()
    assert line.startswith("error: out/node-1.jsonl: it is damaged")
