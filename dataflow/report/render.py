# SPDX-License-Identifier: Apache-2.0
"""Show sections as text, as Markdown between the marks of README.md and docs/, and as HTML. Import no matplotlib."""

import html
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from dataflow.analysis.result import Result
from dataflow.analysis.warnings import warnings
from dataflow.errors import RecordError
from dataflow.flows.flow import Flow
from dataflow.records.schema import Record
from dataflow.report.tables import MAIN_COLUMNS, Section, TextTable, format_significant, make_table
from dataflow.report.text_table import MAX_COLUMNS, choose_columns, to_text, wrap
from dataflow.units import format_bytes

MARK = re.compile(r"<!-- (?:end of )?([\w-]+)(?:: written by make publish)? -->")
CHART = re.compile(r"!\[[^\]]*\]\([^)]*?([\w-]+\.svg)\)")  # on a page
MAX_SHOWN_EDGES = 20  # of a flow
MAX_PAGE_COLUMNS = 8  # report.html has all
ALL_COLUMNS = 1000  # as many as the terminal is wide
MORE_COLUMNS = 1001  # all of them
REPORT_COMMAND = "`.venv/bin/python -m dataflow report results/published --html`"


def print_table(table: TextTable, count: int = ALL_COLUMNS) -> None:
    """Print a table at most as wide as the terminal, or wider with MORE_COLUMNS (--columns all)."""
    width = terminal_width()
    if count == MORE_COLUMNS:
        width = None
    print(to_text(table, width, count))


def terminal_width() -> int | None:
    """Return the width of the terminal (COLUMNS, if it is set); None if the output is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_sections(built: Sequence[Section], count: int = MAX_COLUMNS) -> None:
    """Print the sections that have a table. A note of several sections is printed once, with the last of them."""
    last_section: dict[str, Section] = {}  # of each note
    for section in built:
        if section.table:
            last_section |= dict.fromkeys(section.notes, section)
    for section in built:
        if section.table is None:
            continue
        sentence = section.sentence.replace("`", "")
        print_text(f"{section.title}. {sentence}")
        print_table(section.table, count)
        for note in section.notes:
            if last_section[note] is section:
                print_text(note)
        print()


def print_text(*lines: str) -> None:
    """Print lines that are broken between words if a terminal is too narrow for them."""
    width = terminal_width()
    for line in lines:
        print(wrap(line, width) if width else line.rstrip())


def print_flow(flow: Flow) -> None:
    """Print the messages of a flow with their sizes, at most MAX_SHOWN_EDGES of them."""
    print(f"{flow.title}: {format_bytes(flow.bytes_per_iteration)} per iteration")
    for edge in flow.edges[:MAX_SHOWN_EDGES]:
        print(f"  {edge!s:24} {format_bytes(edge.bytes):>10}")
    if len(flow.edges) > MAX_SHOWN_EDGES:
        print(f"  and {len(flow.edges) - MAX_SHOWN_EDGES} more messages")
    sys.stdout.flush()


def print_end(record: Record, path: Path, count: int) -> None:
    """Print the table of one record, what limits the trust in it, and the time of each run."""
    result = Result((record,))
    print_table(make_table([result], MAIN_COLUMNS), count)
    for warning in warnings(result):
        print_text(f"warning: {warning}")
    for run in result.runs:
        if run.status != "ok":
            print(f"error: {run.reason}", file=sys.stderr, flush=True)
    print(f"records: {path}")
    if any(run.seconds for run in result.runs):
        print("The demo's last line, with the sum of the timed iterations:")
    for run in result.runs:
        # Of groups: from the first query to the last result.
        timed_seconds = sum(run.group_seconds or run.seconds)
        print(f"Execution time: {format_significant(timed_seconds, 3)} seconds")


def to_markdown(built: Sequence[Section]) -> str:
    """Return the sections without their charts, whose files the pages show."""
    parts = []
    for section in built:
        title = f"**{section.title}.** " if section.title else ""
        sentence = section.sentence
        if section.page_sentence is not None:
            sentence = section.page_sentence
        table = to_markdown_table(section.table) if section.table else ""
        parts += [(title + sentence).strip(), table, "  \n".join(section.notes)]
    return "\n\n".join(filter(None, parts))


def escape_bars(row: Sequence[str]) -> list[str]:
    """Return cells that Markdown does not take for two."""
    return [cell.replace("|", "\\|") for cell in row]


def to_markdown_table(table: TextTable) -> str:
    """Return the columns of the lowest ranks, and the rows for pages."""
    chosen = choose_columns(table, MAX_PAGE_COLUMNS)
    rule = ["---" if column.is_text else "---:" for column in table.columns]
    shown = table.cells
    if table.page_rows is not None:
        shown = [table.cells[position] for position in table.page_rows]
    rows = [list(table.headers), rule]
    rows += [escape_bars(row) for row in shown]
    lines = []
    for row in rows:
        cells = [row[position] for position in chosen]
        text = " | ".join(cells)
        lines.append(f"| {text} |")
    left_out = len(table.cells) - len(shown)
    if left_out:
        lines.append(f"\nRows that are not shown: {left_out} ({REPORT_COMMAND}).")
    return "\n".join(lines)


def pages_of(folder: Path) -> list[Path]:
    """Return README.md and the pages of docs/ in a folder."""
    return [*folder.glob("README.md"), *sorted(folder.glob("docs/**/*.md"))]


def charts_on_pages(folder: Path) -> set[str]:
    """Return the names of the charts that the pages of a folder show."""
    shown: set[str] = set()
    for page in pages_of(folder):
        shown |= set(CHART.findall(page.read_text(encoding="utf-8")))
    return shown


def rewrite_pages(folder: Path, built: Sequence[Section]) -> None:
    """Put the sections between the marks of their name, in README.md and docs/ of a folder. Others stay as they are."""
    texts = {}
    for section in built:
        of_equal_name = [other for other in built if other.name == section.name]
        texts[section.name] = to_markdown(of_equal_name)
    for page in pages_of(folder):
        text = page.read_text(encoding="utf-8")
        for name in set(MARK.findall(text)):
            text = replace_part(page, text, name, texts.get(name))
        page.write_text(text, encoding="utf-8")


def replace_part(page: Path, text: str, name: str, new: str | None) -> str:
    """Return the text of a page with a new part between the marks of this name; None keeps the old one.

    Raise RecordError if a mark is missing, or is there twice.
    """
    begin = f"<!-- {name}: written by make publish -->"
    end = f"<!-- end of {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise RecordError(f"{page}: write each of these marks once: {begin} and {end}")
    if new is None:
        return text
    before = text.partition(begin)[0]
    after = text.partition(end)[2]
    return f"{before}{begin}\n{new}\n{end}{after}"


def to_html(built: Sequence[Section]) -> str:
    """Return a page that loads nothing else. page.js makes its tables sortable and filterable."""
    from jinja2 import Environment, FileSystemLoader  # imports take time, and only --html needs it

    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["code"] = mark_code
    return environment.get_template("page.html").render(sections=built)


def mark_code(text: str) -> str:
    """Return text as HTML; text in backquotes is code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))
