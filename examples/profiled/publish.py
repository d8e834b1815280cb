"""Write the records of raymeter between their marks in docs/profile.md:  python3 -m examples.profiled.publish

Records are in results/evidence/raymeter: what `make cases`, `make profile-examples` and `make profile-versions` wrote.
A record that does not exist leaves its part of the page as it is.
"""

import json
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from dataflow.report.render import rewrite_pages
from dataflow.report.tables import Column, Section, TextTable, make_table

ROOT = Path(__file__).parents[2]
RECORDS = Path("results") / "evidence" / "raymeter"
Row = tuple[str, ...]


def load(folder: Path, name: str) -> Any:
    """Return a record; None if it does not exist."""
    path = folder / RECORDS / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def to_table(headers: Row, rows: Sequence[Row]) -> TextTable:
    """Return a table of texts."""
    columns = []
    for index, header in enumerate(headers):
        columns.append(Column(header, itemgetter(index), is_text=True))
    return make_table(rows, columns)


def make_sections(folder: Path) -> Iterator[Section]:
    """Yield the parts of the page for which there are records."""
    example = folder / RECORDS / "example.txt"
    if example.exists():
        yield Section("raymeter-example", "", f"```\n{example.read_text(encoding='utf-8')}```")
    scores = load(folder, "scoreboard.json")
    if scores:
        yield describe_cases(scores)
    versions = load(folder, "versions.json")
    if versions:
        yield describe_versions(versions)


def describe_cases(scores: dict[str, Any]) -> Section:
    """Return the counts of the scoreboard, and a line per program."""
    rows = [describe_case(case) for case in scores["cases"]]
    headers = (
        "program",
        "ms per step",
        "with its fix",
        "saved",
        "predicted",
        "what raymeter says first",
    )
    sentence = ", ".join(scores["summary"])
    skipped = scores["skipped"]
    if skipped:
        sentence += f". Not run, because packages were missing: {', '.join(skipped)}"
    return Section(
        "raymeter-cases", "", f"In one run of each: {sentence}.", to_table(headers, rows)
    )


def describe_case(case: dict[str, Any]) -> Row:
    fixed = "-" if case["is_control"] else format_ms(case["fixed_ms"])
    saved = "-" if case["is_control"] else format_ms(case["saved_ms"])
    predicted = "-" if case["predicted_ms"] is None else format_ms(case["predicted_ms"])
    return (
        case["name"],
        format_ms(case["before_ms"]),
        fixed,
        saved,
        predicted,
        describe_verdict(case),
    )


def describe_verdict(case: dict[str, Any]) -> str:
    """Return what was said first, and what of it was wrong."""
    wrong = []
    if case["is_control"]:
        if not case["is_silent"]:
            wrong.append("should be silent")
    elif not case["is_cause_first"]:
        wrong.append("another cause")
    elif not case["is_line_right"]:
        wrong.append("another line")
    if case["harmful"]:
        wrong.append("harmful")
    if not case["is_exit_code_equal"]:
        wrong.append("another exit code")
    text = str(case["said"])
    return f"{text} (wrong: {', '.join(wrong)})" if wrong else text


def format_ms(milliseconds: float) -> str:
    return f"{milliseconds:,.0f}" if abs(milliseconds) >= 10 else f"{milliseconds:.1f}"


def describe_versions(versions: Sequence[dict[str, Any]]) -> Section:
    """Return what was found of a program with known messages with several versions of Ray."""
    rows = []
    for version in versions:
        missing = ", ".join(version["missing"]) or "-"
        rows.append((version["ray"], f"{version['found']} of {version['known']}", missing))
    headers = ("Ray", "known messages that were found", "functions that it does not have")
    return Section("raymeter-versions", "", table=to_table(headers, rows))


if __name__ == "__main__":
    rewrite_pages(ROOT, list(make_sections(ROOT)))
