# SPDX-License-Identifier: Apache-2.0
"""Define tables, the formats of their numbers, and the columns that all results share."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import msgspec

from dataflow.analysis.links import link_seconds
from dataflow.analysis.result import UNCOUNTED, Result, median_of
from dataflow.analysis.statistics import interval
from dataflow.analysis.workload import label_of
from dataflow.catalogue.catalogue import REFERENCE, configuration_name
from dataflow.flows.message import NUMBER_BYTES
from dataflow.records.schema import AS_REQUESTED, Layout, Run
from dataflow.units import GB, MICROSECOND, MILLISECOND, format_bytes

# The groups of configurations whose times are compared, and the cells of the column "readers get". The groups do not do
# the same work. A copy to keep lies in memory of its own, whose pages may be new. A later message overwrites a reused
# buffer. Written in place: the times have no copy by the producer. View: they have no copy by readers.
COPY_TO_KEEP = "readers may keep their copy"
REUSED_BUFFER = "readers get a buffer that is reused"
IN_PLACE = "and the producer writes in place"
KEPT_IN_PLACE = f"{COPY_TO_KEEP} {IN_PLACE}"
REUSED_IN_PLACE = f"{REUSED_BUFFER} {IN_PLACE}"
VIEW = "readers get a view"
READER_GROUPS = {
    COPY_TO_KEEP: "copy to keep",
    REUSED_BUFFER: "reused buffer",
    KEPT_IN_PLACE: "copy to keep, written in place",
    REUSED_IN_PLACE: "reused buffer, written in place",
    VIEW: "view",
}
NARROW = 1.1  # of an interval: its ends, divided
MIN_SLOW_SHARE = 0.02  # of the iterations: more slow ones are shown
# The configurations of a table share them, as its title says.
GROUP_FLAGS = ("episode", "check_every", "in_flight")


@dataclass(frozen=True)
class Column:
    """A header, and the function that returns the cell of an item."""

    header: str
    cell: Callable[[Any], str]
    _: KW_ONLY
    rank: int = 0  # a narrow terminal leaves out the columns of the highest rank first, and never those of rank 0
    is_text: bool = False  # it is aligned to the left
    is_optional: bool = False  # it is left out if no item has a value
    # It has a value for results without a timed iteration too; the others have "-".
    untimed: bool = False
    # It has the reason in place of the time of a result whose runs do not count.
    is_time: bool = False


@dataclass(frozen=True)
class TextTable:
    """The cells of a table as text, by row."""

    columns: Sequence[Column]
    headers: Sequence[str]
    cells: list[list[str]]
    page_rows: Sequence[int] | None = None  # those that pages show; None: all


@dataclass(frozen=True)
class Section:
    """One part of a report. `name` is that of the marks in README.md and docs/; several sections can share it.

    A section whose name no page has is only in a terminal and in report.html.
    """

    name: str
    title: str
    sentence: str = ""
    table: TextTable | None = None
    chart: Any = None  # of charts.py; this module does not import matplotlib
    notes: Sequence[str] = ()
    page_sentence: str | None = None  # of a page, which may leave out rows; None: `sentence`


def format_cell(column: Column, item: Any) -> str:
    """Return the cell of an item; for a result without a time, why it has none, or "-"."""
    if column.untimed or not isinstance(item, Result) or item.seconds:
        return column.cell(item)
    return item.status if column.is_time and item.status in UNCOUNTED else "-"


def make_table(items: Sequence[Any], columns: Sequence[Column]) -> TextTable:
    """Return a table with one line per item. The first column is text, and has a value for every item."""
    first = replace(columns[0], is_text=True, untimed=True)
    shown: dict[Column, list[str]] = {}
    for column in (first, *columns[1:]):
        cells = [format_cell(column, item) for item in items]
        is_empty = {*cells} == {"-"}
        if not (is_empty and column.is_optional):
            shown[column] = cells
    rows = [list(row) for row in zip(*shown.values(), strict=True)]
    return TextTable([*shown], [column.header for column in shown], rows)


def format_significant(value: float | None, digits: int = 2) -> str:
    """Return a number with so many significant digits, without an exponent; "-" for None."""
    return "-" if value is None else f"{float(f'{value:.{digits}g}'):,.10g}"


def format_range(values: Sequence[float], digits: int = 2) -> str:
    """Return the smallest and the largest value with so many digits, or one of them if they are equal then."""
    return " to ".join(
        dict.fromkeys(format_significant(value, digits) for value in (min(values), max(values)))
    )


def digits_of(ends: tuple[float, float] | None) -> int:
    """Return how many digits of a number with this interval are shown: two, or three if the interval is narrow."""
    return 3 if ends and ends[1] < NARROW * ends[0] else 2


def format_ends(ends: tuple[float, float] | None) -> str:
    return " to ".join(format_significant(end, digits_of(ends)) for end in ends) if ends else "-"


def format_signed_percent(fraction: float | None) -> str:
    """Return +5 % for 0.05; "-" for None."""
    return "-" if fraction is None else f"{fraction * 100:+.0f} %"


def format_milliseconds(seconds: float | None, digits: int = 2) -> str:
    return format_significant(None if seconds is None else seconds / MILLISECOND, digits)


def format_microseconds(seconds: float | None, digits: int = 2) -> str:
    return format_significant(None if seconds is None else seconds / MICROSECOND, digits)


def format_ends_of_seconds(ends: tuple[float, float] | None) -> str:
    """Return the ends of an interval of seconds in milliseconds; "-" for None."""
    if ends is None:
        return "-"
    low, high = ends
    return format_ends((low / MILLISECOND, high / MILLISECOND))


def milliseconds_interval(result: Result) -> tuple[float, float] | None:
    """Return the 95 % interval of the time; None for too few runs."""
    return interval([seconds / MILLISECOND for seconds in result.run_seconds])


def format_interval(result: Result) -> str:
    return format_ends(milliseconds_interval(result))


def format_typical(result: Result) -> str:
    """Return the milliseconds per iteration, by the means of the runs."""
    return format_milliseconds(result.typical_seconds, digits_of(milliseconds_interval(result)))


def format_slow_share(share: float) -> str:
    """Return the share of slow iterations; "-" if they are few."""
    percent = 100 * share
    return f"{percent:.0f} %" if share > MIN_SLOW_SHARE else "-"


def format_slow(result: Result) -> str:
    return format_slow_share(result.slow_share)


def format_p50(result: Result) -> str:
    return format_milliseconds(result.p50_seconds)


def format_p95(result: Result) -> str:
    return format_milliseconds(result.p95_seconds)


def format_with_tail(result: Result) -> str:
    """Return mean, median and 95th percentile in milliseconds, such as "146 (50, 339)"."""
    return f"{format_typical(result)} ({format_p50(result)}, {format_p95(result)})"


def format_faults(result: Result) -> str:
    faults = result.faults_per_iteration
    return "-" if faults is None else f"{faults:,.0f}"


def format_stored(result: Result) -> str:
    """Return the bytes that the object store takes in per iteration. Channels bypass it."""
    return format_bytes(
        round(sum(run.stored_bytes for run in result.shown_runs) / len(result.seconds))
    )


def format_memory(result: Result) -> str:
    """Return the peak memory of all processes of a run in GiB, as large as in any run."""
    return f"{result.peak_memory_bytes / 2**30:.1f}" if result.peak_memory_bytes else "-"


def format_held(result: Result) -> str:
    """Return what all processes hold after the last iteration in GiB, such as "5.2 + 1.1"; "-" if it is unknown."""
    held = result.held_memory_bytes
    if held is None:
        return "-"
    private_bytes, shared_bytes = held
    return f"{format_gib(private_bytes)} + {format_gib(shared_bytes)}"


def format_gib(count: int) -> str:
    return format_significant(count / 2**30)


def format_settled(runs: Sequence[Run]) -> str:
    """Return after how many untimed iterations the runs settled, or that they did not; "-" if nothing decided it."""
    settled: list[int] = []
    others: list[int] = []
    for run in runs:
        if run.settled is None or run.warmup_iterations is None:
            continue
        counts = settled if run.settled else others
        counts.append(run.warmup_iterations)
    texts = []
    if settled:
        texts.append(format_range(settled, digits=9))
    if others:
        text = f"not settled after {format_range(others, digits=9)}"
        if settled:
            text += f" ({len(others)} of {len(others) + len(settled)} runs)"
        texts.append(text)
    return ", ".join(texts) or "-"


def format_data_path(result: Result) -> str:
    """Return whether the data path of messages is only the requested one; "-" if something has shown it."""
    acknowledgements = {str(edge) for edge in result.workload.edges if edge.bytes <= NUMBER_BYTES}
    seen = set()
    for run in result.shown_runs:
        for edge, path in run.data_paths.items():
            if edge not in acknowledgements:
                seen.add(not path.endswith(AS_REQUESTED))
    if False not in seen:
        return "-"
    return "partly as requested" if True in seen else "as requested"


def readers_of(result: Result) -> str:
    """Return the group of a result. Only times of one group are compared."""
    return group_of_readers(
        result.readers_own_a_copy, result.is_overwritten, result.producer_writes_in_place
    )


def group_of_readers(own_a_copy: bool, is_overwritten: bool, is_written_in_place: bool) -> str:
    """Return the group of readers that own a copy, which later messages overwrite or not, or that get a view."""
    if not own_a_copy:
        return VIEW
    if is_written_in_place:
        return REUSED_IN_PLACE if is_overwritten else KEPT_IN_PLACE
    return REUSED_BUFFER if is_overwritten else COPY_TO_KEEP


def order_by_readers(results: Sequence[Result]) -> list[Result]:
    """Return the results in their groups, the slowest first; results without a time come last."""
    groups = [*READER_GROUPS]
    timed = sorted(
        (r for r in results if r.seconds),
        key=lambda r: (groups.index(readers_of(r)), -r.typical_seconds),
    )
    return [*timed, *(result for result in results if not result.seconds)]


def marked_label(result: Result) -> str:
    """Return the label with what readers must know about it, for example that it is no transport."""
    label = result.label
    if result.spilled_bytes:
        label += " (spilled to disk)"
    if result.is_disturbed:
        label += " (disturbed)"
    if result.transport.label == REFERENCE:
        label += " (reference)"
    return label


def label_without_layout(result: Result) -> str:
    """Return the label without the nodes and the links, for tables that name them elsewhere."""
    return label_of(result.workload, msgspec.structs.replace(result.configuration, layout=Layout()))


def short_label(result: Result, swept: str = "") -> str:
    """Return the label without the flags that all configurations of the table share, and without the swept size."""
    configuration = result.configuration
    flags = {name: value for name, value in configuration.flags.items() if name not in GROUP_FLAGS}
    name = configuration_name(configuration.runtime, configuration.transport, flags)
    rest = marked_label(result).removeprefix(result.name)
    shared = (
        f" --fields {result.workload.sizes.get('fields')}"
        if swept == "fields"
        else " --message fields"
    )
    return name + rest.replace(shared, "").replace("--message ", "").replace("--as-sent", "as sent")


def format_disturbed(result: Result) -> str:
    """Return how many of the ok runs were disturbed. They are left out, except with --allow-disturbed."""
    return str(sum(bool(run.disturbance) for run in result.ok_runs))


def format_rate(result: Result) -> str:
    """Return the gigabytes (10^9) per second of all messages; "-" of views, which copy nothing."""
    if not result.readers_own_a_copy:
        return format_significant(None)
    return format_significant(result.workload.bytes_per_iteration / result.typical_seconds / GB)


def format_other_flow(result: Result) -> str:
    """Return how many iterations per second the flow of --beside ended, as the median of the runs; "-" without it."""
    rates = [
        [run.beside_iterations / run.beside_seconds]
        for run in result.shown_runs
        if run.beside_seconds
    ]
    return format_significant(median_of(rates))


TIME = Column("ms per iteration", format_typical, is_time=True)
SLOW_ITERATIONS = Column("slow iterations", format_slow, rank=1, is_optional=True)
# Beside each mean. Fewer iterations than the 95th percentile needs leave it out.
TAIL_COLUMNS = (
    Column("p50 ms", format_p50, rank=1),
    Column("p95 ms", format_p95, rank=1, is_optional=True),
    SLOW_ITERATIONS,
)
DATA_PATH = Column("data path", format_data_path, rank=5, is_optional=True)
OVERHEAD = Column(
    "overhead",
    lambda r: f"{r.overhead_share:.1%}" if r.overhead_share else "-",
    rank=4,
    is_optional=True,
)
HELD = Column("holds GiB, private + shared", format_held, rank=8, untimed=True, is_optional=True)
SETTLED = Column(
    "settled after (iterations)", lambda r: format_settled(r.shown_runs), rank=7, is_optional=True
)
LINK = Column(
    "x link", lambda r: format_significant(r.multiple_of(link_seconds(r))), is_optional=True
)
READERS = Column("readers get", lambda r: READER_GROUPS[readers_of(r)], is_text=True)
MAIN_COLUMNS = (
    Column("configuration", marked_label),
    READERS,
    Column("stored", format_stored, rank=6),
    Column("page faults", format_faults, rank=4),
    Column("runs", lambda r: str(len(r.run_seconds)), rank=4),
    Column("disturbed runs", format_disturbed, rank=6),
    TIME,
    *TAIL_COLUMNS,
    Column("95 % interval", format_interval, rank=3, is_optional=True),
    Column("GB/s", format_rate, rank=8),
    Column("x memcpy", lambda r: format_significant(r.times_memcpy)),
    Column("x cold copy", lambda r: format_significant(r.multiple_of(r.cold_copy_seconds)), rank=6),
    LINK,
    Column("iterations of the other flow per second", format_other_flow, is_optional=True),
    # Of all processes together: more than an iteration takes if they work, or busy-wait, at the same time.
    Column("CPU ms", lambda r: format_milliseconds(r.cpu_seconds_per_iteration), rank=5),
    OVERHEAD,
    DATA_PATH,
    Column("peak GiB", format_memory, rank=7, untimed=True),
    HELD,
    SETTLED,
    Column("wrong bytes", lambda r: f"{r.wrong_bytes:,}", rank=4),
    Column("status", lambda r: "WRONG" if r.wrong_bytes else r.status, rank=3, untimed=True),
)
