"""Load the weights of a model in fresh processes, as a user does, and present the record."""

import subprocess
import sys
import tempfile
from contextlib import contextmanager

import pytest
from conftest import ROOT, RUN_SECONDS

import dataflow.studies.model_loading.__main__ as load_model
from dataflow.errors import UsageError
from dataflow.studies.model_loading import loading
from dataflow.studies.model_loading.__main__ import Load, LoadingRecord, Published
from dataflow.studies.model_loading.page_cache import drop_from_page_cache

SMALL = ("--model", "gpt2", "--scale", "0.05")
WAYS = ["shared memory", *(pytest.param(way, marks=pytest.mark.long)
                           for way in ("torch.load with mmap, cold", "ray.get, arrays"))]  # fmt: skip


@pytest.mark.runs
@pytest.mark.parametrize("way", WAYS)
def test_every_worker_has_the_published_bytes(tmp_path, way):
    (tmp_path / "file").write_bytes(bytes(2**20))
    if "cold" in way and not drop_from_page_cache(tmp_path / "file"):
        pytest.skip("files of this machine stay in the page cache")
    output = tmp_path / "record.json"
    command = ["-m", "dataflow.studies.model_loading", *SMALL, "--workers", "2", "--ways", way, "--output", output]
    finished = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=RUN_SECONDS)
    assert (finished.returncode, finished.stderr) == (0, "")
    record = load_model.read_record(output)
    assert record.tensors == 148 and record.environment["logical_cpus"]
    (run,) = record.runs
    assert (run.way, len(run.loads)) == (way, 2)
    for load in run.loads:
        assert min(load.load_seconds, load.first_read_seconds, load.second_read_seconds) > 0
    if "cold" not in way:  # the second worker maps memory that is there
        assert run.loads[1].added_bytes < 0.3 * record.bytes
    assert run.loads[0].added_bytes < 4 * record.bytes  # and not those of the whole model
    assert way in finished.stdout


def test_loads_are_measured_while_no_other_call_measures(monkeypatch, capsys):
    """Every program that measures on this machine holds the same lock."""
    waiting = []

    @contextmanager
    def only_measurement():
        waiting.append(True)
        yield
        waiting.append(False)

    def measure(way, arguments, record):
        assert waiting == [True]
        record.environment = {"git_commit": "0" * 40}
        record.runs.append(Published(way, "2026-01-02", 1.0, [Load(1.0, 1.0, 1.0, 0)]))

    monkeypatch.setattr(load_model, "only_measurement", only_measurement)
    monkeypatch.setattr(load_model, "measure", measure)
    assert load_model.main((*SMALL, "--ways", "shared memory", "--runs", "2")) == 0
    assert waiting == [True, False]


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (("--workers", "0"), "give 1 or more"),
        (("--scale", "2"), "up to 1"),
        (("--model", "gpt3"), "unknown --model"),
        (("--ways", "torch.load, cold"), "files in /dev/shm stay in the page cache"),
    ],
)
def test_flags_that_cannot_be_used_are_rejected(monkeypatch, flags, error):
    monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")
    with pytest.raises(UsageError, match=error):
        load_model.main(flags)


def test_ways_name_functions_of_the_module_that_runs_them():
    for way in load_model.WAYS.values():
        assert callable(getattr(loading, way.publish)) and callable(getattr(loading, way.load))


def test_the_table_has_medians_over_workers_and_the_memory_of_later_ones():
    record = LoadingRecord("gpt2", 148, 1000, 3)
    for way, factor in (("torch.load", 1.0), ("shared memory", 0.1)):
        loads = [Load(factor * seconds, 0.5, 0.25, added) for seconds, added in ((0.4, 900), (0.2, 10), (0.3, 20))]
        record.runs.append(Published(way, "2026-01-02", 1.0, loads))
    section = load_model.loading_section(record)
    assert [dot.value for dot in section.chart.groups["load"]] == pytest.approx([300, 30])
    rows = {row[0]: dict(zip(section.table.headers, row, strict=True)) for row in section.table.cells}
    assert rows["torch.load"]["load ms"] == "300" and rows["shared memory"]["load ms"] == "30"
    assert rows["shared memory"]["load: times as fast as torch.load"] == "10"
    assert rows["shared memory"]["load and first read: times as fast"] == "1.51"
    assert rows["torch.load"]["memory that each further worker adds (share of the model)"] == "1.5%"
