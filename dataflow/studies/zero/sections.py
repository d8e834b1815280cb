# SPDX-License-Identifier: Apache-2.0
"""Say how the traffic of ZeRO is shown: the bytes that ranks send, beside those of ring algorithms."""

from dataflow.analysis.result import Result
from dataflow.report import tables
from dataflow.report.sections import Table, by_sizes
from dataflow.report.tables import Column, format_significant
from dataflow.units import format_bytes


def measured_bytes(result: Result) -> float:
    """Return the bytes that each rank sent per step, as the loopback interface counted them."""
    return (
        sum(run.loopback_bytes or 0 for run in result.shown_runs)
        / len(result.seconds)
        / len(result.flow.tasks)
    )


COLUMNS = (
    Column("configuration", tables.marked_label),
    Column("mean ms (p50, p95) per step", tables.format_with_tail),
    tables.SLOW_ITERATIONS,
    Column("95 % interval", tables.format_interval, rank=4),
    Column("sent per rank and step", lambda r: format_bytes(measured_bytes(r))),
    Column("expected (ring algorithms)", lambda r: format_bytes(r.flow.tasks[0].other_bytes)),
    Column(
        "sent / expected",
        lambda r: format_significant(measured_bytes(r) / r.flow.tasks[0].other_bytes),
    ),
    tables.OVERHEAD,
)
SECTIONS = {
    "zero": Table("zero", lambda group: COLUMNS, title=lambda r: r.flow.title, group_by=by_sizes())
}
