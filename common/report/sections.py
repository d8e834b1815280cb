"""Build what is presented from results: a list of sections with sentence, table, chart and notes.

console.py, markdown.py and html.py render this list. Records name their table; BUILDERS has a function for each table.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import msgspec

from common.analysis import stages
from common.analysis.comparison import Pair, compared_result, find_result
from common.analysis.prediction import check_predictions
from common.analysis.quality import median_memcpy_seconds
from common.analysis.result import Result, with_shared_memcpy
from common.analysis.statistics import NO_DIFFERENCE, P95_SAMPLES
from common.errors import RecordError
from common.flows.catalogue import FLOWS
from common.flows.flow import DRIVER, Flow
from common.records.environment import machine_line
from common.report import tables
from common.report.bar_chart import Bar, BarChart
from common.report.flow_diagram import FlowDiagram
from common.report.line_chart import LineChart, Series
from common.report.tables import Column, Table, format_milliseconds, format_significant, make_table, short_label
from common.transports.catalogue import BASELINE, CHATLEARN, REFERENCE
from common.units import format_bytes

READERS: dict[bool | None, str] = {True: "readers own a copy", False: "readers get a view"}
LOG_MILLISECONDS = "milliseconds (logarithmic axis)"
# The chart by cause has one configuration of each kind.
HEADLINE = (
    BASELINE, "store ref-queue", "store refs", "rdt gloo", "torch gloo", "graph pickle", "graph shm",
    "graph shm --reuse-buffers", "graph zero-copy", "graph mapped --copy-out", "graph mapped",
)  # fmt: skip
SHORT_SHARE = 0.1  # of the slowest time: bars below it have an axis of their own
SWEPT = {"payload": "bytes per iteration", "fields": "tensors per message (of equal bytes)", "actors": "actors",
         "batch_size": "samples per message", "in_flight": "iterations in flight"}  # fmt: skip


@dataclass(frozen=True)
class Section:
    """One part of a report. `name` is that of the marks in README.md and docs/; several sections can share it."""

    name: str
    title: str
    sentence: str = ""
    table: Table | None = None
    chart: BarChart | LineChart | FlowDiagram | None = None
    notes: Sequence[str] = ()


def sections(results: Sequence[Result]) -> list[Section]:
    """Return the sections of all results.

    Raises:
        RecordError: a table is unknown, or a trace contradicts itself.
    """
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
        if not done:
            table = make_table(group, tables.MAIN_COLUMNS)
            built.append(Section("results", title_of(group[0]), "Nothing was measured.", table, None, failures))
            continue
        *others, last = BUILDERS[group[0].table](done, group, results)
        built += [*others, replace(last, notes=[*last.notes, *failures, *provenance(done)])]
    return built


def _group_key(result: Result) -> tuple[Any, ...]:
    """Return what the results of one section have in common. The first four values are the order of the sections."""
    workload, builder = result.workload, BUILDERS.get(result.table)
    if builder is None:
        raise RecordError(f"{result.label}: unknown table {result.table!r}: leave this record out")
    if builder is build_held_out:
        return (list(BUILDERS).index(result.table),)
    order = (list(BUILDERS).index(result.table), [*FLOWS, workload.flow].index(workload.flow), workload.flow)
    if builder in (build_sweep, build_microbenchmarks):
        return order
    size = result.check_every if builder is build_chatlearn else workload.bytes_per_iteration
    return (*order, -size, workload.edges)


def provenance(results: Sequence[Result]) -> list[str]:
    """Return the machines and versions, and last the day with the commits."""
    environments = [environment for result in results for environment in result.environments]
    commits = set()
    for environment in environments:
        changed = " with changes that are not committed" if environment.get("git_dirty") else ""
        commits.add((environment.get("git_commit") or "unknown")[:10] + changed)
    day = results[0].runs[0].started_at[:10]
    return [*sorted(set(map(machine_line, environments))), f"Measured on {day}, commit {', '.join(sorted(commits))}."]


def title_of(result: Result) -> str:
    """Return the flow and its bytes."""
    return f"{result.flow.title}, {format_bytes(result.workload.bytes_per_iteration)} per iteration"


def find_transports(results: Sequence[Result]) -> list[Result]:
    """Return the ok results that are verified after each iteration, the demo's baseline first, not the reference."""
    transports = [r for r in results if r.status == "ok" and r.check_every == 1 and r.transport.label != REFERENCE]
    return sorted(transports, key=lambda result: result.name != BASELINE)


