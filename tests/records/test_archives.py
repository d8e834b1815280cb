# SPDX-License-Identifier: Apache-2.0
"""Test archives: they have what the single records had, and no kill while one is made loses a record."""

import errno
import gzip
import os
import shutil
from contextlib import contextmanager, nullcontext
from unittest.mock import Mock

import msgspec
import pytest
from conftest import ROOT
from made_records import make_record, make_run, write_record

from common import record_files
from common.record import replace
from common.record_files import ARCHIVE, find_newest
from dataflow.commands import archive, report
from dataflow.errors import RecordError, UsageError
from dataflow.records import files
from dataflow.records.schema import Run

NAMES = ("driver-queue", "refs", "bytes")


@pytest.fixture
def records():
    """Return three records, whose times differ."""
    return [make_record(name, [0.1 + 0.2 * place]) for place, name in enumerate(NAMES)]


def write_singles(folder, records):
    """Write each record to a file of its own, in this order of names."""
    for place, record in enumerate(records):
        write_record(folder / f"{place}.json", record)
    return folder


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_archive_has_the_records_in_the_order_of_their_names(tmp_path, records):
    path = files.archive(write_singles(tmp_path / "run", records))
    assert (path.name, names_in(path.parent)) == (ARCHIVE, [ARCHIVE])
    for source in (path, path.parent, tmp_path):
        assert files.load_all([source]) == records


def test_a_line_has_the_numbers_as_they_were_written(tmp_path):
    """A number such as 0.30000000000000004 or 1e-05 is copied, and not read and written again."""
    write_record(tmp_path / "record.json", make_record("refs", [0.5]))
    text = (tmp_path / "record.json").read_text().replace("0.5", "5.000e-01")
    (tmp_path / "record.json").write_text(text)
    (line,) = gzip.decompress(files.archive(tmp_path).read_bytes()).splitlines()
    assert b'"seconds":[5.000e-01]' in line
    assert msgspec.json.format(line, indent=1).decode() + "\n" == text


def test_equal_records_give_equal_archives(tmp_path, records):
    """Neither the time, nor the folder, nor the names of the files are in them."""
    first = files.archive(write_singles(tmp_path / "first", records))
    other = tmp_path / "other"
    for place, record in enumerate(records):
        single = write_record(other / f"record-{place}.json", record)
        os.utime(single, (0, 0))
    content = first.read_bytes()
    assert files.archive(other).read_bytes() == content
    flags, time = content[3], content[4:8]
    assert (flags, time) == (0, bytes(4))  # RFC 1952: no name, and no time


def test_records_are_added_to_an_archive(tmp_path, records):
    files.archive(write_singles(tmp_path, records[:2]))
    write_record(tmp_path / "0.json", records[2])
    assert files.load_all([tmp_path]) == [records[2], *records[:2]]  # by name
    (tmp_path / "compressed.json.gz").write_bytes(
        gzip.compress(msgspec.json.encode(make_record("numpy", [1.0])))
    )
    files.archive(tmp_path)
    loaded = files.load_all([tmp_path])
    assert [record.configuration.transport for record in loaded] == [*NAMES, "numpy"]
    assert names_in(tmp_path) == [ARCHIVE]


def test_skipped_configurations_that_are_equal_stay_two(tmp_path):
    skipped = make_record("refs", Run(status="skipped", reason="no GPU"))
    files.archive(write_singles(tmp_path, [skipped, skipped]))
    assert files.load_all([tmp_path]) == [skipped, skipped]


def test_a_run_that_two_records_have_is_cited_with_its_configuration(tmp_path, records):
    path = files.archive(write_singles(tmp_path / "a", records))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    cited = f"b/{ARCHIVE}: store driver-queue has a run that {path}: store driver-queue has too"
    with pytest.raises(RecordError, match=cited):
        files.load_all([tmp_path])
    more = msgspec.structs.replace(records[1], runs=[*records[1].runs, make_run([9.0])])
    single = write_record(tmp_path / "a" / "z.json", more)
    before = path.read_bytes()
    cited = f"{single} has a run that {path}: store refs has too: leave one of them out"
    for read in (files.archive, lambda folder: files.load_all([folder])):
        with pytest.raises(RecordError, match=cited):
            read(path.parent)
    assert (path.read_bytes(), names_in(path.parent)) == (before, [ARCHIVE, "z.json"])


@pytest.mark.parametrize("step", range(1, 6))
def test_a_kill_while_an_archive_is_made_loses_no_record(tmp_path, monkeypatch, records, step):
    """Step 1 is before the archive is written, 2 after it, and 3 to 5 are those in which single files are removed."""
    write_singles(tmp_path, records)
    unlink = type(tmp_path).unlink
    left = step - 2

    def remove_some(path, missing_ok=False):
        nonlocal left
        if path.suffix == ".json":
            left -= 1
            if left <= 0:
                raise KeyboardInterrupt
        unlink(path, missing_ok)

    def replace_and_end(path, content):
        replace(path, content)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        if step == 1:
            patched.setattr("common.record.os.replace", Mock(side_effect=KeyboardInterrupt))
        elif step == 2:
            patched.setattr(files, "replace", replace_and_end)
        else:
            patched.setattr(type(tmp_path), "unlink", remove_some)
        files.archive(tmp_path)
    assert len(names_in(tmp_path)) == {1: 3, 2: 4, 3: 4, 4: 3, 5: 2}[step]
    assert sorted(files.load_all([tmp_path]), key=str) == sorted(records, key=str)
    files.archive(tmp_path)
    assert names_in(tmp_path) == [ARCHIVE] and files.load_all([tmp_path]) == records


