# SPDX-License-Identifier: Apache-2.0
"""Join the single records of a folder in one small file, records.jsonl.gz, and remove them.

    python3 -m dataflow archive results/run-1        this folder, and each folder below it that has records

An archive has the records of one suite or of one table. Other folders stay as they are, and a line says why. Every verb
reads an archive as it reads single records. A line is the JSON of one record: zcat shows them. Equal records give an
equal file. `run --suite` makes its archive itself when it has measured everything.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from common.record import only_measurement
from dataflow.errors import RecordError, UsageError
from dataflow.plan.command_line import VerbParser
from dataflow.plan.options import RESULTS
from dataflow.records import files


def parse_command(argv: Sequence[str]) -> argparse.Namespace:
    """Return the folders."""
    parser = VerbParser(__doc__, "python3 -m dataflow archive FOLDER ...")
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="FOLDER", help="a folder of single records"
    )
    return parser.parse_all(argv)


def find_folders(top: Path) -> list[Path]:
    """Return this folder and those below it, as far as they have single records."""
    folders = [top, *sorted(path for path in top.rglob("*") if path.is_dir())]
    return [folder for folder in folders if files.list_singles(folder)]


def find_obstacle(folder: Path) -> str:
    """Return why the records of a folder do not belong into one archive; "" if they do."""
    if folder.resolve() == RESULTS.resolve():
        return (
            "each of its records is a measurement of its own: move those of one table into a folder"
        )
    try:
        records = files.load_folder(folder)
    except RecordError as error:
        reason = str(error).removesuffix(": leave it out")  # that is for verbs that name records
        return f"not all of its files are sound records: {reason}"
    suites = {record.suite for record in records}
    tables = {record.table for record in records}
    is_one_suite = len(suites) == 1 and suites != {""}
    if is_one_suite or len(tables) == 1:
        return ""
    return f"it has records of the tables {', '.join(sorted(tables))}: give each table a folder"


def main(argv: Sequence[str]) -> int:
    """Archive the records of each folder, and return 0; raise UsageError for one in which nothing can be archived.

    It waits until other measurements on this machine have ended. Raise RecordError if an archive cannot be written.
    """
    arguments = parse_command(argv)
    folders: list[Path] = []
    for top in arguments.folders:
        folders += choose_folders(top)
    with only_measurement():  # which may write into one of them
        for folder in dict.fromkeys(folders):
            count = len(files.list_singles(folder))
            if not count:  # the measurement has archived them itself
                continue
            obstacle = find_obstacle(folder)  # the measurement may have added other records
            if obstacle:
                print(f"{folder} stays as it is: {obstacle}")
                continue
            path = files.archive(folder)
            print(f"{path}: {count} {'record' if count == 1 else 'records'}")
    return 0


def choose_folders(top: Path) -> list[Path]:
    """Return this folder and those below it, as far as their records belong into an archive; print why others stay.

    Raise UsageError if there are none.
    """
    if not top.exists():
        raise UsageError(f"{top} does not exist: name a folder of single records")
    found = find_folders(top)
    if not found:
        raise UsageError(f"{top} has no single records (*.json): name a folder that has some")
    obstacles = {folder: find_obstacle(folder) for folder in found}
    chosen = [folder for folder in found if not obstacles[folder]]
    if not chosen:
        raise UsageError(f"{found[0]} cannot be archived: {obstacles[found[0]]}")
    for folder, obstacle in obstacles.items():
        if obstacle:
            print(f"{folder} stays as it is: {obstacle}")
    return chosen
