"""Build what only the pages have: the demo's times, which transport to use, the flags, and what known systems do."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from dataflow.analysis.campaigns import load_campaigns
from dataflow.analysis.comparison import Pair, find_transports, match_results, times_link
from dataflow.analysis.result import Result, group_results
from dataflow.catalogue.catalogue import BASELINE, VARIANTS
from dataflow.plan.command_line import describe_flags
from dataflow.plan.options import RESULTS
from dataflow.records import files
from dataflow.report import tables
from dataflow.report.campaign_tables import campaign_sections
from dataflow.report.sections import provenance
from dataflow.report.sentences import describe_alone, describe_fastest, format_factor, format_interval, format_time
from dataflow.report.stage_tables import headline_results, largest_of
from dataflow.report.suite_tables import describe_layout
from dataflow.report.tables import Column, Section, TextTable, format_milliseconds, format_significant, make_table
from dataflow.units import format_bytes

SYSTEMS = tomllib.loads(Path(__file__).with_name("systems.toml").read_text(encoding="utf-8"))["systems"]
AGREEMENT = RESULTS / "evidence" / "agreement"
CAMPAIGNS = RESULTS / "campaigns"
DEMO_SECONDS = (279.23, 35.37)  # published by the demo for its queues and its compiled graph: docs/demo.md
DEMO_ITERATIONS = 100
SCRIPTS = {BASELINE: "simulate_chat_learn_data_flow.py", "graph shm": "ray_cg_simulate_chat_learn_data_flow.py"}
DEMO_FLAGS = {"": "here", " --retain-memory": "here, with four environment variables (`--retain-memory`)"}
GPU_ANSWER = "**GPUs:** not measured. NCCL and CUDA IPC have never run on a GPU here: [docs/gpu.md](docs/gpu.md)."


def page_sections(results: Sequence[Result]) -> list[Section]:
    """Return the sections that the records suffice for. Each is about the largest workload of its table."""
    flags = [[f"`{flag}`", meaning] for flag, meaning in describe_flags().items()]
    built = [Section("flags", "", table=make_text_table(("flag", "meaning"), flags)), build_agreement(AGREEMENT)]
    headline = headline_results(results)
    by_name = {result.name: result for result in headline if result.status == "ok"}
    if by_name.keys() >= SCRIPTS.keys():
        built.append(build_demo(by_name))
    if by_name:
        built.append(Section("answers", "", build_answers(results, headline)))
    measured = {result.name: result for result in largest_of(results, "configurations")}
    timed = {name: result for name, result in measured.items() if result.status == "ok"}
    if timed:
        built += [build_advice(measured), build_systems(timed)]
    return built + (campaign_sections(load_campaigns(CAMPAIGNS)) if CAMPAIGNS.exists() else [])


def make_text_table(headers: Sequence[str], rows: list[list[str]], numbers: int = 0) -> TextTable:
    """Return a table of texts, in which the last `numbers` columns are aligned to the right."""
    columns = [Column(header, str, is_text=i < len(headers) - numbers) for i, header in enumerate(headers)]
    return TextTable(columns, headers, rows)


def build_demo(by_name: Mapping[str, Result]) -> Section:
    """Return the demo's commands with the time of 100 iterations by the records, beside the times of the demo."""
    seconds = {name: format_significant(DEMO_ITERATIONS * result.typical_seconds) for name, result in by_name.items()}
    queues, graph = DEMO_SECONDS
    rows, used = [["the demo, on its GPUs", f"{queues} s", f"{graph} s", f"{queues / graph:.1f}"]], []
    for flag, place in DEMO_FLAGS.items():
        names = [name + flag for name in SCRIPTS]
        if by_name.keys() >= {*names}:
            used += [by_name[name] for name in names]
            ratio = Pair(used[-1], used[-2]).ratio
            factor = f"{format_significant(ratio.value)} ({format_interval(ratio)})"
            rows.append([place, *(f"{seconds[name]} s" for name in names), factor])
    commands = [f".venv/bin/python {script:40}  # Execution time: about {seconds[name]} seconds"
                for name, script in SCRIPTS.items()]  # fmt: skip
    headers = ("where", "queues through the driver", "compiled graph", "times as fast (95 % interval)")
    edges = [edge.bytes for edge in used[0].workload.edges]
    size = (f"{DEMO_ITERATIONS} iterations, messages of {format_bytes(min(edges))} to {format_bytes(max(edges))}. "
            f"Here: {DEMO_ITERATIONS} times the suite's time per iteration in the steady state.")  # fmt: skip
    table = make_text_table(headers, rows, numbers=3)
    return Section("demo", "", "\n".join(["```", *commands, "```"]), table, notes=[size, *provenance(used)])


