# SPDX-License-Identifier: Apache-2.0
"""Memory of processes, from /proc."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from raymeter.memory.processes import (
    FILE,
    ProcessSampler,
    Sample,
    find_processes,
    peak_bytes,
    process_name,
    read_samples,
)

CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"


def test_processes_are_a_program_and_what_it_has_started(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE) as process:
        found: set[int] = set()
        for _ in range(100):
            found = find_processes(process.pid, tmp_path)
            if len(found) == 2:
                break
            time.sleep(0.05)
        assert process.stdin is not None
        process.stdin.close()
    assert process.pid in found
    assert os.getpid() not in found
    assert len(found) == 2


def test_workers_of_a_cluster_are_known_by_their_files(tmp_path: Path) -> None:
    (tmp_path / f"{os.uname().nodename}-{os.getpid()}.jsonl").touch()
    assert os.getpid() in find_processes(0, tmp_path)


def test_samples_have_the_memory_of_this_process(tmp_path: Path) -> None:
    with ProcessSampler(os.getpid(), tmp_path, 0.01):
        time.sleep(0.2)
    samples = read_samples(tmp_path)
    own = [sample for sample in samples if sample.pid == os.getpid()]
    assert own
    assert 0 < own[0].private <= own[0].pss


def test_the_peak_is_the_largest_sum_at_one_time() -> None:
    samples = [Sample(1.0, 1, "a", 5, 0), Sample(1.0, 2, "b", 6, 0), Sample(2.0, 1, "a", 9, 0)]
    assert peak_bytes(samples) == 11
    assert peak_bytes([]) == 0


def test_half_a_line_is_left_out(tmp_path: Path) -> None:
    line = '{"time": 1.0, "pid": 1, "name": "a", "pss": 2, "private": 1}\n'
    (tmp_path / FILE).write_text(line + '{"time": 2.0, "pi', encoding="utf-8")
    assert read_samples(tmp_path) == [Sample(1.0, 1, "a", 2, 1)]


@pytest.mark.parametrize("damaged", ["{", "[1]", "7", '{"time": 1}', '{"time": "soon"}'])
def test_lines_that_are_no_samples_are_left_out(tmp_path: Path, damaged: str) -> None:
    line = '{"time": 1.0, "pid": 1, "name": "a", "pss": 2, "private": 1}\n'
    soon = line.replace("1.0", '"soon"')
    (tmp_path / FILE).write_text(f"{damaged}\n{soon}{line}", encoding="utf-8")
    assert read_samples(tmp_path) == [Sample(1.0, 1, "a", 2, 1)]


def test_a_process_has_the_name_of_its_script(tmp_path: Path) -> None:
    script = tmp_path / "service.py"
    script.write_text("input()")
    with subprocess.Popen([sys.executable, "-u", str(script)], stdin=subprocess.PIPE) as process:
        time.sleep(0.1)
        name = process_name(process.pid)
        assert process.stdin is not None
        process.stdin.close()
    assert name == "service.py"
