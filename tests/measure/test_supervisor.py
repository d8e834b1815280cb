# SPDX-License-Identifier: Apache-2.0
"""Test what happens before and around a run: rejected flags, skipped configurations, and exit codes."""

from contextlib import contextmanager, suppress

import pytest
from conftest import KILOBYTES
from made_records import make_run

from common import record as records
from common import temporary
from common.record_files import ARCHIVE
from dataflow.commands import run
from dataflow.errors import RecordError, RunFailed, SuiteError
from dataflow.measure import supervisor
from dataflow.measure.supervisor import make_items, new_records
from dataflow.plan import validate
from dataflow.plan.command_line import plan_configuration
from dataflow.records import files
from dataflow.records.folder import RecordFolder
from dataflow.records.schema import Run


def test_what_cannot_be_measured_or_written_leaves_no_file(no_gpu, monkeypatch, tmp_path):
    def expect(configuration, reason, output):
        with pytest.raises(SuiteError, match=reason):
            run.main([configuration, *KILOBYTES, "--output", str(output)])

    monkeypatch.setattr(supervisor, "measure_run", lambda *_: pytest.fail("a run was measured"))
    (tmp_path / "file").write_text("mine")
    expect("torch gloo", "exists", tmp_path / "file")
    for path in ("/proc/nowhere/file", "/proc/file"):
        expect("torch gloo", r"^cannot write .*\): give another name$", path)
    expect("graph nccl", "nccl needs", tmp_path / "record.json")
    monkeypatch.setattr(validate.os, "access", lambda path, mode: str(path) != "/dev/shm")
    for configuration in ("store driver-queue", "torch gloo"):
        expect(configuration, "/dev/shm is missing or cannot be written", tmp_path / "record.json")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def raise_not_found():
    """Fail as tempfile.gettempdir does if it finds no folder that can be written."""
    raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp', '/var/tmp']")


@pytest.mark.parametrize(
    ("gettempdir", "unwritable", "reason"),
    [
        (raise_not_found, "", "no folder for temporary files can be written, .*: set TMPDIR"),
        (lambda: "/a-folder-with-a-long-path", "/tmp", "^torch gloo: /tmp cannot be written: set"),
    ],
)
def test_without_a_folder_for_temporary_files_nothing_starts(
    no_gpu, monkeypatch, tmp_path, gettempdir, unwritable, reason
):
    monkeypatch.setattr(supervisor, "measure_run", lambda *_: pytest.fail("a run was measured"))
    monkeypatch.setattr(temporary.tempfile, "gettempdir", gettempdir)
    monkeypatch.setattr(temporary.os, "access", lambda path, mode: str(path) != unwritable)
    with pytest.raises(SuiteError, match=reason):
        run.main(["torch gloo", *KILOBYTES, "--output", str(tmp_path / "record.json")])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("is_archived", "name"), [(False, "00-torch-memcpy.json"), (True, ARCHIVE)]
)
def test_runs_that_another_call_finishes_while_this_one_waits_are_kept(
    monkeypatch, tmp_path, is_archived, name
):
    """--continue reads the records when the other call can write them no more."""
    own, other = (
        make_items([plan_configuration("torch memcpy", {})[0]], tmp_path)[0] for _ in range(2)
    )
    files.create(other.path, other.record)
    own.keep_finished_runs(files.load(own.path))

    @contextmanager
    def finish_first():
        other.record.runs.append(make_run([1.0]))
        other.save()
        if is_archived:
            files.archive(tmp_path)
        yield

    def measure_run(item, order, pair):
        item.record.runs.append(make_run([2.0], order=order))
        item.save()
        return 0

    monkeypatch.setattr(supervisor, "only_measurement", finish_first)
    monkeypatch.setattr(supervisor, "measure_run", measure_run)
    folder = RecordFolder(tmp_path, [own], is_archived)
    assert supervisor.measure_all([[own], [own]], folder) == [0]
    (record,) = files.load_all([tmp_path])
    assert [run.seconds[0] for run in record.runs] == [1.0, 2.0]
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(("error", "status", "reason", "expected"), [
    (KeyboardInterrupt(), "failed", Run().reason, "interrupted after 0 timed iterations"),
    (RunFailed("policy died"), "failed", Run().reason, "policy died"),
    (ValueError("a defect"), "failed", Run().reason, "ValueError: a defect"),
    (RunFailed("it runs on"), "ok", None, "it runs on"),
    (RunFailed("it runs on"), "failed", "policy died", "policy died; it runs on"),
])  # fmt: skip
def test_the_reason_of_a_run_is_what_ended_it_first(
    no_gpu, monkeypatch, tmp_path, error, status, reason, expected
):
    def follow_driver(monitor, run_folder):
        monitor.record.runs[-1].status, monitor.record.runs[-1].reason = status, reason
        raise error

    monkeypatch.setattr(supervisor.Monitor, "follow_driver", follow_driver)
    (item,) = make_items(plan_configuration("store refs --object-store-bytes 3GB", {}), tmp_path)
    with suppress(ValueError):
        assert supervisor.measure_run(item, 0) == (
            130 if isinstance(error, KeyboardInterrupt) else 1
        )
    (run,) = files.load(item.path).runs
    assert (run.status, run.reason, run.store_bytes) == ("failed", expected, 3 * 10**9)


def test_a_disk_that_is_full_at_the_end_of_a_run_loses_no_time_and_stops_no_other_run(
    monkeypatch, tmp_path
):
    """The record of the first run cannot be replaced. Its times are in a new file, and the second run is measured."""
    items = make_items(
        [plan_configuration(name, {})[0] for name in ("torch memcpy", "torch mapped")], tmp_path
    )
    replace = records.replace
    monkeypatch.setattr(records.tempfile, "tempdir", str(tmp_path))  # which gets the new file

    def follow_driver(monitor, run_folder):
        monitor.record.runs[-1] = make_run([1.0])
        if monitor.plan.transport.name == "memcpy":
            monkeypatch.setattr(records, "replace", fail_at_first_path)

    def fail_at_first_path(path, content):
        if path == items[0].path:
            raise RecordError(f"cannot write {path} (No space left on device)")
        replace(path, content)

    monkeypatch.setattr(supervisor.Monitor, "follow_driver", follow_driver)
    folder = RecordFolder(tmp_path, items, is_archived=True)
    with new_records(items):
        assert supervisor.measure_all([[item] for item in items], folder) == [1, 0]
    assert not items[0].path.exists() and items[1].saved_path == items[1].path
    assert [files.load(item.saved_path).runs[0].seconds for item in items] == [[1.0]] * 2
