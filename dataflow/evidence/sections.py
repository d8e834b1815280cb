"""Show what was measured of the suite itself: wrong verdicts, settings of memory allocators, faults, hostile uses.

    python3 -m dataflow.evidence.sections results/evidence

The folder has records in alike/ and paired/, records of each setting in allocators/, faults.jsonl and hostile.jsonl.
What is missing is left out.
"""

import json
import sys
from pathlib import Path

from dataflow.analysis.comparison import Pair
from dataflow.analysis.result import Result, group_results
from dataflow.errors import RecordError
from dataflow.evidence.verdicts import verdict_section
from dataflow.records import files
from dataflow.report import markdown, tables
from dataflow.report.groups import provenance
from dataflow.report.sections import study_modules
from dataflow.report.tables import Column, Section, make_table

FAULT_COLUMNS = (
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
    return Section(path.stem, "", table=make_table(sorted(rows, key=lambda row: row["name"]), FAULT_COLUMNS))


def allocator_section(folder: Path) -> Section:
    """Return a table of settings, each with its folder of records, compared with the fastest of its configuration."""
    settings: dict[Result, str] = {}
    for path in sorted(folder.iterdir()):
        settings |= {result: path.name for result in group_results(files.load_all([path])) if result.status == "ok"}
    fastest: dict[str, Result] = {}
    for result in sorted(settings, key=lambda result: -result.typical_seconds):
        fastest[result.name] = result

    def compare(result: Result) -> str:
        best = fastest[result.name]
        return "fastest" if result is best else Pair(best, result).ratio.verdict

    columns = [
        Column("configuration", lambda result: result.name),
        Column("setting", lambda result: settings[result], is_text=True),
        Column("ms per iteration", tables.format_typical),
        Column("95 % interval", tables.format_interval),
        Column("compared with the fastest", compare, is_text=True),
        Column("page faults per iteration", tables.format_faults),
        Column("peak GiB", lambda result: f"{result.peak_memory_bytes / 2**30:.1f}"),
    ]
    rows = sorted(settings, key=lambda result: (result.name, result.typical_seconds))
    return Section("allocators", "", table=make_table(rows, columns), notes=provenance(rows))


def evidence_sections(folder: Path) -> list[Section]:
    """Return a section for each part of the folder that is there, those of studies included."""
    records = [path for path in (folder / "alike", folder / "paired") if path.is_dir()]
    built = [verdict_section(records)] if records else []
    if (folder / "allocators").is_dir():
        built.append(allocator_section(folder / "allocators"))
    built += [fault_section(path) for path in (folder / "faults.jsonl", folder / "hostile.jsonl") if path.exists()]
    for module in study_modules():
        built += module.evidence_sections(folder) if hasattr(module, "evidence_sections") else []
    return built


if __name__ == "__main__":
    for section in evidence_sections(Path(sys.argv[1])):
        print(markdown.render([section]))
