import copy
import json

import jsonschema
import pytest

from common.record import files as records


@pytest.fixture
def record():
    """The smallest record of a run that went well."""
    return {
        "schema_version": records.SCHEMA_VERSION,
        "script": "simulate_chat_learn_data_flow.py",
        "started_at": "2026-11-20T12:00:00+00:00",
        "arguments": {"iterations": 2},
        "environment": {"cpu_model": None},
        "ceiling_seconds": 0.25,
        "ceiling_samples_seconds": [0.25],
        "ceiling_all_cores_samples_seconds": [0.125],
        "cases": [
            {
                "flow": "online-dpo",
                "transport": "refs",
                "device": "cpu",
                "status": "ok",
                "reason": None,
                "payload_copied": True,
                "path": {"driver -> policy": "object store"},
                "bytes_per_trip": 8,
                "edges": [{"from": "driver", "to": "policy", "bytes": 8}],
                "warmup": 0,
                "first_seconds": 1.5,
                "seconds": [0.5, 0.1 + 0.2],
                "wrong_bytes": 0,
                "stored_bytes": 8,
                "spilled_bytes": 0,
                "peak_memory_bytes": None,
                "harness_seconds": None,
                "placement": {"driver": 0, "policy": 0},
            }
        ],
    }


def one_line(error):
    return str(error.value).count("\n") == 0 and str(error.value) != ""


def test_a_record_is_read_as_it_was_written(tmp_path, record):
    path = tmp_path / "deep" / "er" / "record.json"
    records.create(path, record)
    assert records.load(path) == record
    record["cases"][0]["seconds"].append(0.7)
    records.save(path, record)
    assert records.load(path) == record


def test_an_existing_file_is_neither_overwritten_nor_touched(tmp_path, record):
    path = tmp_path / "record.json"
    path.write_text("mine")
    with pytest.raises(records.RecordError, match="exists: give --output another name") as error:
        records.create(path, record)
    assert one_line(error)
    assert path.read_text() == "mine"


def test_a_file_in_the_place_of_the_folder_is_called_by_its_name(tmp_path, record):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(records.RecordError, match="cannot write") as error:
        records.create(tmp_path / "file" / "record.json", record)
    assert one_line(error)


def test_a_folder_that_cannot_be_made_is_an_error_in_one_line(record, tmp_path):
    path = tmp_path / ("long" * 100) / "record.json"
    with pytest.raises(records.RecordError, match=r"cannot write .*give --output another place") as error:
        records.create(path, record)
    assert one_line(error)


def test_a_record_that_is_refused_leaves_the_old_one_and_no_partial_file(tmp_path, record):
    path = tmp_path / "record.json"
    records.create(path, record)
    before = path.read_text()
    record["cases"][0]["seconds"] = [-1.0]
    with pytest.raises(jsonschema.ValidationError):
        records.save(path, record)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_saved_record_has_no_partial_file_beside_it(tmp_path, record):
    path = tmp_path / "record.json"
    records.create(path, record)
    records.save(path, record)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("seconds", [float("nan"), float("inf")])
def test_what_json_cannot_say_is_refused_before_the_old_record_is_gone(tmp_path, record, seconds):
    path = tmp_path / "record.json"
    records.create(path, record)
    before = path.read_text()
    record["cases"][0]["seconds"] = [seconds]
    with pytest.raises((ValueError, jsonschema.ValidationError)):
        records.save(path, record)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("number", ["NaN", "Infinity"])
def test_numbers_that_are_no_json_are_refused_on_reading(tmp_path, record, number):
    path = tmp_path / "by_hand.json"
    path.write_text(json.dumps(record))
    assert records.load(path) == record
    path.write_text(json.dumps(record).replace("[0.5, ", f"[{number}, "))
    with pytest.raises(records.RecordError) as error:
        records.load(path)
    assert one_line(error)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("cases", 0, "seconds"), [0.0]),
        (("cases", 0, "seconds"), [-0.5]),
        (("cases", 0, "seconds"), ["fast"]),
        (("cases", 0, "status"), "good"),
        (("cases", 0, "wrong_bytes"), -1),
        (("cases", 0, "bytes_per_trip"), 8.5),
        (("cases", 0, "edges"), [{"from": "driver"}]),
        (("cases",), []),
        (("ceiling_seconds",), 0),
        (("ceiling_samples_seconds",), []),
        (("schema_version",), 0),
    ],
)
def test_values_that_no_run_gives_are_refused(tmp_path, record, place, value):
    changed = copy.deepcopy(record)
    *parents, key = place
    part = changed
    for parent in parents:
        part = part[parent]
    part[key] = value
    with pytest.raises(jsonschema.ValidationError):
        records.create(tmp_path / "record.json", changed)
    path = tmp_path / "by_hand.json"
    path.write_text(json.dumps(changed))
    with pytest.raises(records.RecordError, match="no record of this suite") as error:
        records.load(path)
    assert one_line(error)


def test_a_record_that_the_schema_refuses_leaves_no_empty_file(tmp_path, record):
    record["ceiling_seconds"] = -1
    with pytest.raises(jsonschema.ValidationError):
        records.create(tmp_path / "record.json", record)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("field", ["script", "environment", "ceiling_seconds", "cases"])
def test_a_missing_field_is_refused(tmp_path, record, field):
    del record[field]
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record))
    with pytest.raises(records.RecordError, match=field):
        records.load(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON, truncated perhaps"),
        (b'{"schema_version": 1, "cases": [', "not JSON, truncated perhaps"),
        (b"\xff\xfe\x00", "not JSON, truncated perhaps"),
        (b"[1, 2, 3]", "no record of this suite"),
        (b"null", "no record of this suite"),
        (b'{"name": "somebody else\'s"}', "no record of this suite"),
        (b'{"schema_version": "1"}', "no record of this suite"),
        (b'{"schema_version": %d}' % (records.SCHEMA_VERSION + 1), "update the suite"),
    ],
)
def test_a_file_that_is_no_record_is_an_error_in_one_line(tmp_path, content, reason):
    path = tmp_path / "record.json"
    path.write_bytes(content)
    with pytest.raises(records.RecordError, match=reason) as error:
        records.load(path)
    assert one_line(error)
    assert str(path) in str(error.value)


def test_a_truncated_record_is_an_error_in_one_line(tmp_path, record):
    path = tmp_path / "record.json"
    records.create(path, record)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(records.RecordError, match="truncated") as error:
        records.load(path)
    assert one_line(error)


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_a_file_that_cannot_be_read_is_an_error_in_one_line(tmp_path, name):
    with pytest.raises(records.RecordError, match="cannot read") as error:
        records.load(tmp_path / name)
    assert one_line(error)


def test_default_names_tell_the_runtime_and_the_transport_and_never_meet(tmp_path):
    store = records.default_path(tmp_path, "simulate_chat_learn_data_flow.py", "refs")
    graph = records.default_path(tmp_path, "ray_cg_simulate_chat_learn_data_flow.py", "shm")
    assert store.name.startswith("store-refs-")
    assert graph.name.startswith("graph-shm-")
    assert store != records.default_path(tmp_path, "simulate_chat_learn_data_flow.py", "refs")
