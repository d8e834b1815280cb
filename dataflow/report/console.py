"""Print tables, and what is shown before and after a run. No charts: this module imports no matplotlib."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from dataflow.analysis.result import Result
from dataflow.analysis.warnings import timed_seconds, warnings
from dataflow.flows.flow import Flow
from dataflow.records.schema import Record
from dataflow.report import tables
from dataflow.report.tables import Column, Section, TextTable, format_milliseconds, format_significant
from dataflow.units import format_bytes

MAX_SHOWN_EDGES = 20  # of a flow


def render(table: TextTable, width: int | None = None) -> str:
    """Return the table as text. If it is wider than `width` characters, columns of a high rank are left out."""
    columns = [[header, *cells] for header, *cells in zip(table.headers, *table.cells, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    ranks = table.ranks or [0] * len(columns)
    shown = list(range(len(columns)))
    while width and sum(widths[i] + 2 for i in shown) - 2 > width and any(ranks[i] for i in shown):
        shown.remove(max(shown, key=lambda i: ranks[i]))
    lines = []
    for row in zip(*columns, strict=True):
        cells = [row[i].ljust(widths[i]) if i in table.text_columns else row[i].rjust(widths[i]) for i in shown]
        lines.append("  ".join(cells).rstrip())
    left_out = [header for i, header in enumerate(table.headers) if i not in shown]
    if left_out:
        lines.append(f"(not shown, because the terminal is too narrow: {', '.join(left_out)})")
    return "\n".join(lines)


def print_table(table: TextTable, width: int | None = None) -> None:
    """Print a table at most as wide as the terminal, or as `width` characters."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    print(render(table, width))


def print_sections(built: Sequence[Section]) -> None:
    """Print the sections that have a table."""
    for section in built:
        if section.table:
            print(f"{section.title}. {section.sentence.replace('`', '')}".rstrip())
            print_table(section.table)
            print(*section.notes, "", sep="\n")


def print_flow(flow: Flow) -> None:
    print(f"{flow.title}: {format_bytes(flow.bytes_per_iteration)} per iteration")
    for edge in flow.edges[:MAX_SHOWN_EDGES]:
        print(f"  {edge!s:24} {format_bytes(edge.bytes):>10}")
    if len(flow.edges) > MAX_SHOWN_EDGES:
        print(f"  and {len(flow.edges) - MAX_SHOWN_EDGES} more messages")
    sys.stdout.flush()


def print_end(records: Sequence[Record], path: Path, width: int | None = None) -> None:
    """Print the table of one record, or of a sweep's, what limits the trust in it, and the time of each run."""
    results = [Result((record,)) for record in records]
    if results[0].memcpy_seconds:
        print(f"memcpy: {format_milliseconds(results[0].memcpy_seconds)} ms, one warm copy per edge")
    columns = list(tables.MAIN_COLUMNS)
    if len(results) > 1:
        swept = tables.swept_point(results[0])[0]
        columns.insert(1, Column(swept, lambda result: f"{tables.swept_point(result)[1]:,}"))
    print_table(tables.make_table(results, columns), width)
    for result in results:
        for warning in warnings(result):
            print(f"warning: {warning}")
        for run in result.runs:
            if run.status != "ok":
                print(f"error: {run.reason}", file=sys.stderr, flush=True)
    print(f"records: {path}")
    for result in results:
        for index, run in enumerate(result.runs, 1):
            details = [f"{swept} {tables.swept_point(result)[1]:,}"] if len(results) > 1 else []
            if len(result.runs) > 1:
                details.append(f"run {index} of {len(result.runs)}")
            if run.status != "ok":
                details.append(run.status)
            where = f" ({', '.join(details)})" if details else ""
            print(f"Execution time: {format_significant(timed_seconds(run))} seconds{where}")
