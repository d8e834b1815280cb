"""Build what is presented from results: a list of sections with sentence, table, chart and notes.

console.py, markdown.py and html.py render this list. Records name their table; BUILDERS has a function for each table.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, median
from typing import Any

import msgspec

from dataflow.analysis import stages
from dataflow.analysis.comparison import Pair, find_result, find_transports
from dataflow.analysis.result import UNCOUNTED, Result, with_shared_references
from dataflow.analysis.statistics import interval
from dataflow.catalogue.catalogue import BASELINE, CHATLEARN
from dataflow.errors import RecordError
from dataflow.flows.catalogue import FLOWS
from dataflow.plan.options import SENDER_SIZES
from dataflow.records.machine import machine_line
from dataflow.records.schema import Run
from dataflow.report import tables
from dataflow.report.charts import Bar, BarChart, Dot, DotChart, LineChart, Series
from dataflow.report.cluster_sections import build_cluster, describe_configuration
from dataflow.report.dots import LOG_MILLISECONDS, make_dots, memcpy_lines
from dataflow.report.retained_sections import build_retained_sizes
from dataflow.report.sentences import (
    PAIR_COLUMNS,
    SIMPLEST,
    describe_change,
    describe_fastest,
    format_factor,
    format_speed_up,
    format_time,
    old_and_new,
)
from dataflow.report.soak_sections import build_soak
from dataflow.report.tables import Column, Section, Table, format_milliseconds, format_significant, make_table
from dataflow.studies.pipeline.sections import build_pipeline, build_timeline
from dataflow.studies.weights.update_table import UPDATE_COLUMNS
from dataflow.studies.zero.sections import build_zero
from dataflow.units import format_bytes

# The first chart of README.md has these configurations. Their readers own a copy.
HEADLINE = [f"{name}{flag}" for name in (BASELINE, SIMPLEST, "graph shm") for flag in ("", " --retain-memory")]
# Changes of ChatLearn's messages: from, to, and what differs. A change without a clear difference is not shown.
ONE_BUFFER = "one buffer per message instead of hundreds of tensors"
JAGGED = "two tensors per list, values and offsets, instead of a tensor per sample"
CHATLEARN_CHANGES = (
    ("store ref-queue as sent", "store ref-queue", "views are sent without the rest of their storage"),
    ("store ref-queue as sent", "store ref-queue --retain-memory as sent", "freed memory stays in the process"),
    ("store ref-queue", "store ref-queue packed", ONE_BUFFER),
    ("store ref-queue packed", "store ref-queue --retain-memory packed", "freed memory stays in the process"),
    ("store ref-queue packed", "store ref-queue --keep-queues packed", "queues are not made anew in every episode"),
    ("store ref-queue --keep-queues packed", "store refs packed", "no queue actors"),
    ("store refs", "store refs packed", ONE_BUFFER),
    ("store refs", "store refs jagged", JAGGED),
    ("store refs", "store refs tensordict", "a TensorDict with nested tensors, as in verl"),
    ("store refs packed", "graph shm packed", "channels of a compiled graph instead of calls and objects"),
    ("graph shm as sent", "graph shm", "views are sent without the rest of their storage"),
    ("graph shm", "graph shm packed", ONE_BUFFER),
    ("graph shm", "graph shm jagged", JAGGED),
)
MIN_DOTS = 5  # fewer are read from the table
SWEPT = {"payload": "bytes per iteration", "fields": "tensors per message (of equal bytes)", "actors": "actors",
         "batch_size": "samples per message", "in_flight": "iterations in flight"}  # fmt: skip


def sections(results: Sequence[Result]) -> list[Section]:
    """Return the sections of all results. Raise RecordError for an unknown table or a contradictory trace."""
    groups: dict[tuple[Any, ...], list[Result]] = defaultdict(list)
    for result in results:
        # A paired measurement can have the same configuration twice, from two checkouts.
        split = [Result((record,)) for record in result.records] if result.paired else [result]
        groups[_group_key(result)] += split
    built: list[Section] = []
    for key in sorted(groups, key=lambda key: key[:4]):
        group = with_shared_references(groups[key])
        done = [result for result in group if result.status == "ok"]
        failures = [f"{result.label}: {result.failure}." for result in group if result.failure]
        if done:
            uncounted = [result for result in group if result.status in UNCOUNTED]
            parts = BUILDERS[group[0].table](done, group, results)
            *others, last = [add_uncounted(section, uncounted) for section in parts]
            built += [*others, replace(last, notes=[*last.notes, *failures, *provenance(done)])]
        else:
            table = make_table(group, tables.MAIN_COLUMNS)
            built.append(Section("results", title_of(group[0]), "Nothing was measured.", table, notes=failures))
    return built


def add_uncounted(section: Section, uncounted: Sequence[Result]) -> Section:
    """Return the section with a row for each of these results, which says why it has no time."""
    table = section.table
    if table is None:
        return section
    names = {row[0] for row in table.cells}
    times = [header for header in table.headers if re.search(r"\b(ms|µs) per ", header)]
    rows = []
    for result in uncounted:
        if times and tables.marked_label(result) not in names:
            row = {"configuration": tables.marked_label(result), times[0]: result.status}
            rows.append([row.get(header, "-") for header in table.headers])
    return replace(section, table=replace(table, cells=[*table.cells, *rows]))


def _group_key(result: Result) -> tuple[Any, ...]:
    """Return what the results of one section have in common. The first four values are the order of the sections."""
    workload, builder = result.workload, BUILDERS.get(result.table)
    if builder is None:
        raise RecordError(f"{result.label}: unknown table {result.table!r}: leave this record out")
    order = (list(BUILDERS).index(result.table), [*FLOWS, workload.flow].index(workload.flow), workload.flow)
    if builder in (build_sweep, build_microbenchmarks, build_retained_sizes):
        return order
    if builder is build_weights:  # messages of every size and form together
        return (*order, str(sorted(item for item in workload.sizes.items() if item[0] not in SENDER_SIZES)))
    if builder in (build_pipeline, build_timeline):  # all schedules together
        return (*order, str(sorted(item for item in workload.sizes.items() if item[0] != "schedule")))
    if builder in (build_peers, build_cluster):  # messages of every form together
        return (*order, -workload.bytes_per_iteration, workload.edges)
    if builder is build_zero:
        return (*order, str(sorted(workload.sizes.items())))
    size = result.check_every if builder is build_chatlearn else workload.bytes_per_iteration
    return (*order, -size, workload.edges)


def provenance(results: Sequence[Result]) -> list[str]:
    """Return the machines and versions, and last the boots, the runs, the day and the commits."""
    environments = [environment for result in results for environment in result.environments]
    boots, commits = len({environment.get("boot") for environment in environments}), set()
    for environment in environments:
        changed = " with changes that are not committed" if environment.get("git_dirty") else ""
        commits.add((environment.get("git_commit") or "unknown")[:10] + changed)
    days = sorted({run.started_at[:10] for result in results for run in result.shown_runs})
    counts = sorted({len(result.run_seconds) for result in results})
    ok_runs = [run for result in results for run in result.ok_runs]
    disturbed = sum(map(tables.count_disturbed, results))
    verb = "Counted, although" if any(result.allows_disturbed for result in results) else "Left out, because"
    notes = f" {verb} they were disturbed: {disturbed} of {len(ok_runs)} runs." if disturbed else ""
    unsettled = sum(run.settled is False for run in ok_runs)
    if unsettled:
        notes += f" Left out, because their times had not settled: {unsettled} of {len(ok_runs)} runs."
    return [
        *sorted(set(map(machine_line, environments))),
        f"Boots: {boots}. Runs per configuration: {' to '.join(map(str, dict.fromkeys([min(counts), max(counts)])))}."
        f"{notes} Measured on {' and '.join(days)}, commit {', '.join(sorted(commits))}.",
    ]  # fmt: skip


def title_of(result: Result) -> str:
    return f"{result.flow.title}, {format_bytes(result.workload.bytes_per_iteration)} per iteration"


def build_configurations(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    """Return the table of all configurations of a workload."""
    title, transports = title_of(done[0]), find_transports(done)
    columns = list(tables.MAIN_COLUMNS)
    columns.insert(1, tables.READERS)
    if len(done) > 1:
        for baseline in [r for r in transports if r.name in (BASELINE, SIMPLEST)] or transports[:1]:
            columns.append(Column(f"speed-up over {baseline.label}", partial(format_speed_up, baseline=baseline), 1))
        header = "compared with the configuration that it extends"
        columns.append(Column(header, lambda result: describe_change(result, done), 8, is_text=True))
    table = make_table(tables.order_by_readers(group), columns)
    if group[0].table == "chatlearn-flat":  # its times are also in the tables and charts of "chatlearn"
        return [Section("chatlearn-flat", f"Flat tensors: {title}", "", table)]
    caption = "Line: 95 % interval of the time, from the medians of the runs."
    chart = dot_chart("benchmark_result", f"Time per iteration: {title}", done, make_dots(done), caption)
    if group[0].table == "headline":
        is_drawn = any(result.table == "configurations" for result in everything)
        built = [Section("headline", title, describe_fastest(group), table, None if is_drawn else chart)]
        return [*build_retained_memory(done), *built]
    built = [Section("results", title, describe_fastest(group), table, chart)]
    return [*build_retained_memory(done), *built]


def dot_chart(name: str, title: str, done: Sequence[Result], dots: dict[str, list[Dot]], *caption: str) -> DotChart:
    return DotChart(name, title, dots, LOG_MILLISECONDS, memcpy_lines(done), (*caption, *provenance(done)))


def build_retained_memory(done: list[Result]) -> list[Section]:
    """Return the effect of --retain-memory on each configuration that was measured with and without it."""
    pairs = []
    for result in done:
        flags = {name: value for name, value in result.configuration.flags.items() if name != "retain_memory"}
        plain = find_result(done, result.workload, msgspec.structs.replace(result.configuration, flags=flags))
        if plain and plain is not result:
            pairs.append(Pair(plain, result))
    if not pairs:
        return []
    columns = [
        Column("configuration", lambda pair: tables.short_label(pair.old)),
        *PAIR_COLUMNS,
        Column("first iteration ms", old_and_new(lambda result: format_milliseconds(median(result.first_seconds)))),
        Column("peak GiB", old_and_new(lambda result: f"{result.peak_memory_bytes / 2**30:.1f}")),
    ]
    factors = [1 / pair.ratio.value for pair in pairs if pair.ratio.verdict == "faster"]
    sentence = ""
    if factors:
        sizes = [edge.bytes for edge in done[0].workload.edges]
        low, high = format_significant(min(factors)), format_significant(max(factors))
        sentence = (f"With messages of {format_bytes(min(sizes))} to {format_bytes(max(sizes))}, `--retain-memory` "
                    f"makes {len(factors)} of {len(pairs)} configurations {low} to {high} times as fast.")  # fmt: skip
    notes = provenance([result for pair in pairs for result in (pair.old, pair.new)])
    return [Section("retain-memory", title_of(done[0]), sentence, make_table(pairs, columns), notes=notes)]


def build_stages(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    """Return the time of traced iterations by cause, by stage and by edge, each with a table."""
    for result in done:
        stages.check_trace(result)
    layout = done[0].configuration.layout
    on_nodes = layout.existing_cluster and all(r.configuration.layout == layout for r in done)
    results = {describe_configuration(r) if on_nodes else r.label: r for r in done}
    runs = {label: result.traced_runs for label, result in results.items()}
    totals = {name: fmean(map(stages.iteration_seconds, traced)) for name, traced in runs.items()}
    by_cause = {name: stages.mean_over_runs(stages.attribute_to_causes, traced) for name, traced in runs.items()}
    explained = {name: fmean(stages.attribute(run)[1] for run in traced) for name, traced in runs.items()}
    worst = max(explained, key=lambda label: abs(1 - explained[label]))
    faults = [stages.fault_seconds(run) * 1e6 for result in done for run in result.traced_runs]
    notes = (
        "Mean of the middle half of the iterations of each run, then of the runs. Processes that work at the same time "
        "get equal shares of the time. The stages transfer, loop and wait get time in which no process works.",
        "In the stage wait, Python sees no work: messages, scheduling, wake-ups, and Ray's C++ code.",
        "policy -> is work for all messages that policy sends, -> reward for all messages that reward reads.",
        f"Page faults: their number in each stage, times {min(faults):.2g} to {max(faults):.2g} µs per page fault. "
        "Each run measures this time: (cold copy - warm copy) / page faults of the cold copy.",
        f"The stages add up to {explained[worst]:.1%} of an iteration for {worst}, and to nearly 100 % for the others.",
    )
    bars = []
    for label, total in totals.items():
        shares = {cause: 100 * seconds / total for cause, seconds in by_cause[label].items()}
        bars.append(Bar(label, shares, f"{format_milliseconds(total)} ms"))
    name, title = done[0].table, title_of(done[0])
    share_chart = BarChart(name.replace("-", "_"), f"Time by cause: {title}", bars, stages.ALL_CAUSES,
                           "per cent of an iteration", caption=(notes[0], notes[3], *provenance(done)))  # fmt: skip
    untraced = [result for result in headline_results(everything) if result.workload == done[0].workload]
    cause_chart = None if on_nodes else _cause_chart(by_cause, untraced)  # they ran on one node

    def section(kind: str, attribute: Callable[[Run], Any], order: Sequence[str], **fields: Any) -> Section:
        parts = {label: stages.mean_over_runs(attribute, traced) for label, traced in runs.items()}
        seen = dict.fromkeys(name for seconds in parts.values() for name in seconds)
        names = sorted(seen, key=lambda name: order.index(name) if name in order else len(order))
        cells = []
        for label, total in totals.items():
            too_short = results[label].is_within_clock_error
            shown = {name: seconds for name, seconds in parts[label].items() if not seconds or not too_short(seconds)}
            cells.append([label, *map(format_milliseconds, (total, *map(shown.get, names)))])
        table = Table(["configuration", "mean ms per iteration", *names], cells)
        return Section(name, f"Milliseconds by {kind}: {title}", "", table, **fields)

    return [
        section("cause", stages.attribute_to_causes, stages.ALL_CAUSES, chart=cause_chart),
        section("stage", lambda run: stages.attribute(run)[0], stages.STAGES, chart=share_chart),
        section("edge", stages.attribute_to_edges, (stages.WAITING, *map(str, done[0].flow.edges)), notes=notes),
    ]


def _cause_chart(causes: Mapping[str, Mapping[str, float]], untraced: Sequence[Result]) -> BarChart | None:
    """Return the times without tracing, divided like the traced iterations, slowest first; None if there are none."""
    shown = [result for result in find_transports(untraced) if result.name in HEADLINE and result.label in causes]
    if not shown:
        return None
    shown.sort(key=lambda result: -result.typical_seconds)
    slowest, bars = shown[0].label, []
    for result in shown:
        milliseconds, total = 1e3 * result.typical_seconds, sum(causes[result.label].values())
        segments = {cause: milliseconds * seconds / total for cause, seconds in causes[result.label].items()}
        ends = interval(result.run_seconds)
        bars.append(Bar(result.label, segments, format_time(result), (1e3 * ends[0], 1e3 * ends[1]) if ends else None))
    largest = max(causes[slowest], key=causes[slowest].__getitem__)
    share = causes[slowest][largest] / sum(causes[slowest].values())
    caption = f"{title_of(shown[0])}. Times and 95 % intervals (lines) without tracing, causes as in docs/stages.md."
    return BarChart("headline", f"{share:.0%} of the time of {slowest} is {largest}.", bars, stages.ALL_CAUSES,
                    "milliseconds per iteration", memcpy_lines(shown), (caption, *provenance(shown)))  # fmt: skip


def headline_results(results: Sequence[Result]) -> list[Result]:
    """Return the results of the table "headline", or of "configurations" if there are none, of the largest workload."""
    for table in ("headline", "configurations"):
        chosen = [result for result in results if result.table == table]
        if any(result.status == "ok" for result in chosen):
            largest = max((result.workload for result in chosen), key=lambda workload: workload.bytes_per_iteration)
            return with_shared_references([result for result in chosen if result.workload == largest])
    return []


def build_chatlearn(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    """Return ChatLearn's own messages over every transport, and flat tensors of as many bytes as packed ones."""
    done = tables.order_by_readers(done)
    first, batch_size = done[0], int(done[0].workload.sizes["batch_size"])
    queues = [r for r in done if r.transport.label == CHATLEARN and "sink" not in r.configuration.flags]
    baseline = next((result for result in queues if result.workload.sizes.get("as_sent")), None)
    flat = {r.configuration: r for r in everything if r.table == "chatlearn-flat" and r.status == "ok"}

    def flat_milliseconds(result: Result) -> str:
        other = flat.get(result.configuration) if result.workload.message == "packed" else None
        return format_milliseconds(other.typical_seconds if other else None)

    columns = [
        Column("configuration", tables.short_label),
        Column("in flight", lambda r: str(r.in_flight)),
        Column("ms per iteration", lambda r: format_milliseconds(r.typical_seconds)),
        Column("ms as one flat tensor", flat_milliseconds, 3),
        Column("stored per iteration", tables.format_stored, 4),
        Column("page faults", tables.format_faults, 4),
        tables.READERS,
        Column("x memcpy", lambda r: format_significant(r.times_memcpy), 1),
        tables.OVERHEAD,
        Column("speed-up over ref-queue as sent", lambda r: format_speed_up(r, baseline)),
    ]
    title = f"{title_of(first)}, {batch_size} samples, {first.check_every} iterations per episode"
    dots = make_dots(done, lambda result: f"{tables.short_label(result)}, {result.in_flight} in flight")
    chart = dot_chart("chatlearn_episodes", f"Time per iteration: {title}", done, dots)
    episodes = Section("episodes", title, "", make_table(done, columns), chart)
    return [Section("chatlearn-changes", title, describe_changes(done)), episodes]


