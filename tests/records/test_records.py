# SPDX-License-Identifier: Apache-2.0
"""Test records: written in one step, never over another file, read strictly, and without anything private."""

import gzip
import json
import os
import random
import re
import socket
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest
from made_records import make_record, make_run

from common.record import SCHEMA_VERSION
from dataflow.analysis.comparison import match_results
from dataflow.analysis.result import group_results
from dataflow.commands.compare import print_pairs
from dataflow.errors import RecordError, SuiteError
from dataflow.plan.options import RESULTS
from dataflow.records import files, machine
from dataflow.records.machine import MACHINE_KEYS, describe_environment
from dataflow.records.schema import Run
from dataflow.report.sections import sections


@pytest.fixture
def record():
    """Return a record with a good run and a failed one."""
    failed = Run(
        reason="iteration 3: policy died", wrong_bytes=2, wrong_bytes_by_field={"a -> b, mask": 2}
    )
    good = make_run([0.5, 0.1 + 0.2], spans=[("driver", 1, "sequence number", 0, 0.1, 0.2, 3)])
    return make_record("refs", good, failed, flags={"zero_copy": True})


def test_a_record_is_read_as_it_was_written_also_compressed(tmp_path, record):
    path = tmp_path / "deep" / "er" / "record.json"
    files.create(path, record)
    assert files.load(path) == record
    for existing, reason in (
        (path, "exists: give another name"),
        (path / "record.json", "cannot write"),
    ):
        with pytest.raises(RecordError, match=reason):
            files.create(existing, record)
    record.runs.append(Run(started_at="2026-11-21T12:00:00+00:00", order=7))
    files.save(path, record)
    assert list(path.parent.iterdir()) == [path]
    (tmp_path / "record.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert files.load_all([tmp_path]) == [record]


def test_other_json_files_below_a_folder_are_passed_over_and_damaged_records_are_not(
    tmp_path, record
):
    files.create(tmp_path / "run-1" / "refs.json", record)
    ages = tmp_path / "evidence" / "code-ages.json"
    ages.parent.mkdir()
    ages.write_bytes((RESULTS / "evidence" / "code-ages.json").read_bytes())
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "running.json").touch()  # of a script that has not ended
    assert files.load_all([tmp_path]) == [record]
    with pytest.raises(RecordError, match=r"evidence has no records \(\*.json"):
        files.load_all([ages.parent])
    with pytest.raises(RecordError, match=r"code-ages.json cannot be read as a record"):
        files.load_all([ages])
    for damaged in ('{"runs": []}', '{"schema_version": 9}', '{"workload":'):
        (tmp_path / "damaged.json").write_text(damaged)
        with pytest.raises(RecordError, match=r"damaged.json cannot be read as a record"):
            files.load_all([tmp_path])


@pytest.mark.parametrize("save", [files.save, files.create])
@pytest.mark.parametrize(
    ("error", "raised"), [(KeyboardInterrupt, KeyboardInterrupt), (OSError(28, ""), RecordError)]
)
def test_a_save_that_fails_leaves_the_old_file_or_none(
    tmp_path, record, monkeypatch, save, error, raised
):
    path = tmp_path / "record.json"
    if save == files.save:
        files.create(path, record)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(files.os, "replace", Mock(side_effect=error))
    with pytest.raises(raised):
        save(path, record)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_record_that_somebody_has_changed_is_an_error_in_one_line(tmp_path, record):
    path, good = tmp_path / "record.json", msgspec.json.encode(record)
    for content, reason in (
        (good.replace(b'"seconds":[0.5', b'"seconds":[NaN'), "invalid character"),
        (
            good.replace(b'"schema_version":%d' % SCHEMA_VERSION, b'"schema_version":7'),
            r"enum value 7.*schema_version",
        ),
        (good.replace(b'"seconds":[0.5', b'"seconds":[0.0'), "> 0.0"),
        (re.sub(rb'"seconds":\[[^]]*', b'"seconds":[', good), "has an ok run without times"),
        (good.replace(b'"status":"ok"', b'"status":"good"'), "enum value 'good'"),
        (good.replace(b'"wrong_bytes"', b'"colour"'), "unknown field `colour`"),
    ):
        path.write_bytes(content)
        with pytest.raises(RecordError, match=f"{reason}.*: leave it out") as error:
            files.load(path)
        assert "\n" not in str(error.value) and str(path) in str(error.value)
    with pytest.raises(
        RecordError, match=r"record.json.gz cannot be read as a record \(Not a gzipped file"
    ):
        files.load(path.rename(tmp_path / "record.json.gz"))


