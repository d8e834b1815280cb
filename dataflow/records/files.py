"""Read and write records as files. A file is replaced in one step, and a new record never overwrites another file."""

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from common import record as common_record
from common.record import save
from dataflow.errors import RecordError
from dataflow.records.schema import Record

load = partial(common_record.load, kind=Record)  # of a path; raise RecordError if it cannot be read


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


def load_all(paths: Iterable[Path]) -> list[Record]:
    """Return the records in these files, and below these folders by name (*.json, *.json.gz).

    Raise RecordError for a path without records, and if two records have the same run, for example copies.
    """
    files: dict[Path, None] = {}
    for path in paths:
        if not path.exists():
            raise RecordError(f"{path} does not exist: name records or folders of records")
        below = (
            sorted([*path.rglob("*.json"), *path.rglob("*.json.gz")]) if path.is_dir() else [path]
        )
        if not below:
            raise RecordError(f"{path} has no records (*.json): name a folder of records")
        files |= dict.fromkeys(below)
    records = {path: load(path) for path in files}
    seen: dict[tuple[Any, ...], Path] = {}
    for path, record in records.items():
        for run in record.runs:
            key = (
                record.table,
                record.workload,
                record.configuration,
                run.started_at,
                run.order,
                *run.seconds,
            )
            if run.status != "skipped" and seen.setdefault(key, path) != path:
                raise RecordError(
                    f"{path} has a run that {seen[key]} has too: leave one of them out"
                )
    return [*records.values()]
