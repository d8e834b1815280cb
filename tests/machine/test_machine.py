# SPDX-License-Identifier: Apache-2.0
"""Test what is measured of a machine, and the facts that tell it from another one."""

import json
import mmap
import os

import pytest
import torch

from common import facts
from common.sizes import EDGES
from dataflow.commands import machine as command
from dataflow.errors import RecordError
from dataflow.machine import copying, measurement, samples, speeds

SMALL = 2**18
PAGES = SMALL // mmap.PAGESIZE


@pytest.fixture
def small(monkeypatch):
    """Let a measurement take little time."""
    monkeypatch.setattr(measurement, "SIZES", (2**16, SMALL))
    monkeypatch.setattr(measurement, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(measurement, "HASHED_BYTES", SMALL)
    for module in (copying, measurement):
        monkeypatch.setattr(module, "FAULT_BYTES", SMALL)
    monkeypatch.setattr(copying, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(speeds, "HASHED_BYTES", SMALL)
    monkeypatch.setattr(speeds, "ROUND_TRIPS", 3)


def test_a_measurement_is_kept_and_shown(small, tmp_path, capsys):
    path = tmp_path / "new" / "machine.json"
    assert command.main(["--output", str(path)]) == 0
    printed = capsys.readouterr().out
    machine = samples.load_machine(path)
    assert machine.cores == len(os.sched_getaffinity(0))
    assert {copies.bytes for copies in machine.warm_copies} == {2**16, SMALL}
    assert len(machine.round_trip_seconds) == 3
    for text in ("1 thread", "256 KiB", "memory just freed", f"samples: {path}"):
        assert text in printed


@pytest.mark.parametrize("name", ["there.json", "there.json/machine.json", "folder"])
def test_a_file_that_can_not_be_made_is_rejected_before_anything_is_measured(
    name, tmp_path, monkeypatch
):
    (tmp_path / "there.json").touch()
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr(measurement, "measure_machine", None)
    with pytest.raises(RecordError, match="give another name"):
        command.main(["--output", str(tmp_path / name)])


def test_a_pass_copies_all_bytes_in_as_many_messages_as_an_iteration_of_the_demo(
    small, monkeypatch
):
    passes = []
    monkeypatch.setattr(copying, "copy_seconds", lambda pairs: passes.append(pairs) or 1.0)
    copying.time_warm_copies(2**16, threads=1)
    assert len(passes) == 1 + copying.REPEATS
    for pairs in passes:
        assert len(pairs) == len(EDGES)
        assert sum(source.nbytes for source, _ in pairs) == 2**16
        assert len({target.data_ptr() for _, target in pairs}) == len(EDGES)


def test_passes_are_by_as_many_threads_as_asked_for(small, monkeypatch):
    counts = []

    def count_threads(pairs):
        counts.append(torch.get_num_threads())
        return 1.0

    monkeypatch.setattr(copying, "copy_seconds", count_threads)
    for threads in (2, 1):
        copying.time_warm_copies(2**16, threads)
    assert counts == [2] * (1 + copying.REPEATS) + [1] * (1 + copying.REPEATS)


def test_new_memory_has_a_page_fault_for_each_page(small):
    _, faults = copying.time_new_memory(0.0, repeats=2)
    assert PAGES <= faults < PAGES + 100  # other threads may have some


def test_memory_is_new_only_after_the_pause(monkeypatch):
    pauses = []
    monkeypatch.setattr(copying, "FAULT_BYTES", SMALL)
    monkeypatch.setattr(copying.time, "sleep", pauses.append)
    copying.time_new_memory(5.0, repeats=2)
    assert pauses == [5.0, 5.0]


@pytest.mark.parametrize(("cores", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6])])
def test_copies_are_by_powers_of_two_and_by_all_cores(cores, counts):
    assert copying.thread_counts(cores) == counts


def make_machine(**values) -> samples.MachineSamples:
    """Return a machine whose copies of 1 GB take 0.1 s by one thread, and 0.05 s by two."""
    warm = [samples.WarmCopies(10**9, threads, [0.1 / threads]) for threads in (1, 2)]
    memory = samples.NewMemory(10**9, 250_000, [0.3, 0.5])
    known = {
        "measured_at": "", "environment": {}, "warm_copies": warm, "just_freed": memory, "freed_before": memory,
        "huge_pages": memory, "pickle_bytes": 1, "pickle_seconds": [1.0], "hash_bytes": 1, "hash_seconds": [1.0],
        "round_trip_seconds": [1.0],
    }  # fmt: skip
    return samples.MachineSamples(**known | values)


def test_a_page_fault_takes_what_a_copy_into_new_memory_takes_longer():
    machine = make_machine()
    assert machine.fault_seconds(machine.just_freed) == pytest.approx([0.8e-6, 1.6e-6])


def test_a_huge_page_counts_as_its_small_pages():
    machine = make_machine(just_freed=samples.NewMemory(2**30, 512, [0.4]))
    (price,) = machine.fault_seconds(machine.just_freed)
    warm = 0.1 * 2**30 / 10**9
    assert price == pytest.approx((0.4 - warm) / 2**18)


def test_copies_by_more_threads_than_there_are_cores_are_those_of_all():
    assert make_machine().copies_of(10**8, threads=3).threads == 2


@pytest.mark.parametrize("text", ["", "{}", '{"schema_version": 10}'])
def test_another_file_is_no_machine(text, tmp_path):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=r"other\.json has no measurement of a machine"):
        samples.load_machine(path)


def test_facts_are_those_of_the_kernel(monkeypatch, tmp_path):
    device = tmp_path / "virtio" / "virtio0"
    cache = tmp_path / "cache" / "index0"
    device.mkdir(parents=True)
    cache.mkdir(parents=True)
    (device / "device").write_text("0x0005\n")
    (device / "features").write_text("01100101" + 56 * "0" + "\n")
    for name, text in {"level": "3", "type": "Unified", "size": "32768K"}.items():
        (cache / name).write_text(f"{text}\n")
    monkeypatch.setattr(facts, "VIRTIO", device.parent)
    monkeypatch.setattr(facts, "CPU", tmp_path)
    found = facts.read_facts()
    assert found["balloon"] == ["statistics", "deflate on out of memory", "free page reporting"]
    assert found["caches"] == {"L3": 32 * 2**20}
    assert found["governor"] is None  # there is no such file
    json.dumps(found)  # it becomes a part of each record


def test_a_machine_without_a_balloon_has_none(monkeypatch, tmp_path):
    monkeypatch.setattr(facts, "VIRTIO", tmp_path)
    assert facts.read_balloon() is None
