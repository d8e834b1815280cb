"""Test the comparison of allocator settings: its table, and the commands that measure them."""

import re
import subprocess

import pytest
from conftest import ROOT
from made_records import make_record, make_run, write_record

from dataflow.errors import UsageError
from dataflow.evidence import allocators
from dataflow.records.schema import ProcessCost
from dataflow.workers.variables import RETAIN_MEMORY


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
    measured = [line for line in lines if "--output-dir" in line]
    folders = [line.rpartition("allocators/")[2] for line in measured]
    expected = [re.sub(r"\W+", "-", setting).strip("-") for setting in allocators.SETTINGS if setting != "mimalloc"]
    assert folders == expected * 5
    assert [line for line in measured if "--runs 1 --output-dir" in line] == measured[: len(expected)]
    assert "--runs 5 --continue --output-dir" in measured[-1]
    assert [line for line in measured if "--reuse-buffers" in line] == measured[:: len(expected)]
    assert measured[1].startswith(f"{' '.join(RETAIN_MEMORY.values())} benchmark.py --configs store refs graph shm ")