def find_fastest(results: Sequence[Result], own_copy: bool) -> Result | None:
    """Return the fastest transport whose readers own a copy, or get a view; None if there is none."""
    candidates = [result for result in find_transports(results) if result.readers_own_a_copy is own_copy]
    return min(candidates, key=lambda result: result.summary.median, default=None)


def describe_fastest(results: Sequence[Result]) -> str:
    """Return a sentence for the fastest transport of each kind of readers."""
    sentences = []
    for own_copy, readers in READERS.items():
        best = find_fastest(results, bool(own_copy))
        if best is None:
            continue
        baseline = find_transports(results)[0]
        sentence = f"If {readers}, `{best.label}` is the fastest: {format_milliseconds(best.summary.median)} ms"
        if best.times_memcpy:
            sentence += f", {best.times_memcpy:.2f} times the memcpy time"
        if baseline is not best:
            factor, _, interval = tables.format_speed_up(best, baseline).partition("x (")
            sentence += f"; `{baseline.label}` takes {factor.removesuffix('x')} times as long"
            sentence += f" (95 % interval {interval}" if interval else " (one run: no interval)"
        sentences.append(sentence + ".")
    return " ".join(sentences)


def describe_change(result: Result, results: Sequence[Result]) -> str:
    """Return how a result compares with the configuration that it extends, and why; "-" if that was not measured."""
    other = compared_result(result, results)
    if other is None or result.status != "ok" or result.variant is None:
        return "-"
    change = Pair(other, result).ratio
    text = f"{change.verdict} {'from' if change.verdict == NO_DIFFERENCE else 'against'} {other.label}"
    if change.verdict in ("faster", "slower"):
        text = f"{max(change.value, 1 / change.value):.3g}x {change.verdict} than {other.label}"
    return f"{text}: {result.variant.explanation}"


