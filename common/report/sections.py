"""Build what is presented from results: a list of sections with sentence, table, chart and notes.

console.py, markdown.py and html.py render this list. Records name their table; BUILDERS has a function for each table.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import msgspec

from common.analysis import stages
from common.analysis.comparison import Pair, compared_result, find_result
from common.analysis.result import Result, median_memcpy_seconds, with_shared_memcpy
from common.analysis.statistics import NO_DIFFERENCE, P95_SAMPLES, Ratio
from common.errors import RecordError
from common.flows.catalogue import FLOWS
from common.records.environment import machine_line
from common.report import tables
from common.report.charts import Bar, BarChart, LineChart, Series
from common.report.tables import Column, Section, Table, format_milliseconds, format_significant, make_table
from common.transports.catalogue import BASELINE, CHATLEARN, REFERENCE
from common.units import format_bytes

READERS: dict[bool | None, str] = {True: "readers own a copy", False: "readers get a view"}
LOG_MILLISECONDS = "milliseconds (logarithmic axis)"
# The chart by cause has one configuration of each kind.
HEADLINE = (
    BASELINE, "store ref-queue", "store refs", "rdt gloo", "torch gloo", "graph pickle", "graph shm",
    "graph shm --reuse-buffers", "graph zero-copy", "graph mapped --copy-out", "graph mapped",
)  # fmt: skip
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
        group = with_shared_memcpy(groups[key])
        done = [result for result in group if result.status == "ok"]
        failures = [f"{result.label}: {result.failure}." for result in group if result.failure]
        if done:
            *others, last = BUILDERS[group[0].table](done, group, results)
            built += [*others, replace(last, notes=[*last.notes, *failures, *provenance(done)])]
        else:
            table = make_table(group, tables.MAIN_COLUMNS)
            built.append(Section("results", title_of(group[0]), "Nothing was measured.", table, notes=failures))
    return built


def _group_key(result: Result) -> tuple[Any, ...]:
    """Return what the results of one section have in common. The first four values are the order of the sections."""
    workload, builder = result.workload, BUILDERS.get(result.table)
    if builder is None:
        raise RecordError(f"{result.label}: unknown table {result.table!r}: leave this record out")
    order = (list(BUILDERS).index(result.table), [*FLOWS, workload.flow].index(workload.flow), workload.flow)
    if builder in (build_sweep, build_microbenchmarks):
        return order
    size = result.check_every if builder is build_chatlearn else workload.bytes_per_iteration
    return (*order, -size, workload.edges)


def provenance(results: Sequence[Result]) -> list[str]:
    """Return the machines and versions, and last the day with the commits."""
    machines, commits = set(), set()
    for environment in (environment for result in results for environment in result.environments):
        machines.add(machine_line(environment))
        changed = " with changes that are not committed" if environment.get("git_dirty") else ""
        commits.add((environment.get("git_commit") or "unknown")[:10] + changed)
    day = results[0].runs[0].started_at[:10]
    return [*sorted(machines), f"Measured on {day}, commit {', '.join(sorted(commits))}."]


def title_of(result: Result) -> str:
    return f"{result.flow.title}, {format_bytes(result.workload.bytes_per_iteration)} per iteration"


def find_transports(results: Sequence[Result]) -> list[Result]:
    """Return the ok results that are verified after each iteration, the demo's baseline first, not the reference."""
    transports = [r for r in results if r.status == "ok" and r.check_every == 1 and r.transport.label != REFERENCE]
    return sorted(transports, key=lambda result: result.name != BASELINE)


def describe_fastest(results: Sequence[Result]) -> str:
    """Return a sentence for the fastest transport of each kind of readers."""
    sentences, transports = [], find_transports(results)
    for own_copy, readers in READERS.items():
        candidates = [result for result in transports if result.readers_own_a_copy is own_copy]
        if not candidates:
            continue
        best, baseline = min(candidates, key=lambda result: result.summary.median), transports[0]
        sentence = f"If {readers}, `{best.label}` is the fastest with {format_milliseconds(best.summary.median)} ms"
        if best.times_memcpy:
            sentence += f" ({best.times_memcpy:.2f} times the memcpy time)"
        if baseline is not best:
            ratio = Pair(best, baseline).ratio
            sentence += f". `{baseline.label}` takes {format_significant(ratio.value)} times as long"
            sentence += f" (95 % interval {format_interval(ratio)})" if ratio.low else " (one run: no interval)"
        sentences.append(sentence + ".")
    return " ".join(sentences)


