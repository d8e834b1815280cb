# SPDX-License-Identifier: Apache-2.0
"""Profile a program whose messages are known: each is found, with its line, and no value is kept."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import versions

VALUE = "123456789"  # in each message of Rollout.route


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The folder of a profile of the program."""
    path = tmp_path_factory.mktemp("known") / "profile"
    versions.profile(path)
    return path


@pytest.fixture(scope="module")
def summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "profile.json").read_text())


def line_of(message: dict[str, Any]) -> str:
    """Return the text of the line that sends a message."""
    file, _, number = message["line"].rpartition(":")
    assert Path(file) == versions.PROGRAM
    return versions.PROGRAM.read_text().splitlines()[int(number) - 1]


@pytest.mark.runs
def test_every_message_is_found_as_often_as_it_is_sent(summary):
    assert versions.find_messages(summary) == versions.KNOWN


@pytest.mark.runs
def test_the_times_of_all_tasks_are_known(folder, summary):
    assert versions.count_timed(folder) == len(versions.TASKS)
    assert summary["errors"] == {}


@pytest.mark.runs
def test_the_lines_are_those_of_the_program(summary):
    for message in summary["messages"]:
        text = line_of(message)
        method = message["sent_by"].rpartition(".")[2]
        is_method = f"def {method}" in text
        is_put = message["sent_as"] == "put" and "ray.put(" in text
        assert is_method or is_put or ".remote(" in text or "ray.get(" in text


@pytest.mark.runs
def test_no_value_is_stored_and_only_the_owner_can_read(folder):
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = [path for path in folder.iterdir() if path.is_file()]
    assert len(files) > 3
    for path in files:
        assert VALUE not in path.read_text()
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.glob("*.jsonl")}
    assert modes == {0o600}
