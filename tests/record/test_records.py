"""Records as files: written once and in one step, read in every schema so far."""

import json
from pathlib import Path

import msgspec
import pytest
from made_records import a_record, a_run

from common.errors import RecordError
from common.record import files
from common.record.schema import SCHEMA_VERSION, Cost, Record, Run

HERE = Path(__file__).parent
PUBLISHED = HERE.parents[1] / "results" / "published"


@pytest.fixture
def record():
    """Two runs of one row: one that went well, one that did not."""
    failed = a_run([0.5], status="failed", reason="trip 3: policy died", wrong_bytes_by_field={"a -> b, mask": 2})
    good = a_run([0.5, 0.1 + 0.2], episode_seconds=[0.9], spans=[("driver", 1, "stamp", "a -> b", 0, 0.1, 0.2)])
    return a_record("refs", good, failed, flags={"zero_copy": True})


def refused(path, words):
    with pytest.raises(RecordError, match=words) as error:
        files.load(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_a_record_is_read_as_it_was_written_with_all_its_runs(tmp_path, record):
    path = tmp_path / "deep" / "er" / "record.json"
    files.create(path, record)
    assert files.load(path) == record
    record.runs.append(Run(started_at="2026-11-21T12:00:00+00:00", order=7))
    files.save(path, record)
    again = files.load(path)
    assert again == record
    assert [run.status for run in again.runs] == ["ok", "failed", "failed"]
    assert list(path.parent.iterdir()) == [path]


def test_an_existing_file_is_neither_overwritten_nor_touched(tmp_path, record):
    path = tmp_path / "record.json"
    path.write_text("mine")
    with pytest.raises(RecordError, match="exists: give another name"):
        files.create(path, record)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("name", ["file/record.json", "long" * 100 + "/record.json", "/proc/nowhere/record.json"])
def test_a_folder_that_cannot_be_written_is_an_error_in_one_line(tmp_path, record, name):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RecordError, match=r"cannot write .*give --output another place") as error:
        files.create(tmp_path / name, record)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("broken", [object(), {1j: 2}])
def test_a_record_that_cannot_be_said_in_json_leaves_the_old_one(tmp_path, record, broken):
    path = tmp_path / "record.json"
    files.create(path, record)
    before = path.read_bytes()
    record.environments["0"]["cpu_model"] = broken
    with pytest.raises(TypeError):
        files.save(path, record)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("runs", 0, "seconds"), [0.0]),
        (("runs", 0, "seconds"), [-0.5]),
        (("runs", 0, "seconds"), ["fast"]),
        (("runs", 0, "status"), "good"),
        (("runs", 0, "wrong_bytes"), -1),
        (("runs", 0, "colour"), "blue"),
        (("runs",), {}),
        (("warmup",), 1.5),
        (("edges",), [{"from": "driver"}]),
        (("row",), "refs"),
        (("schema_version",), "3"),
    ],
)
def test_values_that_no_run_gives_are_refused(tmp_path, record, place, value):
    path = tmp_path / "record.json"
    files.create(path, record)
    changed = part = json.loads(path.read_text())
    *parents, key = place
    for parent in parents:
        part = part[parent]
    part[key] = value
    path.write_text(json.dumps(changed))
    refused(path, "no record of this suite")


@pytest.mark.parametrize("missing", ["row", "edges", "warmup"])
def test_a_missing_part_is_refused_by_its_name(tmp_path, record, missing):
    path = tmp_path / "record.json"
    path.write_text(json.dumps({k: v for k, v in msgspec.to_builtins(record).items() if k != missing}))
    refused(path, missing)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON, truncated perhaps"),
        (b'{"schema_version": 1, "cases": [', "not JSON, truncated perhaps"),
        (b"\xff\xfe\x00", "not JSON, truncated perhaps"),
        (b'{"warmup": NaN}', "not JSON, truncated perhaps"),
        (b"[1, 2, 3]", "no record of this suite"),
        (b"null", "no record of this suite"),
        (b'{"name": "somebody else\'s"}', "no record of this suite"),
        (b'{"schema_version": 2}', "no record of this suite"),
        (b'{"schema_version": 1, "cases": [], "arguments": {}}', "no record of this suite"),
        (b'{"schema_version": 2, "cases": [3], "arguments": {}}', "no record of this suite"),
        (b'{"schema_version": 2, "cases": 3, "arguments": 3}', "no record of this suite"),
        (b'{"schema_version": %d}' % (SCHEMA_VERSION + 1), "update the suite"),
    ],
)
def test_a_file_that_is_no_record_is_an_error_in_one_line(tmp_path, content, words):
    path = tmp_path / "record.json"
    path.write_bytes(content)
    refused(path, words)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("part", ["script", "environment", "arguments", "cases"])
def test_an_old_record_without_one_of_its_parts_is_refused(tmp_path, version, part):
    found = json.loads((HERE / f"schema_{version}.json").read_text())
    del found[part]
    path = tmp_path / "record.json"
    path.write_text(json.dumps(found))
    refused(path, "no record of this suite")


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_a_file_that_cannot_be_read_is_an_error_in_one_line(tmp_path, name):
    refused(tmp_path / name, "cannot read")


@pytest.mark.parametrize("version", [1, 2])
def test_a_record_of_an_old_schema_is_read_as_one_of_today(version):
    path = HERE / f"schema_{version}.json"
    old, record = json.loads(path.read_text()), files.load(path)
    (case,), (run,) = old["cases"], record.runs
    assert isinstance(record, Record)
    assert (record.schema_version, record.row.runtime, record.row.transport) == (SCHEMA_VERSION, "store", "refs")
    assert record.row.sizes["batch_size"] == 1024
    assert record.row.layout.nodes == dict.fromkeys(["driver", "policy", "reference", "reward"], 0)
    assert (run.seconds, run.first_seconds, run.status) == (case["seconds"], case["first_seconds"], "ok")
    assert run.ceiling_before_seconds == old["ceiling_samples_seconds"]
    assert run.started_at == old["started_at"]
    assert run.processes == {"all": Cost(case["peak_memory_bytes"], case["harness_seconds"])}
    assert record.environments["0"] == old["environment"]
    assert record.bytes_per_trip == case["bytes_per_trip"]
    assert record.row.flags == ({"zero_copy": True} if version == 2 else {})


@pytest.mark.parametrize("path", files.below([PUBLISHED]), ids=lambda path: path.stem)
def test_every_published_record_is_read(path):
    record = files.load(path)
    assert record.runs
    assert all(len(run.seconds) > 0 or run.status != "ok" for run in record.runs)


def test_default_names_tell_the_runtime_and_the_transport_and_never_meet(tmp_path):
    name = files.default_path(tmp_path, "store", "refs")
    assert name.name.startswith("store-refs-")
    assert name != files.default_path(tmp_path, "store", "refs")
