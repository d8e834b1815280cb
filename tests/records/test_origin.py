# SPDX-License-Identifier: Apache-2.0
"""Test that what was measured outside of the suite says when, where and with which code."""

import json
import re
from types import SimpleNamespace

import pytest

from common.origin import describe_origin
from dataflow.records.machine import describe_environment
from examples import put_gigabytes, put_records
from examples.profiled import measure

FIELDS = ("git_commit", "git_dirty", "logical_cpus", "cpu_model", "boot")


def test_an_origin_has_the_fields_of_the_records_of_the_suite_and_the_day():
    origin = describe_origin()
    environment = describe_environment()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", origin.pop("day"))
    assert origin == {name: environment[name] for name in FIELDS}
    assert re.fullmatch("[0-9a-f]{12}", origin["boot"])


def test_puts_have_their_origin(monkeypatch):
    ray = SimpleNamespace(init=lambda **_: None, put=len, __version__="2.60.0")
    monkeypatch.setattr(put_gigabytes, "ray", ray)
    monkeypatch.setattr(put_gigabytes, "PUT_BYTES", 2**10)
    assert put_records.measure()["origin"] == describe_origin()


@pytest.fixture
def program(monkeypatch, tmp_path):
    """Return a program whose profile and runs are made up, and the file of its record."""
    monkeypatch.setattr(measure, "RECORDS", tmp_path)
    monkeypatch.setattr(measure, "describe_profile", lambda program: {"printed": "nothing"})
    change = measure.Change("a", "arrays", "tensors", {})
    made = measure.Program("made", "Made", ["ray"], [change], steps=3)
    monkeypatch.setattr(measure, "run_plainly", lambda program, settings: 1.0)
    return made, tmp_path / "programs" / "made.json"


def test_each_part_of_the_record_of_a_program_has_its_origin(monkeypatch, program):
    made, path = program
    monkeypatch.setattr(measure, "describe_origin", lambda: {"day": "2026-01-01"})
    measure.measure(made, pairs=1, parts=measure.PARTS)
    monkeypatch.setattr(measure, "describe_origin", lambda: {"day": "2026-02-02"})
    measure.measure(made, pairs=1, parts=["changes"])
    days = {part: origin["day"] for part, origin in json.loads(path.read_text())["origins"].items()}
    assert days == {"profile": "2026-01-01", "changes": "2026-02-02"}
