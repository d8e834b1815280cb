# SPDX-License-Identifier: Apache-2.0
"""Write rows of a table below each other."""

from collections.abc import Sequence


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line per row, in which each column is as wide as its longest cell.

    All rows have as many cells as the first one.
    """
    widths = [0 for _ in rows[0]]
    for row in rows:
        widen(widths, row)
    lines = []
    for row in rows:
        line = align_row(row, widths)
        lines.append(line)
    return lines


def widen(widths: list[int], row: Sequence[str]) -> None:
    """Make columns so wide that the cells of a row fit."""
    for column, cell in enumerate(row):
        if len(cell) > widths[column]:
            widths[column] = len(cell)


def align_row(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = []
    for cell, width in zip(row, widths, strict=True):
        padded = cell.ljust(width)
        cells.append(padded)
    line = "  ".join(cells)
    return line.rstrip()
