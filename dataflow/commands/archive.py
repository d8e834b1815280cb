"""Join the single records of a folder in one small file, records.jsonl.gz, and remove them.

    python3 -m dataflow archive results/run-1        this folder, and each folder below it that has records

Every verb reads such an archive as it reads single records. A line is the JSON of one record: zcat shows them. Equal
records give an equal file. `run --suite` makes its archive itself when it has measured everything.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from common.record import only_measurement
from dataflow.errors import UsageError
from dataflow.plan.command_line import VerbParser
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


def main(argv: Sequence[str]) -> int:
    """Archive the records of each folder, and return 0; raise UsageError for one without single records."""
    arguments = parse_command(argv)
    for top in arguments.folders:
        if not find_folders(top):
            raise UsageError(f"{top} has no single records (*.json): name a folder that has some")
    with only_measurement():  # which may write into one of them
        for top in arguments.folders:
            for folder in find_folders(top):
                count = len(files.list_singles(folder))
                path = files.archive(folder)
                print(f"{path}: {count} {'record' if count == 1 else 'records'}")
    return 0
