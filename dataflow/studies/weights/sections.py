"""Say how updates of parameters are shown: their parts, the memory of senders and receivers, and torn reads."""

from statistics import median

from dataflow.analysis.result import Result
from dataflow.analysis.stages import is_within_clock_error
from dataflow.analysis.statistics import typical_seconds
from dataflow.plan.options import SENDER_SIZES
from dataflow.report import tables
from dataflow.report.charts import Chart
from dataflow.report.sections import Group, Table, by_sizes, draw_dots, title_of
from dataflow.report.sentences import describe_fastest
from dataflow.report.tables import Column, format_milliseconds, format_significant
from dataflow.studies.weights.flow import changes_flow
from dataflow.studies.weights.updates import updates_of
from dataflow.units import format_bytes

MIN_DOTS = 5  # fewer are read from the table


def format_part(result: Result, name: str) -> str:
    """Return the geometric mean of the medians of the runs of one part, in ms.

    A transfer begins on one node and ends on another, so it may be too short for their clocks.
    """
    medians = [median(getattr(updates_of(run), f"{name}_seconds")) for run in result.shown_runs]
    if name == "transfer" and any(is_within_clock_error(result, seconds) for seconds in medians):
        return "-"
    return format_milliseconds(typical_seconds(medians))


def peak_memory(result: Result, side: str) -> str:
    """Return the GiB of the largest process at the "source" or "reader" of parameters."""
    edges = [edge for edge in result.flow.edges if edge.message.is_parameters]
    actors = {result.flow.actor(getattr(edge, side)) for edge in edges}
    costs = [
        cost for run in result.shown_runs for name, cost in run.processes.items() if name in actors
    ]
    peak = max(
        (cost.peak_memory_bytes or 0 for cost in costs), default=0
    )  # several actors can share a process
    return f"{peak / 2**30:.1f}" if peak else "-"


def bytes_per_receiver(result: Result) -> str:
    """Return the bytes that the first receiver gets per update, as they are sent."""
    flow = result.flow
    reader = next(flow.actor(edge.reader) for edge in flow.edges if edge.message.is_parameters)
    sent = changes_flow(flow) if result.workload.message == "indices" else flow
    return format_bytes(sum(edge.bytes for edge in sent.edges_to_actor(reader)))


def count_reads(result: Result) -> str:
    updates = [*map(updates_of, result.shown_runs)]
    return f"{sum(u.torn_reads for u in updates):,} of {sum(u.reads for u in updates):,}"


UPDATE_COLUMNS = (
    Column("configuration", tables.marked_label),
    tables.READERS,
    Column(
        "messages", lambda r: f"{sum(message.is_parameters for message in r.flow.messages):,}", 3
    ),
    Column("sent to the first receiver", bytes_per_receiver, 3),
    Column("ms per update", tables.format_typical),
    Column("95 % interval", tables.format_interval, 4),
    Column("publish ms", lambda r: format_part(r, "publish"), 1),
    Column("transfer ms", lambda r: format_part(r, "transfer"), 1),
    Column("install ms", lambda r: format_part(r, "install"), 1),
    Column("stall ms", lambda r: format_part(r, "stall")),
    Column("first ms", lambda r: format_milliseconds(median(r.first_seconds)), 4),
    Column("x memcpy", lambda r: format_significant(r.times_memcpy), 2),
    Column("stored", tables.format_stored, 5),
    Column("page faults", tables.format_faults, 5),
    Column("peak GiB of a trainer", lambda r: peak_memory(r, "source"), 3),
    Column("peak GiB of a receiver", lambda r: peak_memory(r, "reader"), 3),
    Column("torn reads", count_reads, 4),
    tables.OVERHEAD,
)


def describe_readers(group: Group) -> str:
    """Return how many tensors go to how many readers, and which configuration is the fastest."""
    flow = group.done[0].flow
    edges = [edge for edge in flow.edges if edge.message.is_parameters]
    readers = {flow.actor(edge.reader) for edge in edges}
    tensors = sum(len(edge.message.fields) for edge in edges) // len(readers)
    fastest = describe_fastest(group.results)
    return f"Tensors per reader: {tensors:,}. Readers: {len(readers)}, on one machine. {fastest}"


def draw_updates(group: Group) -> Chart | None:
    if len(group.done) < MIN_DOTS:
        return None
    first = group.ordered[0]
    name = f"{first.table}_{first.workload.sizes['model']}".replace("-", "_")
    return draw_dots(group, name, f"Time per update: {title_of(first)}")


def update_table(name: str) -> Table:
    """Return a table of updates. Messages of every size and form are together."""
    columns, groups = (lambda group: UPDATE_COLUMNS), by_sizes(*SENDER_SIZES)
    return Table(name, columns, sentence=describe_readers, chart=draw_updates, group_by=groups)


SECTIONS = {name: update_table(name) for name in ("weights", "rdt-weights")}