def damage(content, name):
    """Return the bytes of an archive with one kind of damage."""
    lines = gzip.decompress(content).splitlines(keepends=True)
    changed = {
        "empty": b"",
        "cut off": content[: len(content) // 2],
        "other bytes": content[:-8] + bytes(8),
        "no archive": b"[]\n",
        "a line is blank": gzip.compress(b"".join([*lines, b"\n"])),
        "a line is no record": gzip.compress(b"".join([*lines, b"{}\n"])),
        "a line is cut off": gzip.compress(b"".join(lines)[:-9]),
        "an older version": gzip.compress(
            lines[0] + lines[1].replace(b'"schema_version":10', b'"schema_version":9')
        ),
    }
    return changed[name]


@pytest.mark.parametrize(("name", "reason"), [
    ("empty", "records.jsonl.gz ends in the middle of a record"),
    ("cut off", r"records.jsonl.gz cannot be read as a record \(Compressed file ended"),
    ("other bytes", r"records.jsonl.gz cannot be read as a record \((CRC check failed|Incorrect data check|Error -3)"),
    ("no archive", r"records.jsonl.gz cannot be read as a record \(Not a gzipped file"),
    ("a line is blank", r"line 4 of .*records.jsonl.gz cannot be read as a record"),
    ("a line is no record", r"line 4 of .*records.jsonl.gz cannot be read as a record"),
    ("a line is cut off", "records.jsonl.gz ends in the middle of a record"),
    ("an older version", r"line 2 of .*records.jsonl.gz cannot be read as a record \(Invalid enum value 9"),
])  # fmt: skip
def test_a_damaged_archive_is_one_line(tmp_path, records, name, reason):
    path = files.archive(write_singles(tmp_path, records))
    path.write_bytes(damage(path.read_bytes(), name))
    for source in (path, tmp_path):
        with pytest.raises(RecordError, match=f"{reason}.*: leave it out$") as error:
            files.load_all([source])
        assert "\n" not in str(error.value)


def test_a_decompressed_archive_can_be_read(tmp_path, records):
    path = files.archive(write_singles(tmp_path, records))
    text = gzip.decompress(path.read_bytes())
    (tmp_path / "records.jsonl").write_bytes(text)
    assert files.load_all([tmp_path / "records.jsonl"]) == records


def test_an_archive_in_the_newest_folder_is_found(tmp_path, records):
    write_singles(tmp_path / "run-1", records)
    newest = files.archive(write_singles(tmp_path / "run-2", records))
    os.utime(newest, (2**31, 2**31))
    assert find_newest(tmp_path) == [tmp_path / "run-2"]


def test_the_verb_archives_each_folder_of_a_tree(tmp_path, records, capsys):
    write_singles(tmp_path / "a", records[:1])
    write_singles(tmp_path / "a" / "b", records[1:])
    assert archive.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path / 'a' / ARCHIVE}: 1 record",
        f"{tmp_path / 'a' / 'b' / ARCHIVE}: 2 records",
    ]
    assert report.main([str(tmp_path / "a" / "b" / ARCHIVE)]) == 0
    assert (tmp_path / "a" / "b" / "configurations.svg").exists()
    for word, error in (("a", "has no single records"), ("missing", "missing does not exist: ")):
        with pytest.raises(UsageError, match=error):
            archive.main([str(tmp_path / word)])


MIXED = "it has records of the tables configurations, weights: give each table a folder"


def make_mixed_records():
    return [make_record("refs", [1.0]), make_record("bytes", [2.0], table="weights")]


def test_records_of_several_tables_stay_single(tmp_path, capsys):
    mixed = write_singles(tmp_path / "mixed", make_mixed_records())
    with pytest.raises(UsageError, match=f"^{mixed} cannot be archived: {MIXED}$"):
        archive.main([str(mixed)])
    write_singles(tmp_path / "table", make_mixed_records()[1:])
    assert archive.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{mixed} stays as it is: {MIXED}",
        f"{tmp_path / 'table' / ARCHIVE}: 1 record",
    ]
    assert names_in(mixed) == ["0.json", "1.json"]


def test_an_archive_of_one_table_gets_no_record_of_another_one(tmp_path):
    config, weights = make_mixed_records()
    files.archive(write_singles(tmp_path, [config]))
    write_singles(tmp_path, [weights])
    with pytest.raises(UsageError, match=f"{MIXED}$"):
        archive.main([str(tmp_path)])
    assert names_in(tmp_path) == ["0.json", ARCHIVE]


