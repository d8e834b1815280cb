"""Tables as columns, each a header and what it says of a result, and the formats of numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from common.analysis.results import Result

UNSTABLE = 0.10  # standard deviation / mean above which a row is called unstable


@dataclass(frozen=True)
class Column:
    header: str
    cell: Callable[[Any], str]  # of what the table has a line for: results, mostly


def three_digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{float(f'{value:.3g}'):,.10g}"


def milliseconds(seconds: float) -> str:
    """Four significant digits; whole milliseconds from a second up."""
    return f"{seconds * 1e3:,.4g}" if seconds < 1 else f"{seconds * 1e3:,.0f}"


def mebibytes(count: float) -> str:
    return f"{count / 2**20:,.4g}"


def _of_trips(header: str, cell: Callable[[Result], str]) -> Column:
    return Column(header, lambda result: cell(result) if result.seconds else "-")


def _rate(result: Result) -> str:
    """Readers of mapped rows hold views: nobody moved those bytes."""
    return f"{result.record.bytes_per_trip / result.summary.median / 1e9:.3g}" if result.payload_copied else "mapped"


def _of_ceiling(result: Result) -> str:
    """The ceiling copies, so it is none for mapped rows."""
    ceiling = result.ceiling_seconds
    return f"{ceiling / result.summary.median:.1%}" if ceiling and result.payload_copied else "-"


def _wrong(result: Result) -> str:
    if result.wrong_bytes:
        return f"WRONG {result.wrong_bytes:,}"
    return "0" if result.status == "ok" else result.status


def _stored(result: Result) -> str:
    return f"{result.stored_bytes_per_trip / 2**20:,.0f}" if result.status == "ok" else "-"


COLUMNS = (
    Column("transport", lambda result: result.name + (" (spilled)" if result.spilled_bytes else "")),
    Column("payload MiB", lambda result: mebibytes(result.record.bytes_per_trip)),
    _of_trips("stored MiB", _stored),  # of a trip's messages and their copies, in the object store
    Column("first ms", lambda result: milliseconds(result.first_seconds) if result.first_seconds else "-"),
    _of_trips("min ms", lambda result: milliseconds(result.summary.min)),
    _of_trips("median ms", lambda result: milliseconds(result.summary.median)),
    _of_trips("p95 ms", lambda result: milliseconds(result.summary.p95)),
    _of_trips("max ms", lambda result: milliseconds(result.summary.max)),
    _of_trips("GB/s", _rate),
    _of_trips("of ceiling", _of_ceiling),
    Column("wrong", _wrong),
)
PEAK = Column("peak GiB", lambda r: f"{r.peak_memory_bytes / 2**30:.1f}" if r.peak_memory_bytes else "-")


def table(rows: Sequence[Any], columns: Sequence[Column] = COLUMNS) -> str:
    """For a terminal: names to the left, figures to the right."""
    lines = [[column.header for column in columns], *([column.cell(row) for column in columns] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([cells[0].ljust(widths[0]), *map(str.rjust, cells[1:], widths[1:])]).rstrip() for cells in lines
    )


def markdown_table(rows: Sequence[Any], columns: Sequence[Column], left: int = 1) -> str:
    """In Markdown; the first `left` columns are words."""
    rule = "|---" * left + "|---:" * (len(columns) - left) + "|"
    lines = [[column.header for column in columns], *([column.cell(row) for column in columns] for row in rows)]
    header, *rest = ["| " + " | ".join(cells) + " |" for cells in lines]
    return "\n".join([header, rule, *rest])
