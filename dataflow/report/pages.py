"""Build what only the pages have: the demo's times, which transport to use, the flags, and what known systems do."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path

from dataflow.analysis.campaigns import Row, combine, load_campaigns
from dataflow.analysis.comparison import match_results
from dataflow.analysis.links import link_seconds
from dataflow.analysis.result import Result, group_results
from dataflow.catalogue.catalogue import BASELINE, SIMPLEST, VARIANTS
from dataflow.plan.command_line import describe_flags
from dataflow.plan.options import CAMPAIGNS, RESULTS
from dataflow.records import files
from dataflow.report import tables
from dataflow.report.campaign_tables import (
    campaign_sections,
    describe_campaigns,
    describe_factor,
    format_times,
)
from dataflow.report.provenance import provenance
from dataflow.report.sentences import PAIR_COLUMNS
from dataflow.report.suite_tables import describe_layout
from dataflow.report.tables import Column, Section, format_milliseconds, make_table
from dataflow.units import format_bytes

SYSTEMS = tomllib.loads(Path(__file__).with_name("systems.toml").read_text(encoding="utf-8"))
DEMO_SECONDS = (
    279.23,
    35.37,
)  # published by the demo for its queues and its compiled graph: docs/method.md
DEMO_ITERATIONS = 100
SCRIPTS = {
    BASELINE: "simulate_chat_learn_data_flow.py",
    "graph shm": "ray_cg_simulate_chat_learn_data_flow.py",
}
DEMO_FLAGS = {
    "": "here",
    " --retain-memory": "here, with four environment variables (`--retain-memory`)",
}
GPU_ANSWER = "**GPUs:** not measured. Nothing has run on a GPU here: [docs/cluster.md](docs/cluster.md#gpus)."


def page_sections(results: Sequence[Result], campaigns: Path = CAMPAIGNS) -> list[Section]:
    """Return the sections that the records suffice for, those of campaigns included."""
    columns = (
        Column("flag", lambda item: f"`{item[0]}`"),
        Column("meaning", itemgetter(1), is_text=True),
    )
    flags = make_table([*describe_flags().items()], columns)
    built = [Section("flags", "", table=flags), build_agreement(RESULTS / "evidence" / "agreement")]
    rows = combine(load_campaigns(campaigns)) if campaigns.exists() else []
    headline = {row.newest.name: row for row in rows if row.newest.table == "headline"}
    if headline.keys() >= SCRIPTS.keys():
        answers = Section("answers", "", build_answers(results, [*headline.values()]))
        built += [
            build_claim(headline),
            build_demo(headline),
            answers,
            build_systems(headline),
            build_advice(headline),
        ]
    return built + campaign_sections(rows)


def build_claim(by_name: Mapping[str, Row]) -> Section:
    """Return how many times as fast references with kept memory are as without it, and as a compiled graph."""
    kept, text = by_name.get("store refs --retain-memory"), ""
    if kept and SIMPLEST in by_name:
        refs, graph = (
            describe_factor(kept.divide(by_name[name])) for name in (SIMPLEST, "graph shm")
        )
        text = (f"Four environment variables make Ray's plain references {refs} times as fast with large messages: "
                f"then they are {graph} times as fast as a compiled graph without these variables.")  # fmt: skip
    return Section("claim", "", text)


def build_demo(by_name: Mapping[str, Row]) -> Section:
    """Return the demo's commands with the time of 100 iterations by the campaigns, beside the times of the demo."""
    format_seconds = partial(format_times, factor=DEMO_ITERATIONS)
    queues, graph = DEMO_SECONDS
    rows, used = (
        [["the demo, on its GPUs", f"{queues} s", f"{graph} s", f"{queues / graph:.1f}"]],
        [],
    )
    for flag, place in DEMO_FLAGS.items():
        both = [by_name[name + flag] for name in SCRIPTS if name + flag in by_name]
        if len(both) == len(SCRIPTS):
            used += both
            factor = describe_factor(both[1].divide(both[0]))
            rows.append([place, *(f"{format_seconds(row)} s" for row in both), factor])
    commands = [f".venv/bin/python {script:40}  # about {format_seconds(by_name[name])} seconds"
                for name, script in SCRIPTS.items()]  # fmt: skip
    commands.append(
        f".venv/bin/python {'plot_results.py':40}  # draws them: benchmark_result.svg beside the records"
    )
    headers = (
        "where",
        "queues through the driver",
        "compiled graph",
        "times as fast (of another campaign, 95 %)",
    )
    edges = [edge.bytes for edge in used[0].newest.workload.edges]
    size = (f"{DEMO_ITERATIONS} iterations, messages of {format_bytes(min(edges))} to {format_bytes(max(edges))}. "
            f"Here: {DEMO_ITERATIONS} times the suite's time per iteration in the steady state.")  # fmt: skip
    table = make_table(
        rows, [Column(header, itemgetter(index)) for index, header in enumerate(headers)]
    )
    return Section(
        "demo",
        "",
        "\n".join(["```", *commands, "```"]),
        table,
        notes=[size, *describe_campaigns(used)],
    )


