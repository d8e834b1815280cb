"""Build the table of docs/failures.md from the faults that `make faults` has provoked."""

import json
from pathlib import Path

from common.errors import RecordError
from common.report.tables import Column, Section, make_table

COLUMNS = (
    Column("fault", lambda row: row["name"], is_text=True),
    Column("configuration", lambda row: row["configuration"], is_text=True),
    Column("message", lambda row: f"`{row['message']}`", is_text=True),
    Column("exit code", lambda row: str(row["code"])),
    Column("seconds", lambda row: f"{row['seconds']:.0f}"),
    Column("left behind", lambda row: str(len(row["left"]))),
)


def fault_section(path: Path) -> Section:
    """Return the table of all faults in a file with a JSON object per line."""
    try:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: {error}: make faults writes it") from None
    return Section("faults", "", table=make_table(sorted(rows, key=lambda row: row["name"]), COLUMNS))
