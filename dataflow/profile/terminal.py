"""Fit tables and sentences into the width of the terminal, with the standard library only."""

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

DEFAULT_WIDTH = 100  # characters per line, if the output is no terminal
MIN_WIDTH = 40
MAX_WORD = 30  # characters; longer words in tables are broken if there is no space
GAP = "  "  # between columns


def terminal_width() -> int:
    """Return the characters per line of the terminal, or of the variable COLUMNS, or 100 without both."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return max(MIN_WIDTH, shutil.get_terminal_size().columns)
    return DEFAULT_WIDTH


def wrap(text: str, width: int, indent: int = 0) -> str:
    """Return the text in lines of at most this width, broken between words; all lines but the first are indented.

    A word that is longer than a line, as the name of a file, is not broken.
    """
    return textwrap.fill(
        text,
        width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def shorten_path(path: str) -> str:
    """Return a path, or file:line, as it is from the current folder, if it is in there."""
    folder = f"{Path.cwd()}{os.sep}"
    return path.removeprefix(folder)


@dataclass
class Column:
    """A column of a table, with its cells as texts."""

    header: str
    cells: list[str]
    is_text: bool = (
        False  # on the left, and broken between words if needed; numbers are on the right
    )
    rank: int = 0  # if the table is too wide, columns with a high rank are left out; 0: never
    width: int = 0  # characters

    def __post_init__(self) -> None:
        self.width = max(map(len, [self.header, *self.lines]))

    @property
    def lines(self) -> list[str]:
        """Return the lines of all cells."""
        return "\n".join(self.cells).split("\n")

    @property
    def least_width(self) -> int:
        """Return the width that it needs if its cells are broken."""
        if not self.is_text:
            return self.width
        words = f"{self.header} {' '.join(self.lines)}".split()
        longest = max(map(len, words))
        return min(longest, MAX_WORD)

    def break_cell(self, cell: str) -> list[str]:
        """Return the lines of a cell, or of the header, as wide as the column."""
        lines: list[str] = []
        for line in cell.split("\n"):
            lines += textwrap.wrap(line, self.width, break_on_hyphens=False) or [""]
        if self.is_text:
            return [line.ljust(self.width) for line in lines]
        return [line.rjust(self.width) for line in lines]


def format_table(columns: Sequence[Column], width: int) -> str:
    """Return the table in lines of at most this width, without the columns for which there is no space."""
    shown = [replace(column) for column in columns]  # their widths are changed
    left_out: list[str] = []
    while sum_widths([column.least_width for column in shown]) > width:
        last = max(shown, key=lambda column: column.rank)
        if not last.rank:
            break
        shown.remove(last)
        left_out.insert(0, last.header)
    shrink_columns(shown, width)
    lines = format_row(shown, [column.header for column in shown])
    for number in range(len(shown[0].cells)):
        lines += format_row(shown, [column.cells[number] for column in shown])
    if left_out:
        names = ", ".join(left_out)
        lines.append(wrap(f"(not shown, because the terminal is too narrow: {names})", width))
    return "\n".join(lines)


def sum_widths(widths: Sequence[int]) -> int:
    """Return the width of a table with columns of these widths."""
    return sum(widths) + len(GAP) * (len(widths) - 1)


def shrink_columns(columns: Sequence[Column], width: int) -> None:
    """Make the widest column that can be broken narrower, until the table fits."""
    while sum_widths([column.width for column in columns]) > width:
        wide = [column for column in columns if column.width > column.least_width]
        if not wide:
            return
        widest = max(wide, key=lambda column: column.width)
        widest.width -= 1


def format_row(columns: Sequence[Column], cells: Sequence[str]) -> list[str]:
    """Return the lines of a row: as many as its longest cell needs."""
    broken = []
    for column, cell in zip(columns, cells, strict=True):
        broken.append(column.break_cell(cell))
    lines = []
    for number in range(max(map(len, broken))):
        row = []
        for column, parts in zip(columns, broken, strict=True):
            missing = " " * column.width
            row.append(parts[number] if number < len(parts) else missing)
        lines.append(GAP.join(row).rstrip())
    return lines
