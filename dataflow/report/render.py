"""Show sections as text, as Markdown between the marks of README.md and docs/, and as HTML. Import no matplotlib."""

import html
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from dataflow.analysis.result import Result
from dataflow.analysis.warnings import warnings
from dataflow.errors import RecordError
from dataflow.flows.flow import Flow
from dataflow.records.schema import Record
from dataflow.report.tables import MAIN_COLUMNS, Section, TextTable, format_significant, make_table
from dataflow.units import format_bytes

MARK = re.compile(r"<!-- (?:end of )?([\w-]+)(?:: written by make publish)? -->")
MAX_SHOWN_EDGES = 20  # of a flow
MAX_COLUMNS, MAX_PAGE_COLUMNS = 7, 8  # in a terminal, and on the pages; report.html has all
ALL_COLUMNS, MORE_COLUMNS = 1000, 1001  # as many as the terminal is wide, and all of them
REPORT_COMMAND = "`.venv/bin/python -m dataflow report results/published --html`"
MIN_BAR, MAX_BAR, MAX_LINE = 10, 40, 1000  # characters


def choose_columns(table: TextTable, count: int) -> list[int]:
    """Return the positions of at most `count` columns, those of the lowest ranks."""
    by_rank = sorted(range(len(table.columns)), key=lambda position: table.columns[position].rank)
    return sorted(by_rank[:count])


def to_text(table: TextTable, width: int | None = None, count: int = MAX_COLUMNS) -> str:
    """Return the table as text with at most `count` columns. Those of a high rank are left out, also if it is too wide.

    If `width` leaves space beside a column of times, each row has a bar.
    """
    texts: dict[int, list[str]] = {}
    for position in choose_columns(table, count):
        column, cells = (
            table.columns[position],
            [table.headers[position], *(row[position] for row in table.cells)],
        )
        longest = max(map(len, cells))
        texts[position] = [
            cell.ljust(longest) if column.is_text else cell.rjust(longest) for cell in cells
        ]
    ranks = {position: table.columns[position].rank for position in texts}
    while (
        width
        and sum(len(cells[0]) + 2 for cells in texts.values()) - 2 > width
        and any(ranks[p] for p in texts)
    ):
        del texts[max(texts, key=lambda position: ranks[position])]
    space = (width or 0) - sum(len(cells[0]) + 2 for cells in texts.values())
    times = [position for position in texts if table.columns[position].is_time]
    if times and space >= MIN_BAR:
        values = [float(number) if (number := row[times[0]].replace(",", "")).replace(".", "").isdigit() else 0.0
                  for row in table.cells]  # fmt: skip
        scale = min(space, MAX_BAR) / max(*values, 1e-9)
        texts[len(table.columns)] = ["", *("#" * round(scale * value) for value in values)]
    lines = ["  ".join(row).rstrip() for row in zip(*texts.values(), strict=True)]
    if left_out := [
        column.header for position, column in enumerate(table.columns) if position not in texts
    ]:
        reason = (
            "--columns all also shows"
            if count == MAX_COLUMNS
            else "not shown, because the terminal is too narrow"
        )
        lines.append(textwrap.fill(f"({reason}: {', '.join(left_out)})", width or MAX_LINE))
    return "\n".join(lines)


def print_table(table: TextTable, count: int = ALL_COLUMNS) -> None:
    """Print a table at most as wide as the terminal, or wider with MORE_COLUMNS (--columns all)."""
    print(to_text(table, terminal_width() if count <= ALL_COLUMNS else None, count))


def terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_sections(built: Sequence[Section], count: int = MAX_COLUMNS) -> None:
    """Print the sections that have a table. A note of several sections is printed once, with the last of them."""
    with_table = [(section, section.table) for section in built if section.table]
    for position, (section, table) in enumerate(with_table, 1):
        print_text(f"{section.title}. {section.sentence.replace('`', '')}")
        print_table(table, count)
        later = {note for other, _ in with_table[position:] for note in other.notes}
        print_text(*(note for note in section.notes if note not in later), "")


def print_text(*lines: str) -> None:
    """Print lines that are broken between words if a terminal is too narrow for them."""
    width = terminal_width()
    for line in lines:
        print(textwrap.fill(line, width, break_on_hyphens=False) if width else line.rstrip())


def print_flow(flow: Flow) -> None:
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
        print(f"warning: {warning}")
    for run in result.runs:
        if run.status != "ok":
            print(f"error: {run.reason}", file=sys.stderr, flush=True)
    print(f"records: {path}")
    if any(run.seconds for run in result.runs):
        print("The demo's last line, with the sum of the timed iterations:")
    for run in result.runs:
        timed_seconds = sum(
            run.group_seconds or run.seconds
        )  # of groups: from the first query to the last result
        print(f"Execution time: {format_significant(timed_seconds, 3)} seconds")


def to_markdown(built: Sequence[Section]) -> str:
    """Return the sections without their charts, whose files the pages show."""
    parts = []
    for section in built:
        title = f"**{section.title}.** " if section.title else ""
        table = to_markdown_table(section.table) if section.table else ""
        parts += [(title + section.sentence).strip(), table, "  \n".join(section.notes)]
    return "\n\n".join(filter(None, parts))


def to_markdown_table(table: TextTable) -> str:
    """Return the columns of the lowest ranks, and the rows for pages."""
    chosen = choose_columns(table, MAX_PAGE_COLUMNS)
    rule = ["---" if column.is_text else "---:" for column in table.columns]
    rows = (
        table.cells
        if table.page_rows is None
        else [table.cells[position] for position in table.page_rows]
    )
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [
        f"| {' | '.join(row[position] for position in chosen)} |"
        for row in (table.headers, rule, *cells)
    ]
    left_out = len(table.cells) - len(cells)
    return "\n".join(lines) + (
        f"\n\nRows that are not shown: {left_out} ({REPORT_COMMAND})." if left_out else ""
    )


def rewrite_pages(folder: Path, built: Sequence[Section]) -> None:
    """Put the sections between the marks of their name, in README.md and docs/ of a folder. Others stay as they are."""
    texts = {s.name: to_markdown([other for other in built if other.name == s.name]) for s in built}
    for page in [*folder.glob("README.md"), *sorted(folder.glob("docs/**/*.md"))]:
        text = page.read_text(encoding="utf-8")
        for name in set(MARK.findall(text)):
            begin, end = f"<!-- {name}: written by make publish -->", f"<!-- end of {name} -->"
            if (text.count(begin), text.count(end)) != (1, 1):
                raise RecordError(f"{page}: write each of these marks once: {begin} and {end}")
            if name in texts:
                text = f"{text.partition(begin)[0]}{begin}\n{texts[name]}\n{end}{text.partition(end)[2]}"
        page.write_text(text, encoding="utf-8")


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
