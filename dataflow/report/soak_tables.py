"""Say how long runs are shown: do memory, open files or times grow?"""

from collections.abc import Callable
from statistics import median

import numpy as np

from dataflow.analysis.result import Result
from dataflow.report import tables
from dataflow.report.groups import Table
from dataflow.report.tables import Column
from dataflow.units import format_bytes

PARTS = 8  # of a run, of equal numbers of iterations
SETTLED = 2  # readings after which memory, which was new at first, should not grow any more
COMPARED = 5  # readings at the beginning and at the end, whose medians are compared: a single one may be a spike


def growth_of(name: str) -> Callable[[Result], str]:
    """Return a function for the cell of the largest growth of a resource in a run, from its second tenth to its end."""

    def cell(result: Result) -> str:
        shares = []
        for run in result.shown_runs:
            values = [getattr(reading, name) for reading in run.resources[SETTLED:]]
            count = min(COMPARED, len(values) // 2)
            if count:
                first, last = median(values[:count]), median(values[-count:])
                shares.append((last - first) / max(1, first))
        return f"{max(shares):+.1%}" if shares else "-"

    return cell


def format_drift(result: Result) -> str:
    """Return the change of the median from the second part of the first run to its last. The first has new memory.

    "-" if a part has fewer than two iterations.
    """
    if len(result.shown_runs[0].seconds) < 2 * PARTS:
        return "-"
    _, second, *_, last = (np.median(part) for part in np.array_split(result.shown_runs[0].seconds, PARTS))
    return f"{last / second - 1:+.0%}"


COLUMNS = (
    Column("configuration", tables.marked_label),
    Column("bytes per iteration", lambda r: format_bytes(r.workload.bytes_per_iteration)),
    Column("iterations", lambda r: f"{len(r.seconds):,}"),
    Column("wrong bytes", lambda r: f"{r.wrong_bytes:,}"),
    Column("ms per iteration", lambda r: tables.format_milliseconds(r.typical_seconds)),
    Column("drift of the median", format_drift),
    Column("private memory", growth_of("memory_bytes")),
    Column("open files", growth_of("descriptors")),
    Column("shared memory", growth_of("shared_memory_bytes")),
)


def title_of_long_run(result: Result) -> str:
    size = format_bytes(result.workload.bytes_per_iteration)
    return f"{result.flow.title}, {len(result.seconds):,} iterations, {size} each"


SOAK = Table("soak", lambda group: COLUMNS, lambda group: group.done, title_of_long_run)
