"""Test records: written in one step, never over another file, read strictly, and without anything private."""

import gzip
import json
import os
import re
import socket
import sys
from unittest.mock import Mock

import msgspec
import pytest

from common.record import SCHEMA_VERSION
from dataflow.errors import RecordError
from dataflow.plan.options import RESULTS
from dataflow.records import files, machine
from dataflow.records.machine import MACHINE_KEYS, describe_environment
from dataflow.records.schema import Configuration, Edge, Record, Run, Workload

FULL_DISK = OSError(28, "No space left on device")


@pytest.fixture
def record():
    """Return a record with a good run and a failed one."""
    failed = Run(reason="iteration 3: policy died", wrong_bytes=2, wrong_bytes_by_field={"a -> b, mask": 2})
    spans = [("driver", 1, "sequence number", 0, 0.1, 0.2, 3)]
    good = Run(status="ok", seconds=[0.5, 0.1 + 0.2], spans=spans)
    workload = Workload("online-dpo", "flat", {"batch_size": 4}, (Edge("driver", "policy", 8),))
    return Record(
        workload=workload, configuration=Configuration("store", "refs", {"zero_copy": True}), runs=[good, failed]
    )


def test_a_record_is_read_as_it_was_written_also_compressed(tmp_path, record):
    path = tmp_path / "deep" / "er" / "record.json"
    files.create(path, record)
    assert files.load(path) == record
    for existing, reason in ((path, "exists: give another name"), (path / "record.json", "cannot write")):
        with pytest.raises(RecordError, match=reason):
            files.create(existing, record)
    record.runs.append(Run(started_at="2026-11-21T12:00:00+00:00", order=7))
    files.save(path, record)
    assert list(path.parent.iterdir()) == [path]
    (tmp_path / "packed.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert [files.load(path) for path in files.record_files([tmp_path])] == [record, record]


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize(
    ("error", "raised"), [(KeyboardInterrupt, KeyboardInterrupt), (FULL_DISK, RecordError), (None, TypeError)]
)
def test_a_save_that_fails_leaves_the_old_file_or_none(tmp_path, record, monkeypatch, is_new, error, raised):
    path, other = tmp_path / "record.json", tmp_path / "record.json.partial"
    other.write_text("the user's own")
    if not is_new:
        files.create(path, record)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    if error:
        monkeypatch.setattr(files.os, "replace", Mock(side_effect=error))
    else:
        record.arguments["flow"] = object()  # is not JSON
    with pytest.raises(raised):
        (files.create if is_new else files.save)(path, record)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("reason", ["the path is a folder", "the disk is full"])
def test_a_record_that_cannot_be_saved_is_kept_elsewhere(tmp_path, record, monkeypatch, capsys, reason):
    """The old file is removed, because it has some of the same runs."""
    folder, temporary = tmp_path / "results", tmp_path / "temporary"
    path = folder / "record.json"
    temporary.mkdir()
    monkeypatch.setattr(files.tempfile, "gettempdir", lambda: str(temporary))
    if reason == "the path is a folder":
        path.mkdir(parents=True)
    else:
        files.create(path, record)
        replace = files.replace

        def fail_in_folder(path, content):
            if path.parent == folder:
                raise RecordError(f"cannot write {path} (No space left on device)")
            replace(path, content)

        monkeypatch.setattr(files, "replace", fail_in_folder)
    saved = files.save_somewhere(path, record)
    assert files.load(saved) == record
    assert saved.parent == (folder if path.is_dir() else temporary)
    assert [path for path in tmp_path.rglob("*.json") if path.is_file()] == [saved]
    message = capsys.readouterr().err
    assert message.startswith(f"error: cannot write {path} (") and f" is now {saved}: " in message


def test_a_file_that_is_not_a_record_is_an_error_in_one_line(tmp_path, record):
    path, good = tmp_path / "record.json", msgspec.json.encode(record)
    for content, reason in (
        (None, "cannot read"),
        (good.replace(b'"seconds":[0.5', b'"seconds":[NaN'), r"complete JSON \(.*invalid character.*\): leave it out"),
        (good[:-9], "not complete JSON"),
        (b"[1, 2, 3]", "not a record of this suite"),
        (b'{"schema_version": %d}' % SCHEMA_VERSION, "not a record of this suite"),
        (b'{"schema_version": %d}' % (SCHEMA_VERSION - 1), f"this version reads schema {SCHEMA_VERSION}"),
        (good.replace(b'"seconds":[0.5', b'"seconds":[0.0'), "not a record of this suite"),
        (re.sub(rb'"seconds":\[[^]]*', b'"seconds":[', good), "has an ok run without times"),
        (good.replace(b'"status":"ok"', b'"status":"good"'), "not a record of this suite"),
        (good.replace(b'"wrong_bytes"', b'"colour"'), "not a record of this suite"),
    ):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(RecordError, match=reason) as error:
            files.load(path)
        assert "\n" not in str(error.value) and str(path) in str(error.value)
    path = path.rename(tmp_path / "record.json.gz")
    with pytest.raises(RecordError, match=r"cannot read .*record.json.gz \(Not a gzipped file"):
        files.load(path)


def test_a_run_that_two_files_have_counts_once_with_a_warning(tmp_path, record, capsys):
    path = tmp_path / "record.json"
    files.create(path, record)
    skipped = msgspec.structs.replace(record, runs=[Run(status="skipped", reason="no GPU")])  # is no repeated run
    for name in ("skipped-1.json", "skipped-2.json"):
        files.create(tmp_path / name, skipped)
    assert (files.load_all([tmp_path]), capsys.readouterr().err) == ([record, skipped, skipped], "")
    (tmp_path / "record.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    more = msgspec.structs.replace(record, runs=[*record.runs, Run(started_at="2026-11-21T12:00:00+00:00")])
    files.save(tmp_path / "z.json", more)
    first, *_, last = files.load_all([tmp_path, path])
    assert (first.runs, last.runs) == (record.runs, more.runs[-1:])
    count = 3 * len(record.runs)
    begin = f"warning: {count} runs are in two records and count once, such as those of {path}.gz, which are also in"
    assert capsys.readouterr().err == f"{begin} {path}\n"


def test_every_published_record_is_read():
    records = [files.load(path) for path in files.record_files([RESULTS / "published"])]
    assert all(run.seconds or run.status != "ok" for record in records for run in record.runs)


def test_a_record_has_no_secret_host_name_or_folder(monkeypatch, tmp_path):
    for name in ("HF_TOKEN", "RAY_AUTH_TOKEN", "NCCL_SECRET", "HTTPS_PROXY", "USER", "HOME", "RAY_ADDRESS",
                 "RAY_REDIS_PASSWORD", "UCX_LOG_FILE"):  # fmt: skip
        monkeypatch.setenv(name, f"{tmp_path}/private")
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", '{"env_vars": {"MINE": "SECRET"}}')
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    monkeypatch.setitem(machine.PROBES, "kernel", lambda: 1 / 0)  # a probe that fails gives None, and its error
    monkeypatch.setitem(machine.PROBES, "gpus", lambda: machine._run("no-such-program"))
    values = describe_environment()
    text = json.dumps(values)
    for private in (socket.gethostname(), str(tmp_path), "SECRET", "TOKEN", str(RESULTS.parent)):
        assert private not in text
    assert set(MACHINE_KEYS) <= set(values) and values["kernel"] is values["gpus"] is None
    assert values["failed_probes"]["kernel"] == "ZeroDivisionError" and "gpus" not in values["failed_probes"]
    assert values["variables"]["NCCL_P2P_DISABLE"] == "1" and set(values["variables"]) <= set(os.environ)


@pytest.mark.parametrize(("text", "cuda"), [("cuda: Optional[str] = None", None), ("cuda = '13.0'", "13.0")])
def test_the_cuda_version_of_torch_is_read_without_importing_torch(monkeypatch, tmp_path, text, cuda):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('torch was imported')")
    (tmp_path / "torch" / "version.py").write_text(f"__version__ = '2'\n{text}\n")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert machine.cuda_version() == cuda
