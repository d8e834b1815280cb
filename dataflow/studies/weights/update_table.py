"""Build the tables of updates of parameters."""

from collections.abc import Callable
from statistics import median

from dataflow.analysis.result import Result
from dataflow.analysis.statistics import typical_seconds
from dataflow.flows.changes import changes_flow
from dataflow.report import tables
from dataflow.report.tables import Column, format_milliseconds, format_significant
from dataflow.studies.weights.updates import updates_of
from dataflow.units import format_bytes


def format_part(result: Result, name: str) -> str:
    """Return the geometric mean of the medians of the runs of one part, in ms.

    A transfer begins on one node and ends on another, so it may be too short for their clocks.
    """
    updates = filter(None, map(updates_of, result.shown_runs))
    parts = [getattr(update, f"{name}_seconds") for update in updates]
    medians = [median(seconds) for seconds in parts if seconds]
    if name == "transfer" and any(map(result.is_within_clock_error, medians)):
        return "-"
    return format_milliseconds(typical_seconds(medians)) if medians else "-"


def peak_memory(side: str) -> Callable[[Result], str]:
    """Return a function for the cell of the largest process at the "source" or "reader" of parameters."""

    def cell(result: Result) -> str:
        flow = result.flow
        actors = {flow.actor(getattr(edge, side)) for edge in flow.edges if edge.message.is_parameters}
        costs = [cost for run in result.shown_runs for name, cost in run.processes.items() if name in actors]
        peak = max((cost.peak_memory_bytes or 0 for cost in costs), default=0)
        return f"{peak / 2**30:.1f}" if peak else "-"

    return cell


def bytes_per_receiver(result: Result) -> str:
    """Return the bytes that the first receiver gets per update, as they are sent."""
    flow = result.flow
    reader = next(flow.actor(edge.reader) for edge in flow.edges if edge.message.is_parameters)
    sent = changes_flow(flow) if result.workload.message == "indices" else flow
    return format_bytes(sum(edge.bytes for edge in sent.edges_to_actor(reader)))


def count_reads(result: Result) -> str:
    updates = [*filter(None, map(updates_of, result.shown_runs))]
    if not any(u.reads for u in updates):
        return "not checked"
    return f"{sum(u.torn_reads for u in updates):,} of {sum(u.reads for u in updates):,}"


UPDATE_COLUMNS = (
    Column("configuration", tables.marked_label),
    tables.READERS,
    Column("messages", lambda r: f"{sum(message.is_parameters for message in r.flow.messages):,}", 3),
    Column("sent to the first receiver", bytes_per_receiver, 3),
    Column("ms per update", lambda r: format_milliseconds(r.typical_seconds)),
    Column("95 % interval", tables.format_interval, 4),
    Column("publish ms", lambda r: format_part(r, "publish"), 1),
    Column("transfer ms", lambda r: format_part(r, "transfer"), 1),
    Column("install ms", lambda r: format_part(r, "install"), 1),
    Column("stall ms", lambda r: format_part(r, "stall")),
    Column("first ms", lambda r: format_milliseconds(median(r.first_seconds)), 4),
    Column("x memcpy", lambda r: format_significant(r.times_memcpy), 2),
    Column("stored", tables.format_stored, 5),
    Column("page faults", tables.format_faults, 5),
    Column("peak GiB of a trainer", peak_memory("source"), 3),
    Column("peak GiB of a receiver", peak_memory("reader"), 3),
    Column("torn reads", count_reads, 4),
    tables.OVERHEAD,
)
