"""Test the comparison of allocator settings: its table, and which settings it measures."""

import subprocess

import pytest
from made_records import make_record, make_run, write_record

from common.errors import UsageError
from common.records.schema import ProcessCost
from evidence import allocators


def test_settings_are_rows_of_the_table(tmp_path):
    with pytest.raises(UsageError, match="no records of settings"):
        allocators.settings_section(tmp_path)
    for folder, times in (("default", (1.0, 1.2)), ("retain-memory", (0.5, 0.51))):
        (tmp_path / folder).mkdir()
        cost = ProcessCost(peak_memory_bytes=2**30, minor_faults=round(800 * times[0]))
        runs = [make_run([seconds], processes={"driver": cost}) for seconds in times]
        write_record(tmp_path / folder / "00-store-refs.json", make_record("refs", *runs))
    section = allocators.settings_section(tmp_path)
    table = section.table
    assert [row[:3] for row in table.cells] == [
        ["store refs", "default", "1,095"], ["store refs", "--retain-memory", "505"],
    ]  # fmt: skip
    assert [row[4:] for row in table.cells] == [["800", "1.0"], ["400", "1.0"]]
    assert section.notes[0] == "`store refs`: --retain-memory is the fastest setting. All others differ clearly."


def test_settings_that_cannot_be_told_apart_are_named(tmp_path):
    for folder, times in (("default", (1.0, 1.1, 1.2)), ("retain-memory", (0.5, 0.51, 0.52)),
                          ("jemalloc", (0.5, 0.51, 0.53))):  # fmt: skip
        (tmp_path / folder).mkdir()
        write_record(tmp_path / folder / "00.json", make_record("refs", *(make_run([seconds]) for seconds in times)))
    expected = "--retain-memory is the fastest setting. These runs do not rank it and jemalloc."
    assert allocators.settings_section(tmp_path).notes[0] == f"`store refs`: {expected}"


def test_a_setting_whose_library_is_missing_is_left_out(tmp_path, monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(allocators, "SETTINGS", {"default": {}, "no": {"LD_PRELOAD": "libno.so.9"}})
    run = subprocess.run

    def run_or_note(command, **options):
        calls.append(command)
        return run("true" if command != "true" else command, **options)

    monkeypatch.setattr(allocators.subprocess, "run", run_or_note)
    allocators.measure(tmp_path, runs=2)
    ends = [command[command.index("--runs") :] for command in calls if command != "true"]
    output = ["--output-dir", str(tmp_path / "default")]
    assert ends == [["--runs", "1", *output], ["--runs", "2", *output, "--continue"]]
    assert capsys.readouterr().out.count("no: left out, libno.so.9 is not installed") == 2
