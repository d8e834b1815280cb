# SPDX-License-Identifier: Apache-2.0
"""Test the folder of a measurement: single records become an archive, and no kill on the way loses a record."""

from unittest.mock import DEFAULT, Mock

import pytest
from made_records import make_run

from dataflow.errors import RecordError
from dataflow.measure.supervisor import make_items
from dataflow.plan.command_line import plan_configuration
from dataflow.records import files
from dataflow.records.folder import RecordFolder


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def plan_folder(folder):
    planned = [plan_configuration(name, {})[0] for name in ("torch memcpy", "torch mapped")]
    return RecordFolder(folder, make_items(planned, folder), is_archived=True)


@pytest.mark.parametrize("count", [1, 2])
def test_a_kill_while_an_archive_is_taken_apart_loses_no_record(tmp_path, monkeypatch, count):
    folder = plan_folder(tmp_path)
    for item in folder.items:
        item.record.runs.append(make_run([1.0]))
        files.create(item.path, item.record)
    records = [item.record for item in folder.items]
    folder.join()
    assert {item.saved_path for item in folder.items} == {folder.archive}
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        effects = [DEFAULT] * (count - 1) + [KeyboardInterrupt]
        patched.setattr(files, "save", Mock(side_effect=effects, wraps=files.save))
        folder.take_apart()
    assert files.load_all([tmp_path]) == records
    folder.take_apart()
    assert names_in(tmp_path) == sorted(item.path.name for item in folder.items)
    assert files.load_all([tmp_path]) == records


def test_an_archive_is_not_replaced_by_other_files_of_the_same_names(tmp_path):
    folder = plan_folder(tmp_path)
    for item in folder.items:
        item.record.runs.append(make_run([1.0]))
        files.create(item.path, item.record)
    folder.join()
    before = folder.archive.read_bytes()
    files.save(folder.items[0].path, plan_folder(tmp_path).items[0].record)
    with pytest.raises(RecordError, match="differ: move one of them away"):
        folder.take_apart()
    assert folder.archive.read_bytes() == before


def test_records_stay_single_if_an_archive_cannot_be_written(tmp_path, monkeypatch, capsys):
    folder = plan_folder(tmp_path)
    for item in folder.items:
        files.create(item.path, item.record)
    monkeypatch.setattr("common.record.os.replace", Mock(side_effect=OSError(28, "full")))
    folder.join()
    error = capsys.readouterr().err
    assert error.startswith("warning: cannot write ") and error.count("\n") == 1
    assert names_in(tmp_path) == sorted(item.path.name for item in folder.items)
