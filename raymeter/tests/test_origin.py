# SPDX-License-Identifier: Apache-2.0
"""The records that are made beside the tests say when, where and with which code."""

import json
from pathlib import Path
from typing import Any

import measure_cost
import pytest
import scoreboard
import versions
from origin import load_origin

FIELDS = {"day", "git_commit", "git_dirty", "logical_cpus", "cpu_model", "boot"}


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_an_origin_has_all_fields() -> None:
    assert load_origin().keys() == FIELDS


def test_the_scoreboard_has_its_origin(tmp_path: Path) -> None:
    scoreboard.write_scores(tmp_path / "scores.json", [], {})
    assert read(tmp_path / "scores.json")["origin"] == load_origin()


def test_the_cost_of_recording_has_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = measure_cost.Window(1, 1.0, 1.0)
    run = measure_cost.Run(measure_cost.Turns([window], [window], recording_seconds=1.0), 1.0, "")
    monkeypatch.setattr(measure_cost, "run", lambda name, pairs, seconds, is_recorded: run)
    monkeypatch.setattr(measure_cost, "measure_wrapper", lambda: 1e-7)
    path = tmp_path / "cost.json"
    measure_cost.main(["--runs", "1", "--only", "computing", "--output", str(path)])
    assert read(path)["origin"] == load_origin()


def test_each_version_of_ray_has_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = {"ray": "2.60.0", "missing": [], "errors": {}, "messages": []}
    monkeypatch.setattr(versions, "profile", lambda folder, paths: summary)
    path = tmp_path / "versions.json"
    versions.main(["--output", str(path), str(tmp_path)])
    assert [record["origin"] for record in read(path)] == [load_origin()]
