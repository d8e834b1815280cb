# SPDX-License-Identifier: Apache-2.0
"""Say how the tables of the suite are shown, except those of a study."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from statistics import median

from dataflow.analysis.comparison import Pair, find_transports
from dataflow.analysis.links import crossings_of, link_seconds
from dataflow.analysis.result import SLOW, UNCOUNTED, Result, median_of
from dataflow.analysis.statistics import UNRANKED
from dataflow.catalogue.catalogue import REFERENCE, SIMPLEST
from dataflow.plan.plan import bytes_by_link
from dataflow.report import tables
from dataflow.report.allocator_tables import ALLOCATOR, ALLOCATOR_LONG
from dataflow.report.charts import Chart
from dataflow.report.gpu_tables import GPU
from dataflow.report.huge_page_tables import HUGE_PAGES
from dataflow.report.line_charts import LineChart
from dataflow.report.result_charts import draw_dots
from dataflow.report.sections import FAN_IN, Group, Table, is_baseline, title_of
from dataflow.report.sentences import (
    PAIR_FAULTS,
    PAIR_TAILS,
    PAIR_TIMES,
    PAIR_VERDICT,
    describe_fastest,
    format_gain,
    format_ratio,
    format_times_as_fast,
)
from dataflow.report.stage_tables import draw_causes, stage_tables
from dataflow.report.sweep_charts import SWEPT, Sweep, draw_kept_memory, draw_sizes
from dataflow.report.tables import (
    MAIN_COLUMNS,
    Column,
    format_microseconds,
    format_milliseconds,
    format_significant,
)
from dataflow.units import format_bytes

KEPT_REFERENCES = f"{SIMPLEST} --retain-memory"
ONE_NODE = "all actors on the driver's node"
IN_CAMPAIGNS = "see campaigns"  # newer, and of several boots


def find_baseline(group: Group) -> Result | None:
    """Return the result whose time is divided by those of the others; None if there is nothing to compare."""
    transports = find_transports(group.done)
    return transports[0] if transports and len(group.done) > 1 else None


def have_newer_factor(group: Group, results: Sequence[Result]) -> bool:
    """Return whether campaigns have a factor of these two results, which do the same work."""
    works = {result.work for result in results}
    return len(works) == 1 and all(group.is_in_campaigns(result) for result in results)


def configuration_columns(group: Group) -> Sequence[Column]:
    """Return the main columns, and how many times as fast as the baseline each configuration is."""
    baseline = find_baseline(group)
    if baseline is None:
        return MAIN_COLUMNS

    def format_factor(result: Result) -> str:
        if result is not baseline and have_newer_factor(group, [result, baseline]):
            return IN_CAMPAIGNS
        return format_times_as_fast(result, baseline)

    return [*MAIN_COLUMNS, Column(f"times as fast as {baseline.label}", format_factor, rank=2)]


def find_finding(group: Group) -> str:
    """Return how many times as fast the fastest is as the baseline, as in the table: with its interval and memory.

    "" if the table has no such factor, or if the runs do not show it.
    """
    baseline = find_baseline(group)
    if baseline is None or not is_baseline(baseline):
        return ""
    conditions = attrgetter("work", "check_every", "in_flight", "threads")
    alike = [result for result in group.ordered if conditions(result) == conditions(baseline)]
    fastest = [result for result in alike if result.transport.label != REFERENCE][-1]
    ratio = Pair(fastest, baseline).ratio
    is_shown = ratio.verdict not in UNRANKED and ratio.interval is not None
    can_be_ranked = fastest.can_be_ranked and baseline.can_be_ranked
    if not (is_shown and can_be_ranked) or have_newer_factor(group, [fastest, baseline]):
        return ""
    times, ends = format_ratio(ratio)
    text = f"{tables.short_label(fastest)} is {times} ({ends}) times as fast as {tables.short_label(baseline)}"
    if "retain_memory" in fastest.configuration.flags:
        memory = [tables.format_memory(result) for result in (fastest, baseline)]
        text += f", with {' instead of '.join(memory)} GiB"
    return f"{text}.\n"


def draw_configurations(group: Group) -> Chart | None:
    """Return a chart with a dot per result, and what the table says of the fastest one; None for one result."""
    return draw_dots(group, finding=find_finding(group))


CONFIGURATIONS = Table(
    "results",
    configuration_columns,
    lambda group: tables.order_by_readers(group.results),
    sentence=lambda group: describe_fastest(group.results),
    has_ranking=True,
    chart=draw_configurations,
)


def is_new_or_baseline(group: Group, result: Result) -> bool:
    """Return whether campaigns do not have a configuration, or it is the baseline."""
    return is_baseline(result) or not group.is_in_campaigns(result)


def pair_retained(group: Group) -> list[Pair]:
    """Return the results without and with --retain-memory of each size of an iteration."""
    by_size = defaultdict[int, dict[bool, Result]](dict)
    for result in group.done:
        by_size[result.workload.bytes_per_iteration][result.keeps_memory] = result
    return [
        Pair(sides[False], sides[True]) for _, sides in sorted(by_size.items()) if len(sides) == 2
    ]


RETAINED_SIZE = Column(
    "bytes per iteration", lambda pair: format_bytes(pair.old.workload.bytes_per_iteration)
)
RETAINED_COST = Column(
    "memory GiB",
    lambda pair: f"{tables.format_memory(pair.old)} → {tables.format_memory(pair.new)}",
)


def format_both_settled(pair: Pair) -> str:
    """Return after how many iterations the runs without and with kept memory settled."""
    old, new = [tables.format_settled(side.shown_runs) for side in pair.sides]
    return f"{old} → {new}"


# The memory and the warm-up of both sides are beside the factor.
RETAINED_COLUMNS = (
    RETAINED_SIZE,
    PAIR_TIMES,
    *PAIR_TAILS,
    Column("times as fast", format_gain),
    RETAINED_COST,
    replace(PAIR_VERDICT, rank=3),
    replace(PAIR_FAULTS, rank=1),
    Column("settled after (iterations)", format_both_settled, rank=4),
)


def draw_retained(group: Group) -> LineChart | None:
    title = f"References without and with four environment variables: {group.done[0].flow.title}"
    return draw_kept_memory(title, pair_retained(group))


RETAINED_MEMORY = Table(
    "retained-memory",
    columns=lambda group: RETAINED_COLUMNS,
    rows=pair_retained,
    title=lambda result: (
        f"{result.flow.title}: one message per iteration, {result.transport.label}"
    ),
    group_by=lambda result: (result.transport.label, result.workload.changing_sizes),
    chart=draw_retained,
)


MICROBENCHMARK_COLUMNS = (
    Column("configuration", tables.short_label),
    Column("bytes per message", lambda r: f"{r.workload.edges[0].bytes:,}"),
    tables.READERS,
    Column("µs per iteration", lambda r: format_microseconds(r.typical_seconds), is_time=True),
    Column("p50 µs", lambda r: format_microseconds(r.p50_seconds), rank=1),
    Column("p95 µs", lambda r: format_microseconds(r.p95_seconds), rank=1, is_optional=True),
    tables.SLOW_ITERATIONS,
    Column(
        "µs per hop", lambda r: format_microseconds(r.typical_seconds / r.flow.path_length(max))
    ),
    tables.OVERHEAD,
)


def smallest_first(group: Group) -> Sequence[Result]:
    return sorted(group.ordered, key=lambda result: result.workload.bytes_per_iteration)


MICROBENCHMARKS = Table(
    "microbenchmarks",
    columns=lambda group: MICROBENCHMARK_COLUMNS,
    rows=smallest_first,
    title=lambda result: result.flow.title,
    group_by=lambda result: (),
)


def describe_layout(result: Result) -> str:
    nodes: set[int] = set()
    for run in result.ok_runs:
        nodes.update(run.nodes.values())
    if len(nodes) == 1:
        return ONE_NODE
    link = result.configuration.layout.link
    return f"{len(nodes)} nodes" + (f", {link}" if link else "")


def is_new_or_over_links(group: Group, result: Result) -> bool:
    """Return whether actors are on several nodes, or campaigns do not have the configuration."""
    is_on_one_node = describe_layout(result) == ONE_NODE
    return not (is_on_one_node and group.has_newer_without_links(result))


def format_crossing(result: Result) -> str:
    """Return how many bytes of an iteration cross a link between nodes."""
    _, crossings = crossings_of(result, result.shown_runs[0])
    return format_bytes(bytes_by_link(crossings).total())


def format_busy_cores(result: Result) -> str:
    """Return how many cores of the busiest node were busy, as the median of the runs."""
    busiest = []
    for run in result.shown_runs:
        cores = [cost.busy_cores for cost in run.node_costs.values()]
        busiest.append(max(cores, default=0))
    return format_significant(median(busiest))


CLUSTER_COLUMNS = (
    Column("layout", describe_layout, is_text=True),
    Column("configuration", tables.label_without_layout, is_text=True, untimed=True),
    tables.READERS,
    tables.TIME,
    *tables.TAIL_COLUMNS,
    Column("95 % interval", tables.format_interval, rank=4),
    Column("crosses the links", format_crossing, rank=3),
    Column("ms of the link alone", lambda r: format_milliseconds(link_seconds(r)), rank=2),
    tables.LINK,
    Column("busy cores (largest of all nodes)", format_busy_cores, rank=4),
    tables.OVERHEAD,
    tables.DATA_PATH,
)


def by_layout(group: Group) -> Sequence[Result]:
    """Return the results in the order of their layouts, the slowest of each one first."""
    return sorted(group.done, key=lambda result: (describe_layout(result), -result.typical_seconds))


CLUSTER = Table(
    "cluster",
    columns=lambda group: CLUSTER_COLUMNS,
    rows=by_layout,
    title=lambda result: f"{title_of(result)}, by layout",
    is_on_page=is_new_or_over_links,
)


def setup_column(step: str) -> Column:
    """Return the median time of a step of the setup, of all workers together; "-" if a transport does not have it."""

    def format_step(result: Result) -> str:
        seconds = [
            [run.setup_seconds[step]] for run in result.shown_runs if step in run.setup_seconds
        ]
        return format_milliseconds(median_of(seconds))

    return Column(f"{step} ms", format_step, is_optional=True)


SETUP_COLUMNS = (
    MAIN_COLUMNS[0],
    *map(setup_column, ("agents", "registration", "registration of targets")),
    # The first iteration makes the connections.
    Column("first iteration ms", lambda r: format_milliseconds(median(r.first_seconds))),
    setup_column("deregistration"),
)


def is_about_direct_transport(result: Result) -> bool:
    """Return whether a row belongs to the subject of docs/rdt.md, or is its baseline."""
    is_registered = result.transport.sends_registered_only
    return result.transport.runtime.name == "rdt" or is_registered or is_baseline(result)


BESIDE = replace(
    CONFIGURATIONS,
    name="beside",
    chart=lambda group: None,
    is_preferred=is_about_direct_transport,
)


def draw_direct_transport(group: Group) -> Chart | None:
    """Return the chart of more than two results; None for fewer, which are read from the table.

    Its title compares nothing, because the fastest rows of the table are no Ray Direct Transport.
    """
    if len(group.done) <= 2:
        return None
    return draw_dots(group, is_preferred=is_about_direct_transport)


RDT = replace(
    BESIDE,
    name="rdt",
    columns=lambda group: SETUP_COLUMNS,
    sentence=lambda group: "",
    before=[replace(BESIDE, name="rdt", chart=draw_direct_transport)],
    title=lambda result: f"What happens once, and the first iteration: {title_of(result)}",
)


def swept_size(result: Result) -> str:
    return next(name for name in SWEPT if result.table.endswith(name.replace("_", "-")))


def swept_value(result: Result, swept: str) -> int:
    """Return the value of the swept size of a result."""
    if swept == "in_flight":
        return result.in_flight
    return int(result.workload.sizes[swept])


def order_of_readers(sweep: Sweep) -> int:
    """Return the position of what readers get. The largest value counts: Ray gives views of large messages only."""
    return [*tables.READER_GROUPS].index(tables.readers_of(sweep.largest))


def find_sweeps(group: Group) -> list[Sweep]:
    """Return the results of each configuration that has a time, in groups of equal work at the largest value."""
    swept = swept_size(group.done[0])
    by_label: dict[str, dict[int, Result]] = defaultdict(dict)
    for result in group.results:
        if result.status in ("ok", *UNCOUNTED):
            label = tables.short_label(result, swept)
            by_label[label][swept_value(result, swept)] = result
    sweeps = [Sweep(dict(sorted(results.items()))) for results in by_label.values()]
    timed = [sweep for sweep in sweeps if sweep.timed]
    return sorted(timed, key=order_of_readers)


def is_new_at_all_sizes(group: Group, sweep: Sweep) -> bool:
    """Return whether pages have no newer times by size; docs/page-faults.md has those of KEPT_REFERENCES."""
    largest = sweep.largest
    is_superseded = swept_size(largest) == "iteration_bytes" and largest.name == KEPT_REFERENCES
    return not (group.in_campaigns and is_superseded)


def has_tail(result: Result) -> bool:
    """Return whether many iterations of a result were slow."""
    return bool(result.seconds) and result.slow_share > tables.MIN_SLOW_SHARE


def format_point(result: Result) -> str:
    """Return the time of a result of a sweep; if many iterations were slow, with the median and 95th percentile."""
    cell = tables.format_with_tail if has_tail(result) else tables.format_typical
    return tables.format_cell(replace(tables.TIME, cell=cell), result)


def explain_tails(group: Group) -> Sequence[str]:
    """Return what is in brackets in the cells of a sweep; nothing without brackets."""
    if not any(map(has_tail, group.done)):
        return []
    percent = 100 * tables.MIN_SLOW_SHARE
    return [
        f"In brackets: p50 and p95 of the iterations, where more than {percent:g} % of them took more than {SLOW:g} "
        "times the median of their run."
    ]


def format_at(sweep: Sweep, value: int) -> str:
    """Return the time at one value; "-" if the configuration was not measured there."""
    result = sweep.results.get(value)
    return format_point(result) if result else "-"


def format_largest_overhead(sweep: Sweep) -> str:
    worst = max(sweep.timed.values(), key=lambda result: result.overhead_share or 0)
    return tables.OVERHEAD.cell(worst)


def sweep_columns(group: Group) -> Sequence[Column]:
    """Return the columns of a sweep: what readers get, a column per value, and the largest overhead."""
    swept = swept_size(group.done[0])
    values: set[int] = set()
    for sweep in find_sweeps(group):
        values.update(sweep.results)
    header = format_bytes if swept == "iteration_bytes" else str
    by_value = [Column(header(value), partial(format_at, value=value)) for value in sorted(values)]
    return (
        Column("configuration", lambda sweep: tables.short_label(sweep.largest, swept)),
        Column("readers get", lambda sweep: tables.READERS.cell(sweep.largest), is_text=True),
        *by_value,
        Column("largest overhead", format_largest_overhead),
    )


def sweep_title(result: Result) -> str:
    swept = swept_size(result)
    workload = result.flow.title if swept == "iteration_bytes" else title_of(result)
    return f"Milliseconds per iteration by {SWEPT[swept]}: {workload}"


def draw_sweep(group: Group) -> LineChart | None:
    """Return the chart of what pages have no newer times of; None if they have them of all."""
    shown = [sweep for sweep in find_sweeps(group) if is_new_at_all_sizes(group, sweep)]
    if not shown:
        return None
    first = group.done[0]
    return draw_sizes(swept_size(first), sweep_title(first), shown, group.done)


def has_causes_of_its_own(group: Group, result: Result) -> bool:
    """Return whether a page shows a traced configuration.

    It doesn't if the campaigns have newer times of it with kept memory, or if it only adds a copy at the sender.
    """
    return "copy_in" not in result.configuration.flags and not group.has_newer_gain(result)


SWEEP = Table(
    "sweeps",
    sweep_columns,
    find_sweeps,
    sweep_title,
    chart=draw_sweep,
    notes=explain_tails,
    group_by=lambda result: (),
    is_on_page=is_new_at_all_sizes,
)
SECTIONS = {  # in the order of a report
    "headline": replace(CONFIGURATIONS, name="headline"),
    "own-flow": replace(CONFIGURATIONS, name="own-flow"),
    "without-pauses": replace(CONFIGURATIONS, name="without-pauses"),
    "cluster-driver": replace(CONFIGURATIONS, name="cluster-driver"),
    "changing-sizes": replace(CONFIGURATIONS, name="changing-sizes"),
    "configurations": replace(CONFIGURATIONS, is_on_page=is_new_or_baseline),
    "paired": CONFIGURATIONS,
    "stages": replace(
        stage_tables("stages", draw_causes),
        is_on_page=has_causes_of_its_own,
    ),
    "cluster": CLUSTER,
    "cluster-stages": stage_tables("cluster-stages"),
    FAN_IN: replace(CONFIGURATIONS, name=FAN_IN),
    "gpu": GPU,
    "microbenchmarks": MICROBENCHMARKS,
    "retained-memory": RETAINED_MEMORY,
    "allocator": ALLOCATOR,
    "allocator-long": ALLOCATOR_LONG,
    "huge-pages": HUGE_PAGES,
    "rdt": RDT,
    "beside": BESIDE,
    "rdt-stages": stage_tables("rdt-stages"),
    **dict.fromkeys(
        ("sweep-iteration-bytes", "sweep-fields", "sweep-batch-size", "sweep-actors"), SWEEP
    ),
    **{
        name: replace(SWEEP, name=name)
        for name in ("in-flight", "rdt-fields", "agentic-iteration-bytes")
    },
}
