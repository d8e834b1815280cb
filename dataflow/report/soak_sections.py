"""Build the table and the chart of long runs: do memory, open files or times grow?"""

from collections.abc import Sequence
from statistics import median

import numpy as np

from dataflow.analysis.result import Result
from dataflow.errors import RecordError
from dataflow.report import tables
from dataflow.report.charts import LineChart, Series
from dataflow.report.tables import Column, Section, make_table
from dataflow.units import format_bytes

PARTS = 8  # of a run, of equal numbers of iterations
SETTLED = 2  # readings after which memory, which was new at first, should not grow any more
COMPARED = 5  # readings at the beginning and at the end, whose medians are compared: a single one may be a spike


def format_growth(result: Result, name: str) -> str:
    """Return the largest growth of a resource in a run, from its second tenth to its end."""
    shares = []
    for run in result.shown_runs:
        values = [getattr(reading, name) for reading in run.resources[SETTLED:]]
        count = min(COMPARED, len(values) // 2)
        if count:
            first, last = median(values[:count]), median(values[-count:])
            shares.append((last - first) / max(1, first))
    return f"{max(shares):+.1%}" if shares else "-"


def medians(result: Result) -> list[float]:
    """Return the median time of each part of the first run."""
    return [float(np.median(part)) for part in np.array_split(result.shown_runs[0].seconds, PARTS)]


def format_drift(result: Result) -> str:
    """Return the change of the median from the second part to the last. The first part has new memory."""
    _, second, *_, last = medians(result)
    return f"{last / second - 1:+.0%}"


COLUMNS = (
    Column("configuration", tables.marked_label),
    Column("bytes per iteration", lambda r: format_bytes(r.workload.bytes_per_iteration)),
    Column("iterations", lambda r: f"{len(r.seconds):,}"),
    Column("wrong bytes", lambda r: f"{r.wrong_bytes:,}"),
    Column("ms per iteration", lambda r: tables.format_milliseconds(r.typical_seconds)),
    Column("drift of the median", format_drift),
    Column("private memory", lambda r: format_growth(r, "memory_bytes")),
    Column("open files", lambda r: format_growth(r, "descriptors")),
    Column("shared memory", lambda r: format_growth(r, "shared_memory_bytes")),
)


def build_soak(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    too_short = [result.label for result in done if len(result.seconds) < 2 * PARTS]
    if too_short:
        raise RecordError(f"{too_short[0]}: a long run has {2 * PARTS} iterations or more: leave its record out")
    lines = []
    for result in done:
        values = medians(result)
        shares = [value / values[1] for value in values]
        points = [(part + 1.0, share, share, share) for part, share in enumerate(shares)]
        lines.append(Series(tables.short_label(result), points))
    size, count = format_bytes(done[0].workload.bytes_per_iteration), len(done[0].seconds)
    title = f"{done[0].flow.title}, {count:,} iterations, {size} each"
    chart = LineChart("soak", f"Drift: {title}", lines, "eighth of the run",
                      "median time relative to the second eighth", log_y=False)  # fmt: skip
    return [Section("soak", title, "", make_table(done, COLUMNS), chart)]
