"""Build the table and the chart of several nodes: the time of each transport beside that of the network alone."""

from collections.abc import Sequence
from statistics import median

from dataflow.analysis.result import Result
from dataflow.report import tables
from dataflow.report.charts import Dot, DotChart
from dataflow.report.dots import LOG_MILLISECONDS, make_dot
from dataflow.report.tables import Column, Section, format_milliseconds, format_significant, make_table
from dataflow.units import format_bytes


def describe_layout(result: Result) -> str:
    """Return where the actors run, and the network between the nodes."""
    nodes = {node for run in result.shown_runs for node in run.nodes.values()}
    if len(nodes) == 1:
        return "all actors on the driver's node"
    link = result.configuration.layout.link
    return f"{len(nodes)} nodes" + (f", {link}" if link else "")


def describe_configuration(result: Result) -> str:
    """Return the name with the form of messages, without the layout, which has a column of its own."""
    form = result.workload.message
    return result.name if form == "flat" else f"{result.name} --message {form}"


def crossing_bytes(result: Result) -> int:
    """Return the bytes per iteration that cross the links."""
    crossings = result.crossings(result.shown_runs[0])
    return round(crossings.bytes_by_link(range(1, 1 + crossings.period)).total() / crossings.period)


def busy_cores(result: Result) -> float:
    """Return the cores that the busiest node used."""
    return median(max((cost.busy_cores for cost in run.node_costs.values()), default=0) for run in result.shown_runs)


COLUMNS = (
    Column("layout", describe_layout, is_text=True),
    Column("configuration", describe_configuration, is_text=True),
    Column("readers get", tables.READERS.cell, is_text=True),
    Column("ms per iteration", lambda r: format_milliseconds(r.typical_seconds)),
    Column("95 % interval", tables.format_interval, 4),
    Column("crosses the links", lambda r: format_bytes(crossing_bytes(r)), 3),
    Column("ms of the link alone", lambda r: format_milliseconds(r.link_seconds)),
    Column("x link", lambda r: format_significant(r.times_link)),
    Column("busy cores (largest of all nodes)", lambda r: format_significant(busy_cores(r)), 4),
    tables.OVERHEAD,
    tables.DATA_PATH,
)  # fmt: skip


def build_cluster(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    done = sorted(done, key=lambda result: (describe_layout(result), -result.typical_seconds))
    groups: dict[str, list[Dot]] = {}
    limits: dict[str, float] = {}
    for layout in dict.fromkeys(map(describe_layout, done)):
        placed = [result for result in done if describe_layout(result) == layout]
        dots = [make_dot(result, describe_configuration(result)) for result in placed]
        # The least of them is that of transports that send each message once per node.
        link_seconds = min((result.link_seconds for result in placed if result.link_seconds), default=None)
        if link_seconds:
            layout += f" (line: the link alone, {format_milliseconds(link_seconds)} ms)"
            limits[layout] = 1e3 * link_seconds
        groups[layout] = dots
    title = f"{done[0].flow.title}, {format_bytes(done[0].workload.bytes_per_iteration)} per iteration, by layout"
    chart = DotChart("cluster", title, groups, LOG_MILLISECONDS, panel_limits=limits)
    placed = [result for result in done if result.times_link and result.readers_own_a_copy]
    sentence = ""
    if placed:
        best = min(placed, key=lambda result: result.times_link or 0)
        sentence = (f"Closest to the link's own time: {describe_configuration(best)} ({describe_layout(best)}), "
                    f"{format_significant(best.times_link)} times as long.")  # fmt: skip
    return [Section("cluster", title, sentence, make_table(done, COLUMNS), chart)]