def test_a_record_of_another_table_that_a_measurement_adds_stays(
    tmp_path, monkeypatch, records, capsys
):
    """The verb waits for a measurement, which may write into the folder."""
    write_singles(tmp_path, records)

    @contextmanager
    def wait_for_measurement():
        write_record(tmp_path / "weights.json", make_mixed_records()[1])
        yield

    monkeypatch.setattr(archive, "only_measurement", wait_for_measurement)
    assert archive.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path} stays as it is: {MIXED}\n"
    assert names_in(tmp_path) == ["0.json", "1.json", "2.json", "weights.json"]


def test_the_name_of_an_archive_is_on_the_disk_before_single_records_are_removed(
    tmp_path, monkeypatch, records
):
    write_singles(tmp_path, records)
    steps = []
    synchronise = os.fsync
    unlink = type(tmp_path).unlink

    def note_fsync(descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        steps.append("folder" if path == str(tmp_path) else "archive")
        synchronise(descriptor)

    def note_unlink(path, missing_ok=False):
        if path.suffix == ".json":
            steps.append(path.name)
        unlink(path, missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", note_fsync)
        patched.setattr(type(tmp_path), "unlink", note_unlink)
        files.archive(tmp_path)
    assert steps == ["archive", "folder", "0.json", "1.json", "2.json"]


@pytest.mark.parametrize(("number", "is_archived"), [(errno.EINVAL, True), (errno.EIO, False)])
def test_single_records_stay_if_the_name_of_the_archive_cannot_be_written(
    tmp_path, monkeypatch, records, number, is_archived
):
    """Some file systems cannot do it for folders (EINVAL)."""
    write_singles(tmp_path, records)
    synchronise = os.fsync

    def fail_for_folders(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(number, os.strerror(number))
        synchronise(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail_for_folders)
        expected = nullcontext() if is_archived else pytest.raises(RecordError, match="stay")
        with expected:
            files.archive(tmp_path)
    assert names_in(tmp_path) == (
        [ARCHIVE] if is_archived else ["0.json", "1.json", "2.json", ARCHIVE]
    )
    assert files.load_all([tmp_path]) == records


def test_a_suite_of_several_tables_is_one_archive(tmp_path):
    records = make_mixed_records()
    for record in records:
        record.suite = "campaign"
    assert archive.main([str(write_singles(tmp_path, records))]) == 0
    assert names_in(tmp_path) == [ARCHIVE]


def test_files_that_are_no_records_stay_with_the_records_beside_them(tmp_path, records, capsys):
    profiles = write_singles(tmp_path / "profiles", records)
    (profiles / "profile.json").write_text('{"program": "train.py"}')
    write_singles(tmp_path / "table", records)
    assert archive.main([str(tmp_path)]) == 0
    stays, archived = capsys.readouterr().out.splitlines()
    assert stays.startswith(
        f"{profiles} stays as it is: not all of its files are sound records: "
        f"{profiles / 'profile.json'} cannot be read"
    )
    assert stays.endswith(")")  # the user need not leave it out
    assert archived == f"{tmp_path / 'table' / ARCHIVE}: 3 records"
    assert names_in(profiles) == ["0.json", "1.json", "2.json", "profile.json"]


def test_single_records_of_scripts_and_configurations_are_not_joined(
    tmp_path, records, monkeypatch, capsys
):
    """They are in the folder results, beside folders of suites."""
    monkeypatch.setattr(archive, "RESULTS", tmp_path)
    write_singles(tmp_path, records)
    write_singles(tmp_path / "run-1", records)
    assert archive.main([str(tmp_path)]) == 0
    first, _ = capsys.readouterr().out.splitlines()
    assert first == (
        f"{tmp_path} stays as it is: each of its records is a measurement of its own: move those of one table "
        "into a folder"
    )
    assert names_in(tmp_path) == ["0.json", "1.json", "2.json", "run-1"]
    assert names_in(tmp_path / "run-1") == [ARCHIVE]


def test_published_records_are_in_archives_as_they_are_made_here(tmp_path):
    """Archives of other settings would be new files for git when somebody makes them again."""
    results = ROOT / "results"
    archives = []
    for name in ("campaigns", "published", "evidence/agreement"):
        archives += record_files.find_files(results / name)
    assert {path.name for path in archives} == {ARCHIVE}
    for path in archives:
        text = gzip.decompress(path.read_bytes())
        for place, line in enumerate(text.splitlines()):
            (tmp_path / f"{place:03}.json").write_bytes(line)
        again = files.archive(tmp_path)
        content = again.read_bytes()
        assert gzip.decompress(content) == text, path
        assert content[:10] == path.read_bytes()[:10]  # the header: the rest depends on zlib
        again.unlink()


def test_an_error_of_the_disk_at_the_end_of_writing_keeps_what_was_there(
    tmp_path, monkeypatch, records
):
    """Some file systems say only then that they are full."""
    write_singles(tmp_path, records)
    before = names_in(tmp_path)
    with monkeypatch.context() as patched:
        full = OSError(errno.ENOSPC, "No space left on device")
        patched.setattr("common.record.os.fsync", Mock(side_effect=full))
        with pytest.raises(RecordError, match="No space left on device"):
            files.archive(tmp_path)
    assert names_in(tmp_path) == before