def test_a_run_that_two_files_have_is_rejected_but_a_file_that_is_named_twice_is_not(
    tmp_path, record
):
    path = tmp_path / "record.json"
    files.create(path, record)
    skipped = msgspec.structs.replace(
        record, runs=[Run(status="skipped", reason="no GPU")]
    )  # is no repeated run
    for name in ("skipped-1.json", "skipped-2.json"):
        files.create(tmp_path / name, skipped)
    assert files.load_all([tmp_path, path]) == [record, skipped, skipped]
    more = msgspec.structs.replace(
        record, runs=[*record.runs, Run(started_at="2026-11-21T12:00:00+00:00")]
    )
    files.save(tmp_path / "z.json", more)
    with pytest.raises(
        RecordError, match=f"z.json has a run that {path} has too: leave one of them out"
    ):
        files.load_all([tmp_path])


def test_a_record_has_no_secret_host_name_or_folder(monkeypatch, tmp_path):
    for name in ("HF_TOKEN", "RAY_AUTH_TOKEN", "NCCL_SECRET", "HTTPS_PROXY", "USER", "HOME", "RAY_ADDRESS",
                 "RAY_REDIS_PASSWORD", "UCX_LOG_FILE"):  # fmt: skip
        monkeypatch.setenv(name, f"{tmp_path}/private")
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", '{"env_vars": {"MINE": "SECRET"}}')
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    # A probe that fails gives None, and its error.
    monkeypatch.setitem(machine.PROBES, "virtual_machine", lambda: 1 / 0)
    monkeypatch.setitem(machine.PROBES, "nccl", Path("/no/such/file").read_text)
    values = describe_environment()
    text = json.dumps(values)
    for private in (socket.gethostname(), str(tmp_path), "SECRET", "TOKEN", str(RESULTS.parent)):
        assert private not in text
    assert set(MACHINE_KEYS) <= set(values)
    assert values["virtual_machine"] is None
    assert values["nccl"] is None
    assert values["failed_probes"] == {"virtual_machine": "ZeroDivisionError"}
    assert values["variables"]["NCCL_P2P_DISABLE"] == "1"
    assert set(values["variables"]) <= set(os.environ)


VALUES = (
    None,
    0,
    -1,
    1e308,
    float("nan"),
    "",
    "x" * 50,
    [],
    {},
    [None],
    True,
    2**70,
    "2026-13-45",
    -0.0,
)


def all_places(value, path=()):
    """Yield the path to each value in a record."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield (*path, key)
        yield from all_places(inner, (*path, key))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_record_with_any_changed_value_is_one_error_or_a_report(tmp_path):
    generator, path = random.Random(1), tmp_path / "record.json"
    made = [
        make_record("refs", make_run([0.2, 0.3]), [0.1, 0.2]),
        make_record("refs", [0.2], table="chatlearn-flat"),
    ]
    for index in range(300):
        files.save(path, made[index % 2])
        record = json.loads(path.read_text())
        *folders, last = generator.choice(
            [place for place in all_places(record) if place[-1] != "gpus"]
        )
        parent = record
        for key in folders:
            parent = parent[key]
        parent[last] = generator.choice(VALUES)
        if generator.random() < 0.2:
            del parent[last]
        path.write_text(json.dumps(record))
        try:
            results = group_results([files.load(path)])
            sections(results)
            print_pairs(match_results(results, results)[0])
        except SuiteError as error:
            assert "\n" not in str(error)
