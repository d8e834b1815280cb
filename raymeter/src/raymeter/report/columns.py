"""Write rows of a table below each other."""

from collections.abc import Sequence


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line per row, in which each column is as wide as its longest cell. All rows have as many cells."""
    widths = [0] * len(rows[0])
    for row in rows:
        for column, cell in enumerate(row):
            width = len(cell)
            widths[column] = max(width, widths[column])
    return [align_row(row, widths) for row in rows]


def align_row(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = []
    for cell, width in zip(row, widths, strict=True):
        cells.append(cell.ljust(width))
    line = "  ".join(cells)
    return line.rstrip()
