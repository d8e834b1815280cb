"""Show sections as text, as Markdown between the marks of README.md and docs/, and as HTML. Import no matplotlib."""

import html
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dataflow.analysis.result import Result
from dataflow.analysis.warnings import warnings
from dataflow.errors import RecordError
from dataflow.flows.flow import Flow
from dataflow.records.schema import Record
from dataflow.report.tables import MAIN_COLUMNS, Section, TextTable, format_significant, make_table
from dataflow.units import format_bytes

MARK = re.compile(r"<!-- (?:end of )?([\w-]+)(?:: written by make publish)? -->")
MAX_SHOWN_EDGES = 20  # of a flow
MAX_COLUMNS = 7  # in a terminal
MAX_PAGE_COLUMNS = 8  # report.html has all
ALL_COLUMNS = 1000  # as many as the terminal is wide
MORE_COLUMNS = 1001  # all of them
REPORT_COMMAND = "`.venv/bin/python -m dataflow report results/published --html`"
MIN_BAR = 10  # characters
MAX_BAR = 40
MAX_LINE = 1000
GAP = "  "  # between columns
WRAP_AT_SPACES: dict[str, Any] = {"break_on_hyphens": False, "break_long_words": False}
Columns = dict[int, list[str]]  # position of a column -> its header and its cells


def choose_columns(table: TextTable, count: int) -> list[int]:
    """Return the positions of at most `count` columns, those of the lowest ranks."""
    by_rank = sorted(range(len(table.columns)), key=lambda position: table.columns[position].rank)
    return sorted(by_rank[:count])


def to_text(table: TextTable, width: int | None = None, count: int = MAX_COLUMNS) -> str:
    """Return the table as text with at most `count` columns. Those of a high rank are left out, also if it is too wide.

    If it is still too wide without them, the cells of text columns are broken between words. If `width` leaves space
    beside a column of times, each row has a bar.
    """
    cells = {position: [table.headers[position]] for position in choose_columns(table, count)}
    for position, column in cells.items():
        column += [row[position] for row in table.cells]
    shown = leave_out_columns(table, cells, width)
    lines = join_rows(table, shown, width)
    left_out = [
        column.header for position, column in enumerate(table.columns) if position not in shown
    ]
    if left_out:
        reason = "not shown, because the terminal is too narrow"
        if count == MAX_COLUMNS:
            reason = "--columns all also shows"
        lines.append(wrap(f"({reason}: {', '.join(left_out)})", width or MAX_LINE))
    return "\n".join(lines)


def leave_out_columns(table: TextTable, cells: Columns, width: int | None) -> Columns:
    """Return the columns that fit into the width: those of the highest ranks go first, and rank 0 always stays."""
    shown = dict(cells)
    while width and total_width(shown) > width:
        last = max(shown, key=lambda position: table.columns[position].rank)
        if table.columns[last].rank == 0:
            break
        del shown[last]
    return shown


def total_width(cells: Columns) -> int:
    """Return the characters of a line, with two spaces between columns."""
    return sum(widest(column) + len(GAP) for column in cells.values()) - len(GAP)


def widest(column: Sequence[str]) -> int:
    return max(len(cell) for cell in column)


def join_rows(table: TextTable, cells: Columns, width: int | None) -> list[str]:
    """Return the lines of the table. A row has several lines if its cells do not fit into the width."""
    columns = dict(cells)
    limits = limit_widths(table, columns, width)
    bars = draw_bars(table, columns, (width or 0) - total_width(columns) - len(GAP))
    lines = []
    for row, bar in enumerate(bars):
        wrapped = []
        for position, column in columns.items():
            parts = textwrap.wrap(column[row], limits[position], **WRAP_AT_SPACES) or [""]
            wrapped.append([align(table, position, part, limits[position]) for part in parts])
        height = max(len(parts) for parts in wrapped)
        for line in range(height):
            texts = [parts[line] if line < len(parts) else " " * len(parts[0]) for parts in wrapped]
            if line == 0 and bar:
                texts.append(bar)
            lines.append(GAP.join(texts).rstrip())
    return lines


def align(table: TextTable, position: int, text: str, width: int) -> str:
    return text.ljust(width) if table.columns[position].is_text else text.rjust(width)


def limit_widths(table: TextTable, cells: Columns, width: int | None) -> dict[int, int]:
    """Return the width of each column: the widest texts get less if the table is too wide, at least a word."""
    limits = {position: widest(column) for position, column in cells.items()}
    smallest = {}
    for position, column in cells.items():
        words = [word for cell in column for word in cell.split()]
        is_text = table.columns[position].is_text
        smallest[position] = max(map(len, words), default=1) if is_text else limits[position]
        header_words = table.headers[position].split()
        if not is_text:  # a header may be broken, a number may not
            smallest[position] = max([widest(column[1:] or [""]), *map(len, header_words)])
    while width and sum(limits.values()) + len(GAP) * (len(limits) - 1) > width:
        can_shrink = [position for position in limits if limits[position] > smallest[position]]
        if not can_shrink:
            break
        limits[max(can_shrink, key=lambda position: limits[position])] -= 1
    return limits


def draw_bars(table: TextTable, cells: Columns, space: int) -> list[str]:
    """Return a bar per line of the table, the header included; "" if there is no column of times, or no space."""
    lines = len(table.cells) + 1
    times = [position for position in cells if table.columns[position].is_time]
    if not times or space < MIN_BAR:
        return [""] * lines
    values = [parse_number(cell) for cell in cells[times[0]][1:]]
    scale = min(space, MAX_BAR) / max(*values, 1e-9)
    return ["", *("#" * round(scale * value) for value in values)]


def parse_number(cell: str) -> float:
    """Return the number of a cell; 0.0 for a text."""
    digits = cell.replace(",", "")
    return float(digits) if digits.replace(".", "").isdigit() else 0.0


def print_table(table: TextTable, count: int = ALL_COLUMNS) -> None:
    """Print a table at most as wide as the terminal, or wider with MORE_COLUMNS (--columns all)."""
    print(to_text(table, terminal_width() if count <= ALL_COLUMNS else None, count))


def terminal_width() -> int | None:
    """Return the width of the terminal (COLUMNS, if it is set); None if the output is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def wrap(text: str, width: int) -> str:
    """Return text with lines of at most this width, broken between words."""
    return textwrap.fill(text, width, **WRAP_AT_SPACES)


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
        print(wrap(line, width) if width else line.rstrip())


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
        print_text(f"warning: {warning}")
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
    shown = table.cells
    if table.page_rows is not None:
        shown = [table.cells[position] for position in table.page_rows]
    rows = [list(table.headers), rule]
    for row in shown:
        rows.append([cell.replace("|", "\\|") for cell in row])
    lines = []
    for row in rows:
        cells = [row[position] for position in chosen]
        lines.append(f"| {' | '.join(cells)} |")
    left_out = len(table.cells) - len(shown)
    if left_out:
        lines.append(f"\nRows that are not shown: {left_out} ({REPORT_COMMAND}).")
    return "\n".join(lines)


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
