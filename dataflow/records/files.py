# SPDX-License-Identifier: Apache-2.0
"""Read and write records as files. A file is replaced in one step, and a new record never overwrites another file.

A folder has single records, or an archive (records.jsonl.gz) with one record per line. If both have the same record, a
process was killed while it made the archive or took it apart, and the record counts once.
"""

import errno
import gzip
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from common import record_files
from common.record import replace, save
from common.record_files import ARCHIVE, SINGLE_RECORDS, is_archive
from dataflow.errors import RecordError
from dataflow.records.schema import Record

# Both read a path, and raise RecordError if it cannot be read.
load = partial(record_files.load, kind=Record)  # a single record
load_file = partial(record_files.load_file, kind=Record)  # the records of a file


def create(path: Path, record: Record) -> None:
    """Write a record to a new file; raise RecordError if it exists or cannot be written."""
    if os.path.isfile(path):
        raise RecordError(
            f"{path} exists: give another name, or move it away. To continue an earlier call, give --continue"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"cannot write {path} ({error.strerror}): give another name") from None
    save(path, record)


@dataclass(frozen=True, eq=False)
class Found:
    """A record and its file."""

    record: Record
    path: Path

    def __str__(self) -> str:
        """Return how texts cite the record: results/run-1/records.jsonl.gz: graph shm."""
        if is_archive(self.path):
            return f"{self.path}: {self.record.configuration.name}"
        return str(self.path)


def load_all(paths: Iterable[Path]) -> list[Record]:
    """Return the records in these files, and below these folders by name: single ones and archives.

    Other JSON files below the folders are passed over. Raise RecordError for a path without records, and if two records
    have the same run, for example copies.
    """
    by_file: dict[Path, list[Record]] = {}
    for path in paths:
        by_file |= load_path(path)
    found: list[Found] = []
    for file, records in by_file.items():
        found += [Found(record, file) for record in records]
    counted = leave_copies_out(found)
    check_runs(counted)
    return [one.record for one in counted]


def load_path(path: Path) -> dict[Path, list[Record]]:
    """Return the records of a file, or of each file below a folder, by file; raise RecordError if there are none."""
    if not path.exists():
        raise RecordError(f"{path} does not exist: name records or folders of records")
    by_file = record_files.load_each(path, Record)
    if not by_file:
        raise RecordError(f"{path} has no records (*.json, {ARCHIVE}): name a folder of records")
    return by_file


def leave_copies_out(found: Sequence[Found]) -> list[Found]:
    """Return the records without single ones that the archive in their folder has, too."""
    archived: dict[Path, list[Record]] = {}
    for one in found:
        if is_archive(one.path):
            archived.setdefault(one.path.parent, []).append(one.record)
    counted = []
    for one in found:
        is_copy = not is_archive(one.path) and one.record in archived.get(one.path.parent, ())
        if not is_copy:
            counted.append(one)
    return counted


def check_runs(found: Iterable[Found]) -> None:
    """Raise RecordError if two records have the same run. Skipped runs have nothing that tells them apart."""
    seen: dict[tuple[Any, ...], Found] = {}
    for one in found:
        record = one.record
        measurement = (record.table, record.workload, record.configuration)
        for run in record.runs:
            if run.status == "skipped":
                continue
            key = (*measurement, run.started_at, run.order, *run.seconds)
            first = seen.setdefault(key, one)
            if first is not one:
                raise RecordError(f"{one} has a run that {first} has too: leave one of them out")


def is_same_measurement(one: Record, other: Record) -> bool:
    """Return whether calls with the same flags made these records: only their runs and machines can differ."""
    return without_runs(one) == without_runs(other)


def without_runs(record: Record) -> Record:
    return structs.replace(record, environments={}, runs=[])


def list_singles(folder: Path) -> list[Path]:
    """Return the single records of a folder, not those below it, by name."""
    found: list[Path] = []
    for pattern in SINGLE_RECORDS:
        found += folder.glob(pattern)
    return sorted(found)


def load_folder(folder: Path) -> list[Record]:
    """Return the records of a folder, not those below it; raise RecordError as load_all."""
    archive_path = folder / ARCHIVE
    archives = [archive_path] if archive_path.exists() else []
    return load_all([*archives, *list_singles(folder)])


def archive(folder: Path) -> Path:
    """Join the single records of a folder, not those below it, in its archive, and remove them. Return the archive.

    A line is the text of a record without spaces and line breaks, so no number changes. The lines are in the order of
    the names, after those that the archive had already. Raise RecordError if a record cannot be read, if two have the
    same run, or if the archive cannot be written; the single records stay then. No loss of power loses a record.
    """
    path = folder / ARCHIVE
    lines: list[bytes] = []
    archived: list[Record] = []
    if path.exists():
        lines = record_files.read_lines(path)
        archived = load_file(path)
    found = [Found(record, path) for record in archived]
    singles = list_singles(folder)
    for single in singles:
        record = load(single)
        if record not in archived:
            found.append(Found(record, single))
            lines.append(msgspec.json.format(record_files.read_text(single), indent=-1))
    check_runs(found)
    replace(path, compress(lines))
    write_names(folder)
    for single in singles:
        single.unlink()
    return path


def write_names(folder: Path) -> None:
    """Write the names of the files in a folder to the disk; raise RecordError if that fails."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # which a file system says that cannot do it for folders
            raise RecordError(
                f"cannot write {folder} ({error.strerror}): its single records stay"
            ) from None
    finally:
        os.close(descriptor)


def compress(lines: Iterable[bytes]) -> bytes:
    """Return the bytes of an archive. They have no time and no file name, so equal lines give equal bytes."""
    content = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=content, mtime=0) as file:
        for line in lines:
            file.write(line + b"\n")
    return content.getvalue()
