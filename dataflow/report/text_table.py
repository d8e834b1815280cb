# SPDX-License-Identifier: Apache-2.0
"""Lay a table out as text that fits into a terminal."""

import textwrap
from collections.abc import Sequence
from typing import Any

from dataflow.report.tables import Column, TextTable

MAX_COLUMNS = 7  # in a terminal, if not all are asked for
MIN_BAR = 10  # characters
MAX_BAR = 40
MAX_LINE = 1000
GAP = "  "  # between columns
WRAP_AT_SPACES: dict[str, Any] = {"break_on_hyphens": False, "break_long_words": False}


class ShownColumn:
    """A column with its cells as text. The first cell is the header.

    Its width is that of the longest cell, until the terminal is too narrow for the table.
    """

    def __init__(self, table: TextTable, position: int) -> None:
        self.position = position
        self.column: Column = table.columns[position]
        self.cells = [table.headers[position]]
        for row in table.cells:
            self.cells.append(row[position])
        self.width = longest(self.cells)

    @property
    def smallest_width(self) -> int:
        """Return the width below which a word or a number would be broken. A header may have several lines."""
        header, *cells = self.cells
        words = header.split()
        for cell in cells:
            # A number with its interval stays in one line.
            words += cell.split() if self.column.is_text else [cell]
        return longest(words)

    def wrap_cell(self, row: int) -> list[str]:
        """Return the lines of a cell, all as wide as the column."""
        text = self.cells[row]
        lines = textwrap.wrap(text, self.width, **WRAP_AT_SPACES)
        if not lines:
            lines = [""]
        return [self.align(line) for line in lines]

    def align(self, text: str) -> str:
        """Return text with spaces up to the width of the column: texts on the left, numbers on the right."""
        if self.column.is_text:
            return text.ljust(self.width)
        return text.rjust(self.width)


def longest(texts: Sequence[str]) -> int:
    """Return the characters of the longest text; 0 without any."""
    return max((len(text) for text in texts), default=0)


def wrap(text: str, width: int) -> str:
    """Return text with lines of at most this width, broken between words."""
    return textwrap.fill(text, width, **WRAP_AT_SPACES)


def choose_columns(table: TextTable, count: int) -> list[int]:
    """Return the positions of at most `count` columns, those of the lowest ranks."""
    positions = range(len(table.columns))
    by_rank = sorted(positions, key=lambda position: table.columns[position].rank)
    return sorted(by_rank[:count])


def to_text(table: TextTable, width: int | None = None, count: int = MAX_COLUMNS) -> str:
    """Return the table as text with at most `count` columns. Those of a high rank are left out, also if it is too wide.

    If it is still too wide without them, the cells of text columns are broken between words. If `width` leaves space
    beside a column of times, each row has a bar.
    """
    columns = [ShownColumn(table, position) for position in choose_columns(table, count)]
    if width:
        leave_out_columns(columns, width)
        narrow_columns(columns, width)
    lines = join_rows(columns, width)
    shown = {column.position for column in columns}
    left_out = []
    for position, header in enumerate(table.headers):
        if position not in shown:
            left_out.append(header)
    if left_out:
        reason = "not shown, because the terminal is too narrow"
        if count == MAX_COLUMNS:
            reason = "--columns all also shows"
        headers = ", ".join(left_out)
        lines.append(wrap(f"({reason}: {headers})", width or MAX_LINE))
    return "\n".join(lines)


def total_width(columns: Sequence[ShownColumn]) -> int:
    """Return the characters of a line, with the gaps between columns."""
    widths = [column.width for column in columns]
    return sum(widths) + len(GAP) * (len(widths) - 1)


def leave_out_columns(columns: list[ShownColumn], width: int) -> None:
    """Remove columns until the others fit into the width.

    Those of the highest ranks go first, and those of rank 0 stay.
    """
    while total_width(columns) > width:
        last = max(columns, key=lambda column: column.column.rank)
        if last.column.rank == 0:
            return
        columns.remove(last)


def narrow_columns(columns: Sequence[ShownColumn], width: int) -> None:
    """Make the widest columns narrower until all fit into the width, or no text can be broken any more."""
    excess = total_width(columns) - width
    for _ in range(excess):
        wide = [column for column in columns if column.width > column.smallest_width]
        if not wide:
            return
        widest = max(wide, key=lambda column: column.width)
        widest.width -= 1


def join_rows(columns: Sequence[ShownColumn], width: int | None) -> list[str]:
    """Return the lines of the table. A row has several lines if its cells do not fit into the width."""
    space = (width or 0) - total_width(columns) - len(GAP)
    lines = []
    for row, bar in enumerate(draw_bars(columns, space)):
        cells = [column.wrap_cell(row) for column in columns]
        height = max(len(cell) for cell in cells)
        for number in range(height):
            texts = []
            for column, cell in zip(columns, cells, strict=True):
                is_empty = number >= len(cell)
                texts.append(" " * column.width if is_empty else cell[number])
            if number == 0:
                texts.append(bar)
            lines.append(GAP.join(texts).rstrip())
    return lines


def draw_bars(columns: Sequence[ShownColumn], space: int) -> list[str]:
    """Return a bar per row, the header included; "" if there is no column of times, or no space for bars."""
    rows = len(columns[0].cells)
    times = [column for column in columns if column.column.is_time]
    if not times or space < MIN_BAR:
        return [""] * rows
    values = [parse_number(cell) for cell in times[0].cells[1:]]
    largest = max([*values, 1e-9])
    scale = min(space, MAX_BAR) / largest
    bars = [""]
    for value in values:
        length = round(scale * value)
        bars.append("#" * length)
    return bars


def parse_number(cell: str) -> float:
    """Return the number of a cell; 0.0 for a text."""
    digits = cell.replace(",", "")
    if digits.replace(".", "").isdigit():
        return float(digits)
    return 0.0
