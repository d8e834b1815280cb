"""Print the faults and hostile uses that `make faults` has provoked: two tables of docs/failures.md."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from dataflow.errors import RecordError, run_main
from dataflow.report.console import print_sections
from dataflow.report.tables import Column, Section, make_table

COLUMNS = (
    Column("case", lambda row: row["name"], is_text=True),
    Column("configuration or command", lambda row: row["configuration"], is_text=True),
    Column("message", lambda row: f"`{row['message']}`", is_text=True),
    Column("exit code", lambda row: str(row["code"])),
    Column("seconds", lambda row: f"{row['seconds']:.0f}"),
    Column("left behind", lambda row: str(len(row["left"]))),
)


def fault_section(path: Path) -> Section:
    """Return the table of all cases in a file with a JSON object per line. The section has the name of the file."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: {error}: make faults writes it") from None
    return Section(path.stem, "", table=make_table(sorted(rows, key=lambda row: row["name"]), COLUMNS))


def main(paths: Sequence[str]) -> int:
    print_sections([fault_section(Path(path)) for path in paths])
    return 0


if __name__ == "__main__":
    run_main(main, sys.argv[1:])
