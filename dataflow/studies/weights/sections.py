# SPDX-License-Identifier: Apache-2.0
"""Say how updates of parameters are shown: their parts, the memory of senders and receivers, and torn reads."""

from dataclasses import replace
from statistics import fmean, median

from dataflow.analysis.result import Result
from dataflow.analysis.stages import is_within_clock_error
from dataflow.analysis.statistics import typical_seconds
from dataflow.flows.flow import Edge, Flow
from dataflow.plan.options import SENDER_SIZES
from dataflow.report import tables
from dataflow.report.charts import Chart
from dataflow.report.result_charts import draw_dots
from dataflow.report.sections import Group, Table, by_sizes, title_of
from dataflow.report.sentences import describe_fastest
from dataflow.report.tables import Column, format_milliseconds, format_significant
from dataflow.studies.weights.flow import changes_flow
from dataflow.studies.weights.updates import updates_of
from dataflow.units import format_bytes

MIN_DOTS = 5  # fewer are read from the table


def format_part(result: Result, name: str) -> str:
    """Return the geometric mean of the means of the runs of one part, in ms.

    A transfer begins on one node and ends on another: if it is too short for their clocks, return "-".
    """
    means = []
    for run in result.shown_runs:
        seconds = getattr(updates_of(run), f"{name}_seconds")
        means.append(fmean(seconds))
    if name == "transfer":
        is_too_short = any(is_within_clock_error(result, seconds) for seconds in means)
        if is_too_short:
            return "-"
    return format_milliseconds(typical_seconds(means))


def peak_memory(result: Result, side: str) -> str:
    """Return the GiB of the largest process at the "source" or "reader" of parameters."""
    flow = result.flow
    edges = parameter_edges(flow)
    actors = {flow.actor(getattr(edge, side)) for edge in edges}
    peak = 0
    for run in result.shown_runs:
        costs = [cost for name, cost in run.processes.items() if name in actors]
        for cost in costs:  # several actors can share a process
            peak = max(peak, cost.peak_memory_bytes or 0)
    return f"{peak / 2**30:.1f}" if peak else "-"


def parameter_edges(flow: Flow) -> list[Edge]:
    """Return the edges whose messages are parameters."""
    return [edge for edge in flow.edges if edge.message.is_parameters]


def bytes_per_receiver(result: Result) -> str:
    """Return the bytes that the first receiver gets per update, as they are sent."""
    flow = result.flow
    first = parameter_edges(flow)[0]
    reader = flow.actor(first.reader)
    sent = changes_flow(flow) if result.workload.message == "indices" else flow
    edges = sent.edges_to_actor(reader)
    return format_bytes(sum(edge.bytes for edge in edges))


def count_reads(result: Result) -> str:
    """Return how many reads of the parameters saw two versions at once, and how many reads there were."""
    updates = [updates_of(run) for run in result.shown_runs]
    torn = sum(update.torn_reads for update in updates)
    reads = sum(update.reads for update in updates)
    return f"{torn:,} of {reads:,}"


def count_messages(result: Result) -> str:
    """Return the number of different messages of parameters."""
    messages = [message for message in result.flow.messages if message.is_parameters]
    return f"{len(messages):,}"


UPDATE_COLUMNS = (
    Column("configuration", tables.marked_label),
    tables.READERS,
    Column("messages", count_messages, rank=3),
    Column("sent to the first receiver", bytes_per_receiver, rank=3),
    Column("mean ms (p50, p95) per update", tables.format_with_tail),
    tables.SLOW_ITERATIONS,
    Column("95 % interval", tables.format_interval, rank=4),
    Column("publish ms", lambda r: format_part(r, "publish"), rank=1),
    Column("transfer ms", lambda r: format_part(r, "transfer"), rank=1),
    Column("install ms", lambda r: format_part(r, "install"), rank=1),
    Column("stall ms", lambda r: format_part(r, "stall")),
    Column("first ms", lambda r: format_milliseconds(median(r.first_seconds)), rank=4),
    Column("x memcpy", lambda r: format_significant(r.times_memcpy), rank=2),
    Column("stored", tables.format_stored, rank=5),
    Column("page faults", tables.format_faults, rank=5),
    Column("peak GiB of a trainer", lambda r: peak_memory(r, "source"), rank=3),
    Column("peak GiB of a receiver", lambda r: peak_memory(r, "reader"), rank=3),
    Column("torn reads", count_reads, rank=4),
    tables.OVERHEAD,
)


def describe_readers(group: Group) -> str:
    """Return how many tensors go to how many readers, and which configuration is the fastest."""
    flow = group.done[0].flow
    edges = parameter_edges(flow)
    readers = {flow.actor(edge.reader) for edge in edges}
    count = len(readers)
    tensors = sum(len(edge.message.fields) for edge in edges)
    per_reader = tensors // count
    fastest = describe_fastest(group.results)
    return f"Tensors per reader: {per_reader:,}. Readers: {count}, on one machine. {fastest}"


def draw_updates(group: Group) -> Chart | None:
    """Return the chart of a group of updates; None if it has too few."""
    if len(group.done) < MIN_DOTS:
        return None
    first = group.ordered[0]
    name = f"{first.table}_{first.workload.sizes['model']}".replace("-", "_")
    return draw_dots(group, name, f"Time per update: {title_of(first)}")


def update_table(name: str) -> Table:
    """Return a table of updates. Messages of every size and form are together."""
    return Table(
        name,
        columns=lambda group: UPDATE_COLUMNS,
        sentence=describe_readers,
        has_ranking=True,
        chart=draw_updates,
        group_by=by_sizes(*SENDER_SIZES),
    )


def keeps_no_memory(group: Group, result: Result) -> bool:
    """Return whether pages have a row. Of kept memory, they have newer times (docs/page-faults.md)."""
    return "retain_memory" not in result.configuration.flags


SECTIONS = {
    "weights": replace(update_table("weights"), is_on_page=keeps_no_memory),
    "rdt-weights": update_table("rdt-weights"),
}