def describe_changes(done: Sequence[Result]) -> str:
    """Return a line of a list for each of CHATLEARN_CHANGES that was measured and makes a clear difference."""
    by_label = {tables.short_label(result): result for result in done}
    lines = []
    for old, new, difference in CHATLEARN_CHANGES:
        if old in by_label and new in by_label:
            ratio = Pair(by_label[old], by_label[new]).ratio
            if ratio.verdict in ("faster", "slower"):
                lines.append(f"\n* {difference} (`{old}` → `{new}`): {format_factor(ratio)}")
    return "".join(lines)


def build_microbenchmarks(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    """Return small messages over every transport, compared with references in the object store."""
    done = sorted(tables.order_by_readers(done), key=lambda result: result.workload.bytes_per_iteration)

    def speed_up(result: Result) -> str:
        name = "bytes" if result.configuration.transport == "bytes" else "refs"
        flags = {flag: value for flag, value in result.configuration.flags.items() if flag in tables.GROUP_FLAGS}
        references = msgspec.structs.replace(result.configuration, runtime="store", transport=name, flags=flags)
        return format_speed_up(result, find_result(done, result.workload, references))

    columns = [
        Column("configuration", tables.short_label),
        Column("bytes per message", lambda r: f"{r.workload.edges[0].bytes:,}"),
        tables.READERS,
        Column("µs per iteration", lambda r: f"{r.typical_seconds * 1e6:,.0f}"),
        Column("p95 µs", lambda r: f"{r.summary.p95 * 1e6:,.0f}" if r.summary.p95 else "-", 1),
        Column("µs per hop", lambda r: f"{r.typical_seconds / r.flow.path_length(max) * 1e6:,.0f}"),
        Column("speed-up over store refs or bytes", speed_up),
        Column("x pipe", lambda r: format_significant(r.times_pipe)),
        tables.OVERHEAD,
    ]
    return [Section("microbenchmarks", done[0].flow.title, "", make_table(done, columns))]


def build_weights(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    """Return updates of the weights of a model, in messages of every size."""
    done = tables.order_by_readers(done)
    title, table, chart = title_of(done[0]), done[0].table, None
    if len(done) >= MIN_DOTS:
        name = f"{table}_{done[0].workload.sizes['model']}".replace("-", "_")
        chart = dot_chart(name, f"Time per update: {title}", done, make_dots(done))
    edges = [edge for edge in done[0].flow.edges if edge.message.is_parameters]
    readers = {done[0].flow.actor(edge.reader) for edge in edges}
    tensors = sum(len(edge.message.fields) for edge in edges) // len(readers)
    sentence = f"Tensors per reader: {tensors:,}. Readers: {len(readers)}, on one machine. {describe_fastest(group)}"
    return [Section(table, title, sentence, make_table(done, UPDATE_COLUMNS), chart)]


def build_peers(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    """Return other systems beside Ray's and PyTorch's transports."""
    done = tables.order_by_readers(done)
    columns = [column for column in tables.MAIN_COLUMNS if column.header not in ("status", "GB/s", "p95 ms", "p99 ms")]
    chart = dot_chart("peers", f"Time per iteration: {title_of(done[0])}", done, make_dots(done))
    return [Section("peers", title_of(done[0]), describe_fastest(group), make_table(done, columns), chart)]


def build_sweep(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    """Return the times of each configuration at each value of the size that was swept."""
    swept, _ = tables.swept_point(done[0])
    by_label: dict[str, dict[int, Result]] = defaultdict(dict)
    for result in group:
        if result.status in ("ok", *UNCOUNTED):
            by_label[tables.short_label(result, swept)][tables.swept_point(result)[1]] = result
    values = sorted({x for points in by_label.values() for x in points})
    is_bytes, in_flight = swept == "payload", swept == "in_flight"
    ok = {label: {x: r for x, r in sorted(points.items()) if r.status == "ok"} for label, points in by_label.items()}
    largest = {label: points[max(points)] for label, points in ok.items() if points}  # the store maps large messages
    lines, rows, order = [], [], list(tables.READER_GROUPS)
    for label in sorted(largest, key=lambda label: order.index(tables.readers_of(largest[label]))):
        shares = [result.overhead_share for result in ok[label].values() if result.overhead_share is not None]
        times = [tables.format_typical(by_label[label][x]) if x in by_label[label] else "-" for x in values]
        overhead = tables.format_overhead(max(shares, default=None))
        rows.append([label, tables.READERS.cell(largest[label]), *times, overhead])
        if not in_flight or 1 in ok[label]:
            lines.append(_line(label, ok[label], in_flight))
    memcpy = {x: [r.memcpy_seconds for r in done if tables.swept_point(r)[1] == x and r.memcpy_seconds] for x in values}
    if all(memcpy[x] for x in values) and not in_flight:
        limit = [(x, 1e3 * median(memcpy[x]), 1e3 * min(memcpy[x]), 1e3 * max(memcpy[x])) for x in values]
        lines.append(Series("memcpy", limit, is_limit=True))
    headers = [format_bytes(x) if is_bytes else str(x) for x in values]
    table = Table(["configuration", "readers get", *headers, "largest overhead"], rows, (0, 1))
    workload = done[0].flow.title if is_bytes else title_of(done[0])
    title = f"Milliseconds per iteration by {SWEPT[swept]}: {workload}"
    caption = ("Dashed: readers get a view. Bands: fastest to slowest run.", *provenance(done))
    axes = (SWEPT[swept], "throughput relative to one in flight" if in_flight else "milliseconds per iteration")
    chart_title = f"Throughput by {SWEPT[swept]}: {workload}" if in_flight else title
    chart = LineChart(f"sweep_{swept}", chart_title, lines, *axes, is_bytes, not in_flight, caption)
    return [Section("in-flight" if in_flight else "sweeps", title, "", table, chart)]


def _line(label: str, points: Mapping[int, Result], in_flight: bool) -> Series:
    """Return a line of milliseconds, or of throughput relative to that of one iteration in flight."""
    values = []
    for x, result in points.items():
        times = (result.typical_seconds, min(result.run_seconds), max(result.run_seconds))
        if in_flight:
            middle, high, low = (points[1].typical_seconds / seconds for seconds in times)
        else:
            middle, low, high = (1e3 * seconds for seconds in times)
        values.append((x, middle, low, high))
    return Series(label, values, is_view=not points[max(points)].readers_own_a_copy)


BUILDERS: dict[str, Callable[[list[Result], list[Result], Sequence[Result]], list[Section]]] = {  # in their order
    "headline": build_configurations,
    "configurations": build_configurations,
    "paired": build_configurations,
    "stages": build_stages,
    "chatlearn": build_chatlearn,
    "chatlearn-flat": build_configurations,
    "chatlearn-stages": build_stages,
    "weights": build_weights,
    "detached-ppo": build_weights,
    "peers": build_peers,
    "cluster": build_cluster,
    "cluster-stages": build_stages,
    "soak": build_soak,
    "zero": build_zero,
    "pipeline": build_pipeline,
    "pipeline-timeline": build_timeline,
    "microbenchmarks": build_microbenchmarks,
    "retained-memory": build_retained_sizes,
    **dict.fromkeys(("sweep-payload", "sweep-fields", "sweep-batch-size", "sweep-actors", "in-flight"), build_sweep),
}
