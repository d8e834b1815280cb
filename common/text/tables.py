"""Tables as columns, each a header and what it says of a result, and the formats of numbers."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from common.analysis.results import Result
from common.analysis.statistics import Ratio
from common.record.environment import machine_line
from common.units import format_bytes

UNSTABLE = 0.10  # standard deviation / mean above which a row is called unstable
HARNESS_SHOWN = 0.01
ABOVE_CEILING = "the machine was slower while that was measured, or one copy serves several readers"


@dataclass(frozen=True)
class Column:
    """What stands above, and what it says of each line's thing: of a result, mostly.

    rank: where a table must be narrower, the columns of the highest rank go first; those of rank 0 never.
    words: to the left; a table's first column always is.
    """

    header: str
    cell: Callable[[Any], str]
    rank: int = 0
    words: bool = False


def three_digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{float(f'{value:.3g}'):,.10g}"


def milliseconds(seconds: float) -> str:
    """Four significant digits; whole milliseconds from a second up."""
    return f"{seconds * 1e3:,.4g}" if seconds < 1 else f"{seconds * 1e3:,.0f}"


def interval(ratio: Ratio, form: Callable[[float], str] = three_digits) -> str:
    """In brackets, after its value; nothing where one run has none."""
    return f" ({form(ratio.low)} to {form(ratio.high)})" if ratio.low is not None and ratio.high is not None else ""


def percentile(seconds: float | None) -> str:
    """In milliseconds, where there are samples for it."""
    return milliseconds(seconds) if seconds else "-"


def _of_trips(header: str, cell: Callable[[Result], str], rank: int = 0) -> Column:
    return Column(header, lambda result: cell(result) if result.seconds else "-", rank)


def _rate(result: Result) -> str:
    """Readers of mapped rows hold views: nobody moved those bytes."""
    return f"{result.record.bytes_per_trip / result.summary.median / 1e9:.3g}" if result.payload_copied else "mapped"


def _of_ceiling(result: Result) -> str:
    """The ceiling copies, so it is none for mapped rows."""
    ceiling = result.ceiling_seconds
    return f"{ceiling / result.summary.median:.1%}" if ceiling and result.payload_copied else "-"


def of_hand_over(result: Result) -> str:
    """The limit that mapped rows and small messages have too."""
    seconds = result.hand_over_seconds
    return f"{seconds / result.summary.median:.1%}" if seconds else "-"


def _cpu(result: Result) -> str:
    seconds = result.cpu_seconds_per_trip
    return milliseconds(seconds) if seconds is not None else "-"


def harness(share: float) -> str:
    """What part of a trip is the suite's own work."""
    return f"{share:.1%}" if share >= HARNESS_SHOWN else "<1%"


def _wrong(result: Result) -> str:
    if result.wrong_bytes:
        return f"{result.wrong_bytes:,}"
    return "0" if result.status == "ok" else "-"


def _stored(result: Result) -> str:
    return format_bytes(round(result.stored_bytes_per_trip), ("iB",)) if result.status == "ok" else "-"


def _transport(result: Result) -> str:
    """The row, and beside it what else a reader of its numbers must know."""
    preset, scale = result.record.arguments.get("preset"), result.record.arguments.get("scale", 1)
    part = f" ({scale:g} of {preset})" if preset and scale != 1 else ""
    return result.name + part + (" (spilled)" if result.spilled_bytes else "")


def provenance(results: Sequence[Result]) -> list[str]:
    """Machines and versions of what is ok; and last the day, with the commits."""
    environments = [found for result in results for found in result.environments]
    commits = ", ".join(sorted(set(map(_commit, environments))))
    day = f"{results[0].runs[0].started_at[:10]}, commit {commits}."
    return [*sorted(set(map(machine_line, environments))), day]


def _commit(environment: dict[str, Any]) -> str:
    changed = " with changes that are in no commit" if environment.get("git_dirty") else ""
    return (environment.get("git_commit") or "unknown")[:10] + changed


COLUMNS = (
    Column("transport", _transport),
    Column("payload", lambda result: format_bytes(result.record.bytes_per_trip), 5),
    _of_trips("stored", _stored, 6),  # of a trip's messages and their copies, in the object store
    Column("first ms", lambda result: milliseconds(result.first_seconds) if result.first_seconds else "-", 4),
    _of_trips("runs", lambda result: str(len(result.seconds_by_run)), 4),
    _of_trips("min ms", lambda result: milliseconds(result.summary.min), 3),
    _of_trips("median ms", lambda result: milliseconds(result.summary.median)),
    _of_trips("p95 ms", lambda result: percentile(result.summary.p95), 1),
    _of_trips("p99 ms", lambda result: percentile(result.summary.p99), 3),
    _of_trips("max ms", lambda result: milliseconds(result.summary.max), 3),
    _of_trips("GB/s", _rate),
    _of_trips("of ceiling", _of_ceiling, 2),
    _of_trips("of hand-over", of_hand_over, 3),
    _of_trips("CPU ms", _cpu, 3),  # of all processes together: more than the trip where they spin or work at once
    # The suite's own work inside the clock, all processes together.
    _of_trips("harness", lambda result: harness(result.harness_share), 2),
    Column("wrong bytes", _wrong, 4),
    Column("status", lambda result: "WRONG" if result.wrong_bytes else result.status),
)
PEAK = Column("peak GiB", lambda r: f"{r.peak_memory_bytes / 2**30:.1f}" if r.peak_memory_bytes else "-", 6)


def table(rows: Sequence[Any], columns: Sequence[Column] = COLUMNS, width: int | None = None) -> str:
    """For a screen; below it, what a `width` in characters has no room for."""
    shown = list(columns)
    while width and len(_lines(rows, shown)[0]) > width and any(column.rank for column in shown):
        shown.remove(max(shown, key=lambda column: column.rank))
    left_out = [column.header for column in columns if column not in shown]
    note = [f"(a wider screen, or a pipe, also has: {', '.join(left_out)})"] if left_out else []
    return "\n".join([*map(str.rstrip, _lines(rows, shown)), *note])


def _lines(rows: Sequence[Any], columns: Sequence[Column]) -> list[str]:
    """Of one width."""
    cells = _cells(rows, columns)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    turns = [str.ljust if column.words or column is columns[0] else str.rjust for column in columns]
    return ["  ".join(turn(c, w) for turn, c, w in zip(turns, line, widths, strict=True)) for line in cells]


def _cells(rows: Sequence[Any], columns: Sequence[Column]) -> list[list[str]]:
    return [[column.header for column in columns], *([column.cell(row) for column in columns] for row in rows)]


def csv_table(rows: Sequence[Any], columns: Sequence[Column] = COLUMNS) -> str:
    """As comma-separated values."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(_cells(rows, columns))
    return text.getvalue().rstrip()


def markdown_table(rows: Sequence[Any], columns: Sequence[Column]) -> str:
    """In Markdown."""
    rule = "".join("|---" if column.words or column is columns[0] else "|---:" for column in columns) + "|"
    header, *rest = ["| " + " | ".join(cells) + " |" for cells in _cells(rows, columns)]
    return "\n".join([header, rule, *rest])