def build_agreement(folder: Path) -> Section:
    """Return the times of the suite and those of the scripts, from the records in suite/ and scripts/ of a folder."""
    suite, scripts = (
        group_results(files.load_all([folder / side])) for side in ("suite", "scripts")
    )
    columns = (Column("configuration: suite → script", lambda pair: pair.label), *PAIR_COLUMNS[:-1])
    table = make_table(match_results(suite, scripts)[0], columns)
    return Section("agreement", "", table=table, notes=provenance(suite))


def build_answers(results: Sequence[Result], headline: Sequence[Row]) -> str:
    """Return a list of four answers: one node with copies, one node with views, several nodes, GPUs."""
    on_ray = [row for row in headline if row.newest.transport.runtime.uses_ray]
    fastest_first = sorted(on_ray, key=lambda row: -row.factor.mean)
    copies = [row for row in fastest_first if row.is_comparable and not row.is_baseline]
    times = [f"`{row.newest.name}` {describe_factor(row.factor)}" for row in copies]
    size = format_bytes(headline[0].newest.workload.bytes_per_iteration)
    answers = [
        f"**One node** (on Ray, {size} per iteration). Times as fast as the demo's queues: {', '.join(times)}."
    ]
    runs = {
        row.newest.name: [run for pair in row.pairs.values() for run in pair.new.runs]
        for row in on_ray
    }
    counts = {name: sum(run.status == "failed" for run in runs[name]) for name in runs}
    if failures := [
        f"`{name}` {count} of {len(runs[name])}" for name, count in counts.items() if count
    ]:
        answers[0] += f" Failed runs: {', '.join(failures)}."
    if views := [
        f"`{row.newest.name}` takes {format_times(row)} ms"
        for row in on_ray
        if not row.is_comparable
    ]:
        answers.append(
            f"**One node, readers that only read.** {'; '.join(views)}, because no reader copies."
        )
    nodes = [
        r
        for r in results
        if r.table == "cluster" and link_seconds(r) and tables.readers_of(r) == tables.OWN_COPY
    ]
    if nodes:
        largest = max(
            (result.workload for result in nodes), key=lambda workload: workload.bytes_per_iteration
        )
        nodes = sorted(
            (r for r in nodes if r.workload == largest), key=lambda result: result.typical_seconds
        )
        times = [
            f"`{r.name}` {format_milliseconds(r.typical_seconds)} ms ({tables.LINK.cell(r)} x)"
            for r in nodes
        ]
        layout = f"{describe_layout(nodes[0])}, {format_bytes(nodes[0].workload.bytes_per_iteration)} per iteration"
        note = "x: the time of the network alone for the bytes that cross it"
        answers.append(f"**Several nodes** ({layout}; {note}). {', '.join(times)}.")
    return "\n".join(f"* {answer}" for answer in [*answers, GPU_ANSWER])


def build_advice(by_name: Mapping[str, Row]) -> Section:
    """Return when to use each configuration of the catalogue, and its time in campaigns."""
    keys = {
        "use it for": "use_when",
        "needs": "needs",
        "copies per edge": "copies",
        "what breaks it": "breaks",
    }
    advice = [{"name": variant.name, **variant.advice} for variant in VARIANTS if variant.advice]
    columns = (
        Column("configuration", lambda item: f"`{item['name']}`"),
        *(Column(header, itemgetter(key), is_text=True) for header, key in keys.items()),
        Column(
            "ms in campaigns",
            lambda i: format_times(by_name[i["name"]]) if i["name"] in by_name else "-",
        ),
    )
    return Section("advice", "", table=make_table(advice, columns))


def build_systems(by_name: Mapping[str, Row]) -> Section:
    """Return what known systems do, which configuration is similar, and how many times as fast others are."""

    def format_step(system: Mapping[str, str], name: str) -> str:
        today = system["configuration"]
        if name == today:
            return "as today"
        is_measured = {name, today} <= by_name.keys()
        return (
            describe_factor(by_name[name].divide(by_name[today])) if is_measured else "not measured"
        )

    columns = (
        Column("system", lambda system: f"{system['name']} {system['version']}"),
        Column("how it sends experience", itemgetter("today"), is_text=True),
        Column("source", itemgetter("source"), is_text=True),
        Column(
            "most similar configuration",
            lambda system: f"`{system['configuration']}`",
            is_text=True,
        ),
        *(
            Column(f"{step}: times as fast", partial(format_step, name=name))
            for step, name in SYSTEMS["steps"].items()
        ),
    )
    return Section("systems", "", table=make_table(SYSTEMS["systems"], columns))
