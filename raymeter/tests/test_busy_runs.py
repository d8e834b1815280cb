# SPDX-License-Identifier: Apache-2.0
"""The cost of small calls is compared with a program that is as busy by itself as raymeter says that it is."""

import json
from pathlib import Path
from typing import Any

import measure_cost
import pytest

OWN = measure_cost.Busy(driver=1e-5, worker=5e-6)


def write_events(path: Path, role: str, own_seconds: float, calls: int) -> None:
    counted = [{"kind": "call", "count": calls}, {"kind": "get", "count": 7}]
    report: dict[str, Any] = {"event": "recorder", "own_seconds": own_seconds, "counted": counted}
    early = report | {"own_seconds": 0.0, "counted": []}
    events = [{"event": "process", "role": role}, early, report]
    path.write_text("".join(json.dumps(event) + "\n" for event in events))


def test_what_raymeter_took_is_that_of_its_last_report_per_call(tmp_path: Path) -> None:
    folder = tmp_path / "raymeter-profiles" / "profile"
    folder.mkdir(parents=True)
    write_events(folder / "a.jsonl", "driver", 2.0, 1000)
    write_events(folder / "b.jsonl", "worker", 0.5, 0)
    write_events(folder / "c.jsonl", "worker", 0.3, 0)
    own = measure_cost.read_own_seconds(tmp_path)
    assert own.driver == pytest.approx(2e-3)
    assert own.worker == pytest.approx(0.8e-3)


@pytest.mark.parametrize(("name", "count"), [("small calls", 2), ("computing", 0)])
def test_only_small_calls_have_busy_runs(
    monkeypatch: pytest.MonkeyPatch, name: str, count: int
) -> None:
    asked = []

    def run(
        name: str, seconds: float, is_recorded: bool, busy: measure_cost.Busy | None = None
    ) -> measure_cost.Run:
        asked.append((is_recorded, busy))
        return measure_cost.Run(1.0, 1.0, 1.0, "", OWN if is_recorded else None)

    monkeypatch.setattr(measure_cost, "run", run)
    cost = measure_cost.measure(name, 2, 1.0)
    assert len(cost.busy) == len(cost.busy_seconds) == count
    assert asked.count((False, OWN)) == count
