# SPDX-License-Identifier: Apache-2.0
"""What a process holds is its own memory, and its share of the memory that others map, too."""

import mmap
import os
import subprocess
import sys

import numpy as np
from made_records import make_record, make_run

from dataflow.analysis.result import group_results
from dataflow.measure.counters import costs_by_process
from dataflow.measure.memory import HeldMemory, parse_smaps, read_held_memory
from dataflow.records.schema import ProcessCost
from dataflow.report.tables import format_held

MIB = 2**20


def test_private_memory_grows_by_what_is_written():
    before = read_held_memory()
    kept = np.ones(64 * MIB, np.uint8)
    after = read_held_memory()
    grown = after.private_bytes - before.private_bytes
    assert 60 * MIB < grown < 80 * MIB
    assert kept.size


def test_shared_memory_counts_once_for_all_processes_that_map_it():
    memory = mmap.mmap(-1, 64 * MIB)
    memory.write(b"x" * 64 * MIB)
    child = os.fork()
    if not child:
        sum(memory[::4096])  # a process maps a page when it reads it first
        os.kill(os.getpid(), 19)  # SIGSTOP
        os._exit(0)
    try:
        os.waitpid(child, os.WUNTRACED)
        shared = [read_held_memory(process).shared_bytes for process in ("self", child)]
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert all(size >= 30 * MIB for size in shared)


def test_a_process_that_is_gone_holds_nothing_that_is_known():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert read_held_memory(ended.pid) is None


def test_lines_without_a_value_are_not_read():
    text = "55d0-7ffd ---p 00000000 00:00 0    [rollup]\nPss:   12 kB\nVmFlags: rd ex\n"
    assert parse_smaps(text) == {"Pss": 12}


def test_a_process_of_two_workers_counts_once():
    cost = {"pid": 1, "peak_memory_bytes": 9, "minor_faults": 2}
    held = dict.fromkeys("ab", HeldMemory(5, 3))
    found = costs_by_process({"a": cost, "b": cost}, {"a": 0, "b": 0}, held)
    assert found == {"a+b": ProcessCost(9, 2, 5, 3)}


def test_the_run_that_holds_most_counts_and_unknown_memory_is_not_guessed():
    gib = 2**30
    runs = []
    for private in (gib, 3 * gib):
        processes = {
            "driver": ProcessCost(9, 2, private, gib),
            "actor": ProcessCost(9, 2, gib, gib // 2),
        }
        runs.append(make_run([1.0], processes=processes))
    (result,) = group_results([make_record("refs", *runs)])
    assert format_held(result) == "4 + 1.5"
    old = make_run([1.0], processes={"driver": ProcessCost(9, 2)})
    (result,) = group_results([make_record("refs", old)])
    assert format_held(result) == "-"