def format_speed_up(result: Result, baseline: Result | None) -> str:
    """Return how many times as fast a result is as the baseline, with the 95 % interval if there are several runs."""
    if baseline is None:
        return "-"
    if result is baseline:
        return "1x"
    ratio = Pair(result, baseline).ratio
    return f"{format_significant(ratio.value)}x" + (f" ({format_interval(ratio)})" if ratio.low else "")


def format_interval(ratio: Ratio) -> str:
    return f"{format_significant(ratio.low)} to {format_significant(ratio.high)}"


def describe_change(result: Result, results: Sequence[Result]) -> str:
    """Return how a result compares with the configuration that it extends, and why; "-" if that was not measured."""
    other = compared_result(result, results)
    if other is None or result.status != "ok" or result.variant is None:
        return "-"
    change = Pair(other, result).ratio
    text = f"{change.verdict} {'from' if change.verdict == NO_DIFFERENCE else 'against'} {other.label}"
    if change.verdict in ("faster", "slower"):
        text = f"{max(change.value, 1 / change.value):.3g}x {change.verdict} than {other.label}"
    return f"{text} ({result.variant.explanation})"


def build_configurations(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    """Return the table of all configurations of a workload."""
    title, baseline = title_of(done[0]), next(iter(find_transports(done)), None)
    columns = list(tables.MAIN_COLUMNS)
    caption = f"Whisker: fastest iteration to p95, or to the slowest of fewer than {P95_SAMPLES}."

    def speed_up(result: Result) -> str:
        comparable = result.status == "ok" and result.check_every == 1
        return format_speed_up(result, baseline) if comparable else "-"

    if baseline and len(done) > 1:
        columns.append(Column(f"speed-up over {baseline.label}", speed_up, 1))
        header = "compared with the configuration that it extends"
        columns.append(Column(header, lambda result: describe_change(result, done), 8, is_text=True))
        caption += f" Factor (95 % interval): speed-up over {baseline.label}."
    table = make_table(group, columns)
    if group[0].table == "chatlearn-flat":  # its times are also in the tables and charts of "chatlearn"
        return [Section("chatlearn-flat", f"Flat tensors: {title}", "", table)]
    bars = []
    for result in done:
        milliseconds = format_milliseconds(result.summary.median)
        parts = (f"{milliseconds} ms", f"{tables.format_rate(result)} GB/s", speed_up(result))
        label = ", ".join(part for part in parts if part not in ("- GB/s", "-", "1x"))
        spread = (1e3 * result.summary.min, 1e3 * (result.summary.p95 or result.summary.max))
        segments = {"": 1e3 * result.summary.median}
        bars.append(Bar(tables.marked_label(result), segments, label, spread, not result.readers_own_a_copy))
    chart = BarChart("benchmark_result", f"Median time: {title}", _group_by_readers(bars), LOG_MILLISECONDS,
                     _memcpy_lines(done), True, (caption, *provenance(done)))  # fmt: skip
    return [Section("results", title, describe_fastest(done), table, chart)]


def _group_by_readers(bars: Sequence[Bar]) -> dict[str, list[Bar]]:
    """Return the bars in a group for each kind of readers that there is."""
    groups = {READERS[not is_view]: [bar for bar in bars if bar.is_view is is_view] for is_view in (False, True)}
    return {title: group for title, group in groups.items() if group}


def _memcpy_lines(results: Sequence[Result]) -> dict[str, float]:
    """Return the times of one warm copy per edge in ms, by their names in the legend."""
    all_cores = [s for result in results for run in result.runs for s in run.memcpy_all_cores_seconds]
    times = {"memcpy": results[0].memcpy_seconds, "memcpy by all cores": median(all_cores) if all_cores else None}
    return {f"{name}: {format_milliseconds(s)} ms": 1e3 * s for name, s in times.items() if s}


def build_stages(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    """Return the time of traced iterations by cause, by stage and by edge, each with a table."""
    for result in done:
        stages.check_trace(result)
    totals = {result.label: stages.iteration_seconds(result.traced_run) for result in done}
    by_cause = {result.label: stages.attribute_to_causes(result, done) for result in done}
    by_stage, explained = {}, {}
    for result in done:
        by_stage[result.label], explained[result.label] = stages.attribute(result.traced_run)
    by_edge = {result.label: stages.attribute_to_edges(result.traced_run) for result in done}
    worst = max(explained, key=lambda label: abs(1 - explained[label]))
    notes = (
        "Mean of the middle half of the iterations. Processes that work at the same time get equal shares of the time.",
        "In the stage wait, Python sees no work: messages, scheduling, wake-ups, and Ray's C++ code.",
        f"The stages add up to {explained[worst]:.1%} of an iteration for {worst}, and fit the others better.",
    )
    bars = []
    for label, total in totals.items():
        shares = {stage: 100 * by_stage[label][stage] / total for stage in stages.STAGES if stage in by_stage[label]}
        bars.append(Bar(label, shares, f"{format_milliseconds(total)} ms"))
    name, title = done[0].table, title_of(done[0])
    stage_chart = BarChart(name.replace("-", "_"), f"Time by stage: {title}", {"": bars}, "per cent of an iteration",
                           caption=notes)  # fmt: skip
    cause_chart = _cause_chart(by_cause, [r for r in everything if r.workload == done[0].workload and not r.traced])

    def section(kind: str, parts: Mapping[str, Mapping[str, float]], order: Sequence[str], **fields: Any) -> Section:
        seen = dict.fromkeys(name for seconds in parts.values() for name in seconds)
        names = sorted(seen, key=lambda name: order.index(name) if name in order else len(order))
        cells = [[label, *map(format_milliseconds, (total, *map(parts[label].get, names)))]
                 for label, total in totals.items()]  # fmt: skip
        table = Table(["configuration", "ms per iteration", *names], cells)
        return Section(name, f"Milliseconds by {kind}: {title}", "", table, **fields)

    return [
        section("cause", by_cause, (*stages.CAUSES, stages.OTHER_CAUSES), chart=cause_chart),
        section("stage", by_stage, stages.STAGES, chart=stage_chart),
        section("edge", by_edge, ("wait", *map(str, done[0].flow.edges)), notes=notes),
    ]


def _cause_chart(causes: Mapping[str, Mapping[str, float]], untraced: Sequence[Result]) -> BarChart | None:
    """Return the untraced medians, divided like the traced iterations, slowest first; None without untraced results."""
    shown = [result for result in find_transports(untraced) if result.name in HEADLINE and result.label in causes]
    if not shown:
        return None
    shown.sort(key=lambda result: -result.summary.median)
    slowest, bars, titles = shown[0], [], {}
    for result in shown:
        shares, milliseconds = causes[result.label], 1e3 * result.summary.median
        segments = {cause: milliseconds * share / sum(shares.values()) for cause, share in shares.items()}
        factor = format_significant(Pair(result, slowest).ratio.value)
        label = f"{format_milliseconds(result.summary.median)} ms, {factor}x"
        bars.append(Bar(result.label, segments, label, is_view=not result.readers_own_a_copy))
        readers = READERS[result.readers_own_a_copy]
        titles[readers] = f"{result.label} is {factor} times as fast as {slowest.label} ({readers})"
    caption = (
        f"{title_of(slowest)}. Medians without tracing, divided into causes like a traced run.",
        "Page faults are separate only if the trace was repeated with --reuse-buffers; else other causes contain them.",
        *provenance([slowest])[:-1],
    )
    return BarChart("headline", ";\n".join(titles.values()), _group_by_readers(bars), "milliseconds per iteration",
                    caption=caption)  # fmt: skip


def build_chatlearn(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    """Return ChatLearn's own messages over every transport, and flat tensors of as many bytes as packed ones."""
    done = sorted(done, key=lambda result: -result.paced_seconds)
    first, batch_size = done[0], int(done[0].workload.sizes["batch_size"])
    queues = [r for r in done if r.transport.label == CHATLEARN and "sink" not in r.configuration.flags]
    baseline = next((result for result in queues if result.workload.sizes.get("as_sent")), None)
    flat = {r.configuration: r for r in everything if r.table == "chatlearn-flat" and r.status == "ok"}

    def flat_milliseconds(result: Result) -> str:
        other = flat.get(result.configuration) if result.workload.message == "packed" else None
        return format_milliseconds(other.paced_seconds if other else None)

    def times_memcpy(result: Result) -> str:
        if not result.readers_own_a_copy or not result.memcpy_seconds:
            return "-"
        return format_significant(result.paced_seconds / result.memcpy_seconds)

    def speed_up(result: Result) -> str:
        return f"{format_significant(baseline.paced_seconds / result.paced_seconds)}x" if baseline else "-"

    columns = [
        Column("configuration", tables.short_label),
        Column("in flight", lambda r: str(r.in_flight)),
        Column("ms per message", lambda r: format_milliseconds(r.paced_seconds)),
        Column("ms as one flat tensor", flat_milliseconds, 3),
        Column("stored per message", tables.format_stored, 4),
        tables.READERS,
        Column("x memcpy", times_memcpy, 1),
        tables.OVERHEAD,
        Column("speed-up over ref-queue as sent", speed_up),
        Column("runs", lambda r: str(len(r.shown_runs)), 3),
    ]
    title = title_of(first).replace("iteration", f"message of {batch_size} samples, {first.check_every} per episode")
    bars = []
    for result in done:
        label = f"{format_milliseconds(result.paced_seconds)} ms, {speed_up(result)}"
        name = f"{tables.short_label(result)}, {result.in_flight} in flight"
        bars.append(Bar(name, {"": 1e3 * result.paced_seconds}, label, is_view=not result.readers_own_a_copy))
    chart = BarChart("chatlearn_episodes", f"Time per message: {title}", _group_by_readers(bars), LOG_MILLISECONDS,
                     _memcpy_lines(done), True, tuple(provenance(done)))  # fmt: skip
    return [Section("episodes", title, "", make_table(done, columns), chart)]


def build_microbenchmarks(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    """Return small messages over every transport, compared with references in the object store."""
    done = sorted(done, key=lambda result: result.workload.bytes_per_iteration)

    def speed_up(result: Result) -> str:
        name = "bytes" if result.configuration.transport == "bytes" else "refs"
        flags = {flag: value for flag, value in result.configuration.flags.items() if flag in tables.GROUP_FLAGS}
        references = msgspec.structs.replace(result.configuration, runtime="store", transport=name, flags=flags)
        return format_speed_up(result, find_result(done, result.workload, references))

    columns = [
        Column("configuration", tables.short_label),
        Column("bytes per message", lambda r: f"{r.workload.edges[0].bytes:,}"),
        Column("median µs", lambda r: f"{r.summary.median * 1e6:,.0f}"),
        Column("p95 µs", lambda r: f"{r.summary.p95 * 1e6:,.0f}" if r.summary.p95 else "-", 1),
        Column("µs per hop", lambda r: f"{r.summary.median / r.flow.path_length(max) * 1e6:,.0f}"),
        Column("speed-up over references", speed_up),
        Column("x pipe", lambda r: format_significant(r.times_pipe)),
        tables.OVERHEAD,
    ]
    return [Section("microbenchmarks", done[0].flow.title, "", make_table(done, columns))]


def build_sweep(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    """Return the times of each configuration at each value of the size that was swept."""
    swept, _ = tables.swept_point(done[0])
    by_label: dict[str, dict[int, Result]] = defaultdict(dict)
    by_value: dict[int, list[Result]] = defaultdict(list)
    for result in done:
        value = tables.swept_point(result)[1]
        by_label[tables.short_label(result, swept)][value] = result
        by_value[value].append(result)
    values = sorted(by_value)
    lines, cells = [], []
    for label, points in by_label.items():
        seconds = {x: r.paced_seconds if r.check_every > 1 else r.summary.median for x, r in sorted(points.items())}
        largest = points[max(points)]  # the object store copies small messages, and maps others
        milliseconds = [(x, 1e3 * value) for x, value in seconds.items()]
        lines.append(Series(label, milliseconds, is_view=not largest.readers_own_a_copy))
        cells.append([label, tables.READERS.cell(largest), *(format_milliseconds(seconds.get(x)) for x in values)])
    memcpy = {x: [s for r in by_value[x] if (s := median_memcpy_seconds(r.runs))] for x in values}
    if all(memcpy.values()):
        lines.append(Series("memcpy", [(x, 1e3 * median(memcpy[x])) for x in values], is_limit=True))
    is_bytes = swept == "payload"
    headers = [format_bytes(x) if is_bytes else str(x) for x in values]
    table = Table(["configuration", "readers get", *headers], cells, (0, 1))
    workload = done[0].flow.title if is_bytes else title_of(done[0])
    title = f"Milliseconds per iteration by {SWEPT[swept]}: {workload}"
    caption = ("Dashed lines and hollow markers: readers get a view.", *provenance(done)[:-1])
    chart = LineChart(f"sweep_{swept}", title, lines, SWEPT[swept], "milliseconds per iteration", is_bytes, caption)
    return [Section("in-flight" if swept == "in_flight" else "sweeps", title, "", table, chart)]


BUILDERS: dict[str, Callable[[list[Result], list[Result], Sequence[Result]], list[Section]]] = {  # in their order
    "configurations": build_configurations,
    "paired": build_configurations,
    "stages": build_stages,
    "chatlearn": build_chatlearn,
    "chatlearn-flat": build_configurations,
    "chatlearn-stages": build_stages,
    "microbenchmarks": build_microbenchmarks,
    **dict.fromkeys(("sweep-payload", "sweep-fields", "sweep-batch-size", "sweep-actors", "in-flight"), build_sweep),
}
