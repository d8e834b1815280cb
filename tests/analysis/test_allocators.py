"""Test the comparison of allocator settings: its table, and which settings it measures."""

import pytest
from made_records import make_record, make_run, write_record

from common.errors import UsageError
from common.records.schema import ProcessCost
from evidence import allocators


def test_settings_are_rows_of_the_table(tmp_path):
    with pytest.raises(UsageError, match="no records of settings"):
        allocators.settings_table(tmp_path)
    for folder, seconds, faults in (("0-0", 1.0, 900), ("0-1", 1.2, 800), ("1-0", 0.5, 10)):
        (tmp_path / folder).mkdir()
        run = make_run([seconds], processes={"driver": ProcessCost(peak_memory_bytes=2**30, minor_faults=faults)})
        write_record(tmp_path / folder / "00-store-refs.json", make_record("refs", run))
    table = allocators.settings_table(tmp_path)
    assert [row[:3] for row in table.cells] == [
        ["store refs", "default", "1,095"], ["store refs", "--retain-memory", "500"],
    ]  # fmt: skip
    assert [row[4:] for row in table.cells] == [["850", "1.0"], ["10", "1.0"]]


def test_a_setting_whose_library_is_missing_is_left_out(tmp_path, monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(allocators, "SETTINGS", {"default": {}, "no": {"LD_PRELOAD": "libno.so.9"}})
    monkeypatch.setattr(allocators.subprocess, "run", lambda command, **options: calls.append((command, options)))
    allocators.measure(tmp_path, runs=2)
    assert [command[-1].name for command, _ in calls] == ["0-0", "0-1"]
    assert capsys.readouterr().out.count("no: left out, libno.so.9 is not installed") == 2
