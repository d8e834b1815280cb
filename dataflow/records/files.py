"""Read and write records as files. A file is replaced in one step, and a new record never overwrites another file."""

import gzip
import os
import secrets
import sys
import tempfile
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from common.record import SCHEMA_VERSION, replace
from dataflow.errors import RecordError
from dataflow.records.schema import Record


def create_empty(path: Path) -> None:
    """Create an empty file and its folder; raise RecordError if the file exists or cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("x").close()
    except OSError as error:
        if os.path.isfile(path):
            raise RecordError(f"{path} exists: give another name, or move it away. To continue an earlier call, "
                              "give --continue") from None  # fmt: skip
        raise RecordError(f"cannot write {path} ({error.strerror}): give another name") from None


def create(path: Path, record: Record) -> None:
    """Write a record to a new file; raise RecordError if it exists or cannot be written."""
    create_empty(path)
    try:
        save(path, record)
    except BaseException:
        path.unlink()  # it is empty, and would be in the way of the next call
        raise


def save(path: Path, record: Record) -> None:
    """Replace the record's file; raise RecordError if it cannot be written."""
    replace(path, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")


def save_somewhere(path: Path, record: Record) -> Path:
    """Save the record, or, if its file cannot be written, a new file beside it or in the temporary folder, and say so.

    Return the path of the file; raise RecordError if it can be written nowhere.
    """
    try:
        save(path, record)
        return path
    except RecordError as error:
        problem = error
    for folder in (path.parent, Path(tempfile.gettempdir())):
        saved = folder / f"{path.stem[:200]}-{secrets.token_hex(4)}.json"
        with suppress(RecordError):
            create(saved, record)
            with suppress(OSError):  # it has fewer runs, and would be counted as another record
                path.unlink()
            print(f"error: {problem}. The record is now {saved}: move it back before --continue", file=sys.stderr)
            return saved
    raise problem


def record_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files, and the records below each folder by name (*.json, *.json.gz); raise RecordError for none."""
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise RecordError(f"{path} does not exist: name records or folders of records")
        below = sorted([*path.rglob("*.json"), *path.rglob("*.json.gz")]) if path.is_dir() else [path]
        if not below:
            raise RecordError(f"{path} has no records (*.json): name a folder of records")
        files += below
    return files


def load_all(paths: Iterable[Path]) -> list[Record]:
    """Return the records in these files and folders. A run that another file has too counts once, with a warning."""
    records: list[Record] = []
    first_files: dict[tuple[Any, ...], tuple[int, Path]] = {}
    repeated: list[str] = []
    for file in enumerate(record_files(paths)):
        record, kept = load(file[1]), []
        for run in record.runs:
            key = (record.table, record.workload, record.configuration, run.started_at, run.order, *run.seconds)
            first = first_files.setdefault(key, file)
            if first == file or run.status == "skipped":
                kept.append(run)
            else:
                repeated.append(f"{file[1]}, which are also in {first[1]}")
        if kept or not record.runs:
            records.append(msgspec.structs.replace(record, runs=kept))
    if repeated:
        print(f"warning: {len(repeated)} runs are in two records and count once, such as those of {repeated[0]}",
              file=sys.stderr)  # fmt: skip
    return records


def load(path: Path) -> Record:
    """Return a record, which may be compressed (.gz); raise RecordError if it cannot be read."""
    try:
        data = path.read_bytes()
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        version = msgspec.json.decode(text, type=dict).get("schema_version")
        if version != SCHEMA_VERSION:
            raise RecordError(f"{path} has schema {version}, and this version reads schema {SCHEMA_VERSION}: measure "
                              "again, or use the version that wrote it")  # fmt: skip
        record = msgspec.json.decode(text, type=Record)
        if any(run.status == "ok" and not run.seconds for run in record.runs):
            raise RecordError(f"{path} has an ok run without times, so something has changed it: leave it out")
        return record
    except OSError as error:
        raise RecordError(f"cannot read {path} ({error.strerror or error}): name a record") from None
    except msgspec.ValidationError as error:
        raise RecordError(f"{path} is not a record of this suite ({str(error)[:120]}): leave it out") from None
    except (msgspec.DecodeError, UnicodeDecodeError, zlib.error, EOFError) as error:
        raise RecordError(f"{path} is not complete JSON ({error}): leave it out, or measure again") from None
