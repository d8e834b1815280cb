"""Say how several nodes are shown: the time of each transport beside that of the network alone."""

from statistics import median

from dataflow.analysis.links import crossings_of, link_seconds, times_link
from dataflow.analysis.result import Result
from dataflow.report import tables
from dataflow.report.groups import Table, title_of
from dataflow.report.tables import Column, format_milliseconds, format_significant
from dataflow.units import format_bytes


def describe_layout(result: Result) -> str:
    """Return where the actors run, and the network between the nodes."""
    nodes = {node for run in result.ok_runs for node in run.nodes.values()}
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
    return crossings_of(result, result.shown_runs[0]).bytes_by_link.total()


def busy_cores(result: Result) -> float:
    """Return the cores that the busiest node used."""
    return median(max((cost.busy_cores for cost in run.node_costs.values()), default=0) for run in result.shown_runs)


COLUMNS = (
    Column("layout", describe_layout, is_text=True),
    Column("configuration", describe_configuration, is_text=True, untimed=True),
    tables.READERS,
    tables.TIME,
    Column("95 % interval", tables.format_interval, 4),
    Column("crosses the links", lambda r: format_bytes(crossing_bytes(r)), 3),
    Column("ms of the link alone", lambda r: format_milliseconds(link_seconds(r))),
    Column("x link", lambda r: format_significant(times_link(r))),
    Column("busy cores (largest of all nodes)", lambda r: format_significant(busy_cores(r)), 4),
    tables.OVERHEAD,
    tables.DATA_PATH,
)


CLUSTER = Table(
    "cluster",
    columns=lambda group: COLUMNS,
    rows=lambda group: sorted(group.done, key=lambda result: (describe_layout(result), -result.typical_seconds)),
    title=lambda result: f"{title_of(result)}, by layout",
)
