"""Test the table of verdicts on pairs whose real difference is known."""

import numpy as np
import pytest
from made_records import make_record, make_run, write_record

from dataflow.errors import UsageError
from dataflow.evidence import false_alarms


def make_runs(seconds):
    """Return runs of one iteration each, one per minute."""
    return [
        make_run([float(value)], started_at=f"2026-01-01T00:{minute:02}:00") for minute, value in enumerate(seconds)
    ]


def print_table(tmp_path, capsys, *records):
    for index, record in enumerate(records):
        write_record(tmp_path / f"{index}.json", record)
    assert false_alarms.main([str(tmp_path)]) == 0
    cells = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    return {(name.strip("`"), kind): [int(count) for count in counts] for name, kind, *counts in cells}


def test_drift_is_found_only_in_runs_one_after_the_other(tmp_path, capsys):
    steady = make_runs(np.exp(np.random.default_rng(0).normal(0, 0.03, 60)))
    drifting = make_runs(1.001 ** (np.arange(20) ** 2))
    counts = print_table(tmp_path, capsys, make_record("refs", *steady), make_record("bytes", *drifting))
    for name, pairs, slower in (("store refs", 51, 0), ("store bytes", 11, 11)):
        # A pair begins with each of the runs that nine others follow.
        assert counts[name, "equal, one after the other"] == [pairs, slower, 0]
        assert counts[name, "equal, interleaved"] == [pairs, 0, 0]
    assert counts["store refs", "equal, in random order"][0] == 12 * 6
    with pytest.raises(UsageError, match="no configuration has 10 runs"):
        false_alarms.main([write_record(tmp_path / "few.json", make_record("refs", *steady[:9]))])


def test_an_injected_delay_is_found_by_paired_runs_in_spite_of_drift(tmp_path, capsys):
    generator = np.random.default_rng(0)
    drift = np.exp(generator.normal(0, 0.3, 20))
    sides = [make_runs(drift * slower * np.exp(generator.normal(0, 0.004, 20))) for slower in (1, 1, 1.05)]
    for number, together in enumerate(zip(*sides, strict=True)):
        for run in together:
            run.pair = f"pair {number}"
    flags = ({}, {}, {"inject": "policy:1:delay=50ms"})
    records = [make_record("refs", *side, flags=flag) for side, flag in zip(sides, flags, strict=True)]
    counts = print_table(tmp_path, capsys, *records)
    assert counts["store refs", "equal, paired"] == [4, 0, 0]
    assert counts["store refs", "delayed, paired"] == [4, 4, 0]
    assert counts["store refs", "delayed, interleaved"] == [4, 0, 0]