def build_configurations(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    """Return the table of all configurations of a workload, and its flow."""
    columns, title, baseline = list(tables.MAIN_COLUMNS), title_of(done[0]), next(iter(find_transports(done)), None)
    caption = f"Whisker: fastest iteration to p95, or to the slowest of fewer than {P95_SAMPLES}."

    def speed_up(result: Result) -> str:
        comparable = result.status == "ok" and result.check_every == 1
        return tables.format_speed_up(result, baseline) if comparable else "-"

    def label(result: Result) -> str:
        rate = f", {tables.format_rate(result)} GB/s" if result.readers_own_a_copy else ""
        factor = "" if speed_up(result) in ("-", "1x") else f", {speed_up(result)}"
        return f"{format_milliseconds(result.summary.median)} ms{rate}{factor}"

    if baseline and len(done) > 1:
        columns.append(Column(f"speed-up over {baseline.label}", speed_up, 1))
        columns.append(Column("compared with the configuration that it extends",
                              lambda result: describe_change(result, done), 8, is_text=True))  # fmt: skip
        caption += f" Factor (95 % interval): speed-up over {baseline.label}."
    dots = _dots(done, lambda result: result.summary.median, tables.marked_label, label, has_spread=True)
    chart = BarChart("benchmark_result", f"Median time: {title}", dots, LOG_MILLISECONDS, _limits(done), True,
                     (caption, *provenance(done)))  # fmt: skip
    table = make_table(group, columns)
    if group[0].table == "chatlearn-flat":  # its times are also in the tables and charts of "chatlearn"
        return [Section("chatlearn-flat", f"Flat tensors: {title}", "", table)]
    return [*_build_flow(done[0].flow), Section("results", title, describe_fastest(done), table, chart)]


def _dots(
    done: Sequence[Result], seconds: Callable[[Result], float], name: Callable[[Result], str],
    label: Callable[[Result], str], has_spread: bool = False,
) -> dict[str, list[Bar]]:  # fmt: skip
    """Return the dots of a logarithmic chart, in milliseconds, in a group for each kind of readers."""
    groups = defaultdict(list)
    for result in sorted(done, key=lambda result: not result.readers_own_a_copy):
        summary = result.summary
        spread = (1e3 * summary.min, 1e3 * (summary.p95 or summary.max)) if has_spread else None
        bar = Bar(name(result), {"": 1e3 * seconds(result)}, label(result), spread, not result.readers_own_a_copy)
        groups[READERS[bool(result.readers_own_a_copy)]].append(bar)
    return groups


def _limits(results: Sequence[Result]) -> dict[str, float]:
    """Return the references of a chart in ms: medians over the runs; by all cores, of the fastest pass of each run."""
    all_cores = [min(run.memcpy_all_cores_seconds) for r in results for run in r.runs if run.memcpy_all_cores_seconds]
    pipes = [result.pipe_seconds for result in results if result.pipe_seconds]
    seconds = {
        "memcpy (one warm copy per edge)": results[0].memcpy_seconds,
        "memcpy by all cores": median(all_cores) if all_cores else None,
        "pipe (8 bytes per edge)": median(pipes) if pipes else None,
    }
    return {f"{name}: {format_milliseconds(value)} ms": 1e3 * value for name, value in seconds.items() if value}


def _build_flow(flow: Flow) -> list[Section]:
    """Return the diagram of a flow; of the demo's flow also how ChatLearn and one compiled graph move it."""
    sizes = {str(edge): format_bytes(edge.bytes) for edge in flow.edges}
    queues = dict.fromkeys(sizes, "queue")
    graph = {str(e): "shared memory" if DRIVER in (e.source, e.reader) else "NCCL" for e in flow.edges}
    diagrams = [
        ("simulation", f"The flow: {flow.title}, {format_bytes(flow.bytes_per_iteration)} per iteration", sizes,
         "The clock runs from the query in the driver to the result in the driver. No model computes."),
        ("chatlearn_data_flow", "ChatLearn moves it over queues and the object store", queues,
         "A queue actor per edge carries references."),
        ("chatlearn_with_raycg", "The same flow as one Ray compiled graph with a GPU per actor", graph,
         "Not measured here. The driver has no NCCL rank, so its edges use host memory."),
    ]  # fmt: skip
    if flow.name != "online-dpo":
        del diagrams[1:]
    return [Section("flow", title, chart=FlowDiagram(name, title, flow, labels, (note,)))
            for name, title, labels, note in diagrams]  # fmt: skip


def build_stages(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    """Return the time of traced iterations by cause, by stage and by edge, each with a table.

    Raises:
        RecordError: the stages do not explain an iteration, or an edge was not seen.
    """
    for problem in stages.trace_problems(done):
        raise RecordError(f"{problem}: repeat the trace on an idle machine")
    totals = {result.label: stages.iteration_seconds(result.traced_run) for result in done}
    by_stage, explained = {}, {}
    for result in done:
        by_stage[result.label], explained[result.label] = stages.attribute(result.traced_run)
    by_cause = {result.label: stages.attribute_to_causes(result, done) for result in done}
    by_edge = {result.label: stages.attribute_to_edges(result.traced_run) for result in done}
    worst = max(explained, key=lambda label: abs(1 - explained[label]))
    notes = (
        "Mean of the middle half of the iterations. Processes that work at the same time get equal shares of it.",
        "wait: no process works as far as Python can see: messages, scheduling, wake-ups, and Ray's C++ code.",
        f"The stages explain {explained[worst]:.1%} of an iteration where they fit worst ({worst}).",
    )
    bars = []
    for label, total in totals.items():
        shares = {stage: 100 * by_stage[label][stage] / total for stage in stages.STAGES if stage in by_stage[label]}
        bars.append(Bar(label, shares, f"{format_milliseconds(total)} ms"))
    name, title = done[0].table, title_of(done[0])
    charts = {
        "cause": _cause_chart(by_cause, [r for r in everything if r.workload == done[0].workload and not r.traced]),
        "stage": BarChart(name.replace("-", "_"), f"Time by stage: {title}", {"": bars}, "per cent of an iteration",
                          caption=notes),
    }  # fmt: skip
    order = [*stages.CAUSES, *stages.STAGES, *map(str, done[0].flow.edges)]
    built = []
    for kind, parts in {"cause": by_cause, "stage": by_stage, "edge": by_edge}.items():
        seen = dict.fromkeys(part for seconds in parts.values() for part in seconds)
        names = sorted(seen, key=lambda part: order.index(part) if part in order else len(order))
        cells = [[label, *map(format_milliseconds, (total, *map(parts[label].get, names)))]
                 for label, total in totals.items()]  # fmt: skip
        table = Table(["configuration", "ms per iteration", *names], cells, {0}, [0] * (2 + len(names)))
        built.append(Section(name, f"Milliseconds by {kind}: {title}", "", table, charts.get(kind)))
    return [*built[:-1], replace(built[-1], notes=notes)]


def _cause_chart(causes: Mapping[str, Mapping[str, float]], untraced: Sequence[Result]) -> BarChart | None:
    """Return the untraced medians, divided like the traced iterations, slowest first; None without untraced results."""
    shown = [result for result in find_transports(untraced) if result.name in HEADLINE and result.label in causes]
    if not shown:
        return None
    shown.sort(key=lambda result: -result.summary.median)
    slowest, groups, fastest = shown[0].summary.median, defaultdict(list), {}
    short = [result.summary.median for result in shown if result.summary.median < SHORT_SHARE * slowest]
    for result in shown:
        seconds, shares, readers = result.summary.median, causes[result.label], READERS[result.readers_own_a_copy]
        segments = {cause: 1e3 * seconds * share / sum(shares.values()) for cause, share in shares.items()}
        factor = format_significant(Pair(result, shown[0]).ratio.value)
        label = f"{format_milliseconds(seconds)} ms" + ("" if result is shown[0] else f", {factor}x")
        scale = f"the others: this axis is {slowest / short[0]:.3g} times finer" if seconds in short else ""
        groups[scale].append(Bar(result.label + ("" if result.readers_own_a_copy else " *"), segments, label))
        fastest[readers] = f"{result.label} is {factor} times as fast ({readers})"
    cause, value = max(groups[""][0].segments.items(), key=lambda item: item[1])
    share = f"{1e-3 * value / slowest:.0%} of an iteration over {shown[0].label} is {cause}"
    caption = (
        f"* {READERS[False]}. {title_of(shown[0])}. Medians without tracing, divided into causes like a traced run.",
        "Page faults are separate only if the trace was repeated with --reuse-buffers; else other causes contain them.",
        *provenance(shown[:1])[:-1],
    )
    return BarChart("headline", ";\n".join([share, *fastest.values()]), groups, "milliseconds per iteration",
                    dict([*_limits(with_shared_memcpy(untraced)).items()][:1]), caption=caption)  # fmt: skip


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
        Column("configuration", short_label),
        Column("in flight", lambda r: str(r.in_flight)),
        Column("s per episode", lambda r: format_significant(r.paced_seconds * r.check_every), 2),
        Column("ms per message", lambda r: format_milliseconds(r.paced_seconds)),
        Column("ms if flat", flat_milliseconds, 3),
        Column("samples/s", lambda r: f"{batch_size / r.paced_seconds:,.0f}"),
        Column("stored per message", tables.format_stored, 4),
        Column("readers get", tables.format_readers, is_text=True),
        Column("x memcpy", times_memcpy, 1),
        Column("overhead", tables.format_overhead, 2),
        Column("speed-up over ref-queue as sent", speed_up),
        Column("runs", lambda r: str(len(r.shown_runs)), 3),
    ]
    title = title_of(first).replace("iteration", f"message of {batch_size} samples, {first.check_every} per episode")
    dots = _dots(done, lambda result: result.paced_seconds, lambda r: f"{short_label(r)}, {r.in_flight} in flight",
                 lambda r: f"{format_milliseconds(r.paced_seconds)} ms, {speed_up(r)}")  # fmt: skip
    chart = BarChart("chatlearn_episodes", f"Time per message: {title}", dots, LOG_MILLISECONDS,
                     dict([*_limits(done).items()][:1]), True, tuple(provenance(done)))  # fmt: skip
    labels = {}
    for edge in first.flow.edges:
        counts = Counter({"tensors": 0})
        for field in edge.message.fields:
            kind = "strings" if field.dtype == "str" else "lists" if field.is_python else "tensors"
            counts[kind] += len(field.shapes)
        labels[str(edge)] = "\n".join([format_bytes(edge.bytes), *(f"{kind}: {n}" for kind, n in counts.items())])
    note = "A message is a dict: padded tensors of all samples, and lists of tensors or strings."
    diagram = FlowDiagram("chatlearn_messages", f"ChatLearn: {title}", first.flow, labels, (note,))
    return [Section("flow", diagram.title, chart=diagram),
            Section("episodes", title, "", make_table(done, columns), chart)]  # fmt: skip


def build_microbenchmarks(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    """Return small messages over every transport, compared with references in the object store."""
    done = sorted(done, key=lambda result: result.workload.bytes_per_iteration)

    def speed_up(result: Result) -> str:
        name = "bytes" if result.configuration.transport == "bytes" else "refs"
        flags = {flag: value for flag, value in result.configuration.flags.items() if flag in tables.GROUP_FLAGS}
        references = msgspec.structs.replace(result.configuration, runtime="store", transport=name, flags=flags)
        return tables.format_speed_up(result, find_result(done, result.workload, references))

    columns = [
        Column("configuration", short_label),
        Column("bytes per message", lambda r: f"{r.workload.edges[0].bytes:,}"),
        Column("iterations", lambda r: str(len(r.seconds)), 3),
        Column("median µs", lambda r: f"{r.summary.median * 1e6:,.0f}"),
        Column("p95 µs", lambda r: f"{r.summary.p95 * 1e6:,.0f}" if r.summary.p95 else "-", 1),
        Column("µs per hop", lambda r: f"{r.summary.median / r.flow.longest_path() * 1e6:,.0f}"),
        Column("speed-up over references", speed_up),
        Column("x pipe", lambda r: format_significant(r.times_pipe)),
        Column("overhead", tables.format_overhead, 2),
    ]
    return [Section("microbenchmarks", done[0].flow.title, "", make_table(done, columns))]


def build_sweep(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    """Return the times of each configuration at each value of the size that was swept."""
    swept, _ = tables.swept_point(done[0])
    lines: dict[str, dict[int, Result]] = defaultdict(dict)
    columns: dict[int, list[Result]] = defaultdict(list)
    for result in sorted(done, key=lambda result: tables.swept_point(result)[1]):
        columns[tables.swept_point(result)[1]].append(result)
    for result in done:
        lines[short_label(result, swept)][tables.swept_point(result)[1]] = result
    times, rates, cells = [], [], []
    for name, line in lines.items():
        seconds = {x: r.paced_seconds if r.check_every > 1 else r.summary.median for x, r in sorted(line.items())}
        largest = line[max(line)]  # the object store copies small messages, and maps others
        times.append(Series(name, [(x, 1e3 * value) for x, value in seconds.items()], not largest.readers_own_a_copy))
        if largest.readers_own_a_copy:
            moved = {x: result.workload.bytes_per_iteration * 1e-9 for x, result in line.items()}
            rates.append(Series(name, [(x, moved[x] / value) for x, value in seconds.items()]))
        row = [format_milliseconds(seconds.get(x)) for x in columns]
        cells.append([name, tables.format_readers(largest), *row])
    memcpy = {x: [s for r in results if (s := median_memcpy_seconds(r.runs))] for x, results in columns.items()}
    pipe = {x: [s for r in results if (s := r.pipe_seconds)] for x, results in columns.items()}
    for name, samples in (("memcpy", memcpy), ("pipe", pipe)):
        if all(samples.values()):
            times.append(Series(name, [(x, 1e3 * median(samples[x])) for x in columns], is_limit=True))
    headers = [format_bytes(x) if swept == "payload" else str(x) for x in columns]
    table = Table(["configuration", "readers get", *headers], cells, {0, 1}, [0] * (2 + len(headers)))
    workload = done[0].flow.title if swept == "payload" else title_of(done[0])
    title = f"Milliseconds per iteration by {SWEPT[swept]}: {workload}"
    panels = {"milliseconds per iteration": times}
    if rates:
        panels["GB/s, if readers own a copy"] = rates
    caption = ("Dashed lines and hollow markers: readers get a view.", *provenance(done)[:-1])
    chart = LineChart(f"sweep_{swept}", title, panels, SWEPT[swept], swept == "payload", caption)
    return [Section("in-flight" if swept == "in_flight" else "sweeps", title, "", table, chart)]


def build_held_out(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    """Return how good predictions from the other records are for workloads that those do not contain."""
    checks, unpredicted = check_predictions(done, [result for result in everything if result.table != "held-out"])
    columns = [
        Column("workload", lambda c: f"{c.request.flow.title}, {format_bytes(c.request.flow.bytes_per_iteration)}"),
        Column("readers need a copy", lambda c: "yes" if c.request.copies else "no"),
        Column("predicted fastest", lambda c: c.predicted, is_text=True),
        Column("measured fastest", lambda c: c.fastest, is_text=True),
        Column("time / fastest time", lambda c: f"{c.times_fastest:.3f}"),
        Column("right", lambda c: "yes" if c.is_right else "NO"),
    ]
    right = sum(check.is_right for check in checks)
    sentence = f"{right} of {len(checks)} predictions are right: the fastest, or within 10 % of it. "
    sentence += f"{unpredicted} questions have no prediction."
    return [Section("held-out", "Predictions", sentence, make_table(checks, columns))]


BUILDERS: dict[str, Callable[[list[Result], list[Result], Sequence[Result]], list[Section]]] = {  # in their order
    "configurations": build_configurations,
    "paired": build_configurations,
    "stages": build_stages,
    "chatlearn": build_chatlearn,
    "chatlearn-flat": build_configurations,
    "chatlearn-stages": build_stages,
    "microbenchmarks": build_microbenchmarks,
    **dict.fromkeys(("sweep-payload", "sweep-fields", "sweep-batch-size", "sweep-actors", "in-flight"), build_sweep),
    "held-out": build_held_out,
}
