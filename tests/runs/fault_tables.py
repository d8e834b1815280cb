"""Store what came of faults and hostile uses with `make faults`, and write their tables into docs/failures.md."""

import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from dataflow.report.render import rewrite_pages
from dataflow.report.tables import Column, Section, make_table

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = (
    Column("case", lambda row: row["name"], is_text=True),
    Column("configuration or command", lambda row: row["configuration"], is_text=True),
    Column("message", lambda row: f"`{row['message']}`", is_text=True),
    Column("exit code", lambda row: str(row["code"])),
    Column("seconds", lambda row: f"{row['seconds']:.0f}"),
    Column("left behind", lambda row: str(len(row["left"]))),
)


def store_result(table: str, name: str, command: str, message: str, code: int, seconds: float, left: Iterable) -> None:
    """Append a row to the file of a table below the folder in FAULT_RESULTS, without the folders of this machine."""
    if folder := os.environ.get("FAULT_RESULTS"):
        message = re.sub(rf"{ROOT}/|/tmp/[^ ]*/", "", message)
        row = {"name": name, "configuration": command, "message": message, "code": code,
               "seconds": round(seconds, 1), "left": [*map(str, left)]}  # fmt: skip
        with open(Path(folder) / f"{table}.jsonl", "a") as file:
            file.write(json.dumps(row) + "\n")


def write_tables(folder: Path) -> None:
    """Write a row per line of each file, which is a JSON object, between the marks with the name of the file."""
    built = []
    for path in sorted((ROOT / "results" / "evidence").glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        built.append(Section(path.stem, "", table=make_table(sorted(rows, key=lambda row: row["name"]), COLUMNS)))
    rewrite_pages(folder, built)


if __name__ == "__main__":
    write_tables(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