def build_agreement(folder: Path) -> Section:
    """Return how long the scripts take beside the suite, from the records in suite/ and scripts/ of a folder."""
    suite, scripts = (group_results(files.load_all([folder / side])) for side in ("suite", "scripts"))
    columns = [
        Column("configuration", lambda pair: pair.label),
        Column("script ms", lambda pair: format_milliseconds(pair.new.typical_seconds)),
        Column("suite ms", lambda pair: format_milliseconds(pair.old.typical_seconds)),
        Column("script / suite", lambda pair: format_significant(pair.ratio.value)),
        Column("95 % interval", lambda pair: format_interval(pair.ratio)),
        Column("verdict", lambda pair: pair.ratio.verdict, is_text=True),
    ]
    pairs = match_results(suite, scripts)[0]
    return Section("agreement", "", table=make_table(pairs, columns), notes=provenance(suite))


def build_answers(results: Sequence[Result], headline: Sequence[Result]) -> str:
    """Return a list of four answers: several nodes, one node with copies, one node with views, GPUs."""
    answers, workload = [], headline[0].workload
    nodes = [r for r in results if times_link(r) and tables.readers_of(r) == tables.OWN_COPY]
    if nodes := sorted(largest_of(nodes, "cluster"), key=lambda result: times_link(result) or 0):
        times = [f"`{result.name}` {format_significant(times_link(result))}" for result in nodes]
        layout = f"{describe_layout(nodes[0])}, {format_bytes(nodes[0].workload.bytes_per_iteration)} per iteration"
        answers.append(f"**Several nodes** ({layout}). Times as long as the network alone: {', '.join(times)}.")
    copies = [r for r in headline if r.transport.runtime.uses_ray and tables.readers_of(r) == tables.OWN_COPY]
    size = format_bytes(workload.bytes_per_iteration)
    answers.append(f"**One node** (on Ray, {size} per iteration). {describe_fastest(copies)}")
    views = [r for r in find_transports(results) if tables.readers_of(r) == tables.VIEW and r.transport.runtime.uses_ray
             and r.workload == workload and r.table == "configurations"]  # fmt: skip
    views.sort(key=lambda result: -result.typical_seconds)
    fastest = {result.producer_writes_in_place: describe_alone(result) for result in views}  # the last one counts
    if fastest:
        texts = [fastest[in_place] for in_place in sorted(fastest)]
        answers.append(f"**One node, readers that only read.** {'; '.join(texts)}.")
    return "\n".join(f"* {answer}" for answer in [*answers, GPU_ANSWER])


def build_advice(results: Mapping[str, Result]) -> Section:
    """Return when to use each configuration of the catalogue."""
    keys = {"use it for": "use_when", "needs": "needs", "copies per edge": "copies", "what breaks it": "breaks"}
    rows = []
    for variant in VARIANTS:
        if variant.advice:
            result = results.get(variant.name)
            published = result.status if result else "not measured"
            if published == "ok":
                published = format_time(results[variant.name]).replace(" ms", "")
            rows.append([f"`{variant.name}`", *(variant.advice[key] for key in keys.values()), published])
    headers = ("configuration", *keys, "published ms (95 % interval)")
    return Section("advice", "", table=make_text_table(headers, rows, numbers=1))


def build_systems(timed: Mapping[str, Result]) -> Section:
    """Return what known systems do, which configuration that is, and how much faster another one was measured to be."""
    size = format_bytes(next(iter(timed.values())).workload.bytes_per_iteration)
    headers = ("system", "how it sends experience", "source", "most similar configuration", "changes", "examples",
               f"after each change, with flat messages, {size} per iteration (95 % interval)")  # fmt: skip
    rows = []
    for system in SYSTEMS:
        old, factors = timed.get(system["configuration"]), []
        for step in system["steps"]:
            new = timed.get(step["becomes"])
            factors.append(format_factor(Pair(old, new).ratio) if old and new else "not measured")
        changes = [f"{step['change']}: `{step['becomes']}`" for step in system["steps"]]
        examples = [f"[{name}](../examples/{name}.py)" for name in system["examples"]]
        rows.append([
            f"{system['name']} {system['version']}", system["today"], system["source"], f"`{system['configuration']}`",
            "; then ".join(changes), ", ".join(examples), "; ".join(factors),
        ])  # fmt: skip
    return Section("systems", "", table=make_text_table(headers, rows))
