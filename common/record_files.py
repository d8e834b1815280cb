# SPDX-License-Identifier: Apache-2.0
"""Read files of records: a single record in JSON, or an archive (records.jsonl.gz) that has a record in each line."""

import gzip
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from common import RecordError
from common.record import ScriptRecord

ARCHIVE = "records.jsonl.gz"
SINGLE_RECORDS = ("*.json", "*.json.gz")
# Every record has them, of any version.
RECORD_KEYS = {"schema_version", "workload", "configuration", "runs"}


class NoRecord(RecordError):
    """A file that is something else than a record, such as a profile: it has nothing that records have."""


def is_archive(path: Path) -> bool:
    """Return whether a file has several records: an archive, or one that somebody has decompressed."""
    return path.name.endswith((".jsonl", ".jsonl.gz"))


def load(path: Path, kind: Any = ScriptRecord) -> Any:
    """Return a single record, which may be compressed (.gz); raise RecordError if it cannot be read."""
    return decode(read_text(path), str(path), kind)


def load_file(path: Path, kind: Any = ScriptRecord) -> list[Any]:
    """Return the records of a file in their order; raise RecordError if one of them cannot be read."""
    if not is_archive(path):
        return [load(path, kind)]
    records = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            record = decode(line, f"line {number} of {path}", kind)
        except NoRecord as error:  # an archive has nothing else than records, so it is damaged
            raise RecordError(str(error)) from None
        records.append(record)
    return records


def load_each(path: Path, kind: Any = ScriptRecord) -> dict[Path, list[Any]]:
    """Return the records of a file, or of each file below a folder, by file.

    Files below a folder that are no records are passed over: other JSON texts, such as some in results/evidence, and
    the empty file of a script that still runs.
    Raise RecordError if a record cannot be read, or if the file itself is none.
    """
    if not path.is_dir():
        return {path: load_file(path, kind)}
    records = {}
    for file in find_files(path):
        with suppress(NoRecord):
            records[file] = load_file(file, kind)
    return records


def read_lines(path: Path) -> list[bytes]:
    """Return the lines of an archive, each the JSON text of a record; raise RecordError if some can be missing."""
    text = read_text(path)
    if not text.endswith(b"\n"):
        raise RecordError(f"{path} ends in the middle of a record: leave it out")
    return text[:-1].split(b"\n")


def read_text(path: Path) -> bytes:
    """Return what a file contains, decompressed; raise RecordError if it cannot be read."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except Exception as error:  # gzip raises several kinds for a damaged file
        raise unreadable(str(path), error) from None


def decode(text: bytes, place: str, kind: Any) -> Any:
    """Return the record that this JSON text is.

    Raise RecordError, which names the place of the text, if it is none, or if an ok run in it has no times.
    """
    try:
        record = msgspec.json.decode(text, type=kind)
    except Exception as error:  # msgspec raises several kinds, too
        kind_of_error = RecordError if could_be_record(text) else NoRecord
        raise unreadable(place, error, kind_of_error) from None
    if any(run.status == "ok" and not run.seconds for run in record.runs):
        raise RecordError(
            f"{place} has an ok run without times, so something has changed it: leave it out"
        )
    return record


def could_be_record(text: bytes) -> bool:
    """Return whether this may be a record that is damaged or of another version. A text that is no JSON may be one.

    The empty file of a script that still runs is none yet.
    """
    if not text:
        return False
    try:
        value = msgspec.json.decode(text)
    except Exception:  # as above
        return True
    return isinstance(value, dict) and not RECORD_KEYS.isdisjoint(value)


def unreadable(
    place: str, error: Exception, kind_of_error: type[RecordError] = RecordError
) -> RecordError:
    """Return the error for a text that is no record. It has one line, also if it quotes the text."""
    reason = " ".join(str(error).split())
    return kind_of_error(f"{place} cannot be read as a record ({reason[:120]}): leave it out")


def find_files(folder: Path) -> list[Path]:
    """Return the single records and the archives below a folder, by name."""
    found: list[Path] = []
    for pattern in (*SINGLE_RECORDS, ARCHIVE):
        found += folder.rglob(pattern)
    return sorted(found)


def find_newest(results: Path) -> list[Path]:
    """Return the newest folder run-* with records, or all single records if one of them is newer; [] without any.

    Files that are no record are passed over: a profile, or the empty file of a script that still runs.
    """
    singles = sorted(path for path in results.glob("*.json") if is_readable(path))
    in_folders: list[Path] = []
    for folder in results.glob("run-*"):
        in_folders += find_files(folder)
    # The time of a folder says less: charts are added to it later.
    in_folders.sort(key=modified_at, reverse=True)
    newest = next(filter(counts_as_newest, in_folders), None)
    if newest is None or any(modified_at(path) > modified_at(newest) for path in singles):
        return singles
    return [results / newest.relative_to(results).parts[0]]


def counts_as_newest(path: Path) -> bool:
    """Return whether this file makes its folder the newest. A damaged archive does: reading it names the damage."""
    return path.name == ARCHIVE or is_readable(path)


def modified_at(path: Path) -> float:
    return path.stat().st_mtime


def is_readable(path: Path) -> bool:
    """Return whether all records of this file can be read, and are of this version."""
    try:
        load_file(path)
    except RecordError:
        return False
    return True
