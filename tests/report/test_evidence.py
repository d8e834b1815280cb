"""Test the tables about the suite itself: verdicts on pairs whose real difference is known, and allocators."""

import re
import subprocess

import numpy as np
import pytest
from conftest import ROOT
from made_records import make_record, make_run, write_record

from dataflow.errors import UsageError
from dataflow.evidence.sections import allocator_section
from dataflow.evidence.verdicts import verdict_section
from dataflow.records.schema import ProcessCost
from dataflow.workers.variables import RETAIN_MEMORY


def make_runs(seconds):
    """Return runs of one iteration each, one per minute."""
    return [make_run([float(value)], started_at=f"2026-01-01T00:{minute:02}:00")
            for minute, value in enumerate(seconds)]  # fmt: skip


def count_verdicts(tmp_path, *records):
    """Return the pairs, those called slower and those called faster, by configuration and kind."""
    for index, record in enumerate(records):
        write_record(tmp_path / f"{index}.json", record)
    rows = verdict_section([tmp_path]).table.cells
    return {(name.strip("`"), kind): [int(count) for count in counts] for name, kind, *counts in rows}


def test_drift_is_found_only_in_runs_one_after_the_other(tmp_path):
    steady = make_runs(np.exp(np.random.default_rng(0).normal(0, 0.03, 60)))
    drifting = make_runs(1.001 ** (np.arange(20) ** 2))
    counts = count_verdicts(tmp_path, make_record("refs", *steady), make_record("bytes", *drifting))
    for name, pairs, slower in (("store refs", 51, 0), ("store bytes", 11, 11)):
        # A pair begins with each of the runs that nine others follow.
        assert counts[name, "equal, one after the other"] == [pairs, slower, 0]
        assert counts[name, "equal, interleaved"] == [pairs, 0, 0]
    (tmp_path / "few").mkdir()
    write_record(tmp_path / "few" / "few.json", make_record("refs", *steady[:9]))
    with pytest.raises(UsageError, match="no configuration has 10 runs"):
        verdict_section([tmp_path / "few"])


def test_an_injected_delay_is_found_by_paired_runs_in_spite_of_drift(tmp_path):
    generator = np.random.default_rng(0)
    drift = np.exp(generator.normal(0, 0.3, 20))
    sides = [make_runs(drift * slower * np.exp(generator.normal(0, 0.004, 20))) for slower in (1, 1, 1.05)]
    for number, together in enumerate(zip(*sides, strict=True)):
        for run in together:
            run.pair = f"pair {number}"
    flags = ({}, {}, {"inject": "policy:1:delay=50ms"})
    records = [make_record("refs", *side, flags=flag) for side, flag in zip(sides, flags, strict=True)]
    counts = count_verdicts(tmp_path, *records)
    assert counts["store refs", "equal, paired"] == [4, 0, 0]
    assert counts["store refs", "delayed, paired"] == [4, 4, 0]
    assert counts["store refs", "delayed, interleaved"] == [4, 0, 0]


def test_settings_of_allocators_are_compared_with_the_fastest(tmp_path):
    for folder, times in (("default", (1.0, 1.1, 1.2)), ("retain-memory", (0.5, 0.51, 0.52)),
                          ("jemalloc", (0.5, 0.51, 0.53))):  # fmt: skip
        (tmp_path / folder).mkdir()
        cost = ProcessCost(peak_memory_bytes=2**30, minor_faults=round(800 * times[0]))
        runs = [make_run([seconds], processes={"driver": cost}) for seconds in times]
        write_record(tmp_path / folder / "00-store-refs.json", make_record("refs", *runs))
    rows = allocator_section(tmp_path).table.cells
    assert [[*row[:3], *row[4:]] for row in rows] == [
        ["store refs", "retain-memory", "509.9", "fastest", "400", "1.0"],
        ["store refs", "jemalloc", "513.2", "cannot be told apart", "400", "1.0"],
        ["store refs", "default", "1,097", "slower", "800", "1.0"],
    ]


def test_the_commands_of_the_docs_measure_all_settings_whose_library_is_installed(tmp_path):
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\necho {' '.join(f'${name}' for name in RETAIN_MEMORY)} $@\n")
    python.chmod(0o755)
    (block,) = re.findall("(    retain=.*?)\n\n", (ROOT / "docs" / "page-faults.md").read_text(), re.DOTALL)
    block = block.replace("libmimalloc.so.2", "libno.so.9")
    for library in ("libjemalloc.so.2", "libtcmalloc_minimal.so.4"):
        block = block.replace(library, "libm.so.6")  # every machine has it
    done = subprocess.run(["bash", "-c", block], cwd=tmp_path, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert done.stderr == "" and lines.count("mimalloc: left out, no library for LD_PRELOAD=libno.so.9") == 5
    measured = [line for line in lines if "allocators/" in line]
    folders = [line.rpartition("allocators/")[2] for line in measured]
    published = {path.name for path in (ROOT / "results" / "evidence" / "allocators").iterdir()}
    assert {*folders} == published - {"mimalloc"} and folders == folders[: len(published) - 1] * 5
    assert all("--continue" in line for line in measured[len(published) - 1 :])
    assert measured[1].startswith(f"{' '.join(RETAIN_MEMORY.values())} ")
