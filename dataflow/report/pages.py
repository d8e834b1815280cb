# SPDX-License-Identifier: Apache-2.0
"""Build what only the pages have: the demo's times, which transport to use, the flags, and what known systems do."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from common import demo
from dataflow.analysis.campaigns import Row, combine, load_campaigns
from dataflow.analysis.comparison import match_results
from dataflow.analysis.kept_checks import load_checks
from dataflow.analysis.kept_predictions import load_predictions
from dataflow.analysis.left_out import predict_left_out
from dataflow.analysis.outcomes import find_all_outcomes
from dataflow.analysis.result import Result, group_results
from dataflow.analysis.statistics import UNRANKED, ratio
from dataflow.analysis.stored_costs import load_costs
from dataflow.catalogue.catalogue import BASELINE, SIMPLEST, VARIANTS
from dataflow.cluster.costs import load_forecast
from dataflow.errors import RecordError
from dataflow.plan.command_line import describe_flags
from dataflow.plan.options import CAMPAIGNS, OTHER_CAMPAIGNS, RESULTS
from dataflow.records import files
from dataflow.report.answers import build_answers
from dataflow.report.campaign_tables import (
    campaign_sections,
    describe_campaigns,
    format_boots,
    format_memory,
)
from dataflow.report.cluster_chart import fan_in_section
from dataflow.report.cluster_forecast import forecast_sections
from dataflow.report.front_page import AnswerSources, build_three_answers
from dataflow.report.gpu_tables import describe_gpu_times, gpu_sections
from dataflow.report.machine_columns import (
    boots_of_rows,
    divide_means,
    list_by_machine,
    list_means,
    times_of,
)
from dataflow.report.outcome_tables import (
    check_section,
    find_predictions_of_new_machines,
    outcome_sections,
)
from dataflow.report.prediction_chart import prediction_section
from dataflow.report.price_tables import build_prices
from dataflow.report.provenance import describe_commits, provenance
from dataflow.report.sentences import PAIR_COLUMNS
from dataflow.report.tables import Column, Section, format_range, make_table
from dataflow.units import MIB, format_bytes
from dataflow.workers.variables import RETAIN_MEMORY

SYSTEMS = tomllib.loads(Path(__file__).with_name("systems.toml").read_text(encoding="utf-8"))
# Programs of these systems with and without changes: examples/profiled/measure.py.
PROGRAMS = RESULTS / "evidence" / "raymeter" / "programs"
SCRIPTS = {
    BASELINE: "simulate_chat_learn_data_flow.py",
    "graph shm": "ray_cg_simulate_chat_learn_data_flow.py",
}
DEMO_FLAGS = {
    "": "here",
    " --retain-memory": "here, with four environment variables (`--retain-memory`)",
}


def load_rows(campaigns: Path = CAMPAIGNS) -> list[Row]:
    """Return the configurations of all campaigns; none if there are no campaigns."""
    return combine(load_campaigns(campaigns)) if campaigns.exists() else []


def page_sections(results: Sequence[Result], rows: Sequence[Row]) -> list[Section]:
    """Return the sections that the records suffice for, those of the campaigns (`rows`) included."""
    columns = (
        Column("flag", lambda item: f"`{item[0]}`"),
        Column("meaning", itemgetter(1), is_text=True),
    )
    described = describe_flags()
    flags = make_table([*described.items()], columns)
    agreement = build_agreement(RESULTS / "evidence" / "agreement")
    built = [Section("flags", "", table=flags), agreement, *gpu_sections(results)]
    built += [*forecast_sections(), fan_in_section(load_forecast())]
    campaigns = load_campaigns(CAMPAIGNS) if CAMPAIGNS.exists() else {}
    left_out = predict_left_out(campaigns)
    others = load_campaigns(OTHER_CAMPAIGNS) if OTHER_CAMPAIGNS.exists() else {}
    kept = load_predictions()
    outcomes = find_all_outcomes(kept, {**campaigns, **others})
    built += [prediction_section(left_out, kept, outcomes), *outcome_sections(kept, outcomes)]
    built.append(check_section(load_checks()))
    headline = find_headline(rows)
    measured = AnswerSources(
        here=headline,
        elsewhere=find_headline(combine(others)),
        of_new_machines=find_predictions_of_new_machines(kept, outcomes),
        on_gpus=describe_gpu_times(results),
        of_systems=describe_measured_systems(),
        checks=load_checks(),
    )
    if headline.keys() >= SCRIPTS.keys():
        built += [
            build_three_answers(measured, load_costs()),
            build_claim(headline),
            build_prices(headline, load_costs()),
            build_demo(headline),
            *build_answers(results, [*headline.values()]),
            build_systems(headline),
            build_advice(headline),
        ]
    return built + campaign_sections(rows)


def find_headline(rows: Sequence[Row]) -> dict[str, Row]:
    """Return the rows of the demo's messages by the names of their configurations."""
    return {row.newest.name: row for row in rows if row.newest.table == "headline"}


def build_claim(by_name: Mapping[str, Row]) -> Section:
    """Return how much the variables change references, and then a graph with the same variables beside them."""
    refs = by_name.get(SIMPLEST)
    kept_refs = by_name.get(f"{SIMPLEST} --retain-memory")
    kept_graph = by_name.get("graph shm --retain-memory")
    if not (refs and kept_refs and kept_graph):
        return Section("claim", "")
    gains = [*divide_means(kept_refs, refs).values()]
    graph_gains = [*divide_means(kept_graph, kept_refs).values()]
    if not gains or len(graph_gains) != len(gains):
        return Section("claim", "")  # not all machines have measured all of them
    text = (
        f"On {format_boots(len(gains))} of our machines, four environment variables make Ray's plain references "
        f"{format_range(gains)} times as fast with large messages (by the means). References then need "
        f"{format_memory(kept_refs)} GiB of memory instead of {format_memory(refs)} GiB. With these variables on both "
        f"sides, a compiled graph is {format_range(graph_gains)} times as fast as references, with "
        f"{format_memory(kept_graph)} GiB."
    )
    return Section("claim", "", text)


def build_demo(by_name: Mapping[str, Row]) -> Section:
    """Return the demo's commands with the time of 100 iterations by the campaigns, beside the times of the demo."""
    queues = demo.QUEUE_SECONDS
    graph = demo.GRAPH_SECONDS
    boots = boots_of_rows([*by_name.values()])
    rows = [["the demo, on its GPUs", f"{queues} s", f"{graph} s", f"{queues / graph:.1f}", "-"]]
    used = []
    for flag, place in DEMO_FLAGS.items():
        names = [name + flag for name in SCRIPTS]
        if not by_name.keys() >= {*names}:
            continue
        both = [by_name[name] for name in names]
        used += both
        times = [f"{list_means(row, boots, factor=demo.ITERATIONS)} s" for row in both]
        factor = list_by_machine(divide_means(both[1], both[0]), boots)
        memory = " and ".join(format_memory(row) for row in both)
        rows.append([place, *times, factor, memory])
    headers = (
        "where",
        "queues through the driver",
        "compiled graph",
        "times as fast",
        "memory GiB",
    )
    columns = [Column(header, itemgetter(index)) for index, header in enumerate(headers)]
    commands = "\n".join(["```", *demo_commands(by_name), "```"])
    sizes = [edge.bytes for edge in used[0].newest.workload.edges]
    note = (
        f"{demo.ITERATIONS} iterations, messages of {format_bytes(min(sizes))} to {format_bytes(max(sizes))}. "
        f"Here: {demo.ITERATIONS} times the suite's mean time per iteration in the steady state, on one machine after "
        "the other. Memory: the largest peak of all processes together."
    )
    notes = [note, *describe_campaigns(used)]
    return Section("demo", "", commands, make_table(rows, columns), notes=notes)


def demo_commands(by_name: Mapping[str, Row]) -> list[str]:
    """Return the commands of the scripts, with how long they take."""
    commands = []
    for name, script in SCRIPTS.items():
        means = times_of(by_name[name]).values()
        seconds = format_range([demo.ITERATIONS * times.mean for times in means])
        commands.append(f".venv/bin/python {script:40}  # iterations: about {seconds} seconds")
    # Without these names, it draws the newest records, which can be of a suite.
    plot = "plot_results.py results/store-*.json results/graph-*.json"
    chart = "draws them: results/benchmark_result.svg"
    return [*commands, f".venv/bin/python {plot}  # {chart}"]


def build_agreement(folder: Path) -> Section:
    """Return the times of the suite and those of the scripts, from the records in suite/ and scripts/ of a folder."""
    suite, scripts = (
        group_results(files.load_all([folder / side])) for side in ("suite", "scripts")
    )
    columns = (Column("configuration: suite → script", lambda pair: pair.label), *PAIR_COLUMNS[:-1])
    table = make_table(match_results(suite, scripts)[0], columns)
    return Section("agreement", "", table=table, notes=provenance(suite))


def build_advice(by_name: Mapping[str, Row]) -> Section:
    """Return when to use each configuration of the catalogue, and its time in campaigns."""
    keys = {
        "use it for": "use_when",
        "needs": "needs",
        "copies per edge": "copies",
        "what breaks it": "breaks",
    }
    boots = boots_of_rows([*by_name.values()])
    advice = [{"name": variant.name, **variant.advice} for variant in VARIANTS if variant.advice]
    columns = (
        Column("configuration", lambda item: f"`{item['name']}`"),
        *(Column(header, itemgetter(key), is_text=True) for header, key in keys.items()),
        Column(
            "mean ms, by machine",
            lambda i: list_means(by_name[i["name"]], boots) if i["name"] in by_name else "-",
        ),
    )
    return Section("advice", "", table=make_table(advice, columns))


def build_systems(by_name: Mapping[str, Row]) -> Section:
    """Return what known systems do, which configuration is similar, what was measured of them, and factors here."""
    steps = [build_step(step, name, by_name) for step, name in SYSTEMS["steps"].items()]
    columns = (
        Column("system", lambda system: f"{system['name']} {system['version']}"),
        Column("how it sends experience", itemgetter("today"), is_text=True),
        Column("source", itemgetter("source"), is_text=True),
        Column("the system itself", describe_measured, is_text=True),
        Column(
            "most similar configuration",
            lambda system: f"`{system['configuration']}`",
            is_text=True,
        ),
        *steps,
    )
    table = make_table(SYSTEMS["systems"], columns)
    sentence = describe_steps(by_name)
    return Section("systems", "", sentence, table, notes=[describe_code_of_systems(by_name)])


def describe_code_of_systems(by_name: Mapping[str, Row]) -> str:
    """Return the commits that the factors of known systems come from, and whether programs of these name theirs."""
    names = {system["configuration"] for system in SYSTEMS["systems"]}
    names |= set(SYSTEMS["steps"].values())
    environments = []
    for name in sorted(names & by_name.keys()):
        row = by_name[name]
        for pair in row.pairs.values():
            environments += pair.new.environments
    text = f"Factors of this benchmark: {describe_commits(environments)}."
    unnamed = []
    for system in SYSTEMS["systems"]:
        changes = system.get("measured", [])
        programs = [change["program"] for change in changes]
        is_named = all(map(names_its_commit, programs))
        if not is_named:
            unnamed.append(system["name"])
    if unnamed:
        systems = ", ".join(unnamed)
        text += f" The records of the system itself ({systems}) name no commit of this project."
    return text


def names_its_commit(program: str) -> bool:
    """Return whether the measured changes of a program have an origin."""
    path = PROGRAMS / f"{program}.json"
    record = json.loads(path.read_bytes())
    return "changes" in record.get("origins", {})


def divide_step(
    name: str, system: Mapping[str, str], by_name: Mapping[str, Row]
) -> dict[str, float]:
    """Return, by boot, how many times as fast a configuration is as the one that is similar to a system.

    Nothing if one of them was not measured.
    """
    new = by_name.get(name)
    old = by_name.get(system["configuration"])
    return divide_means(new, old) if new and old else {}


def build_step(step: str, name: str, by_name: Mapping[str, Row]) -> Column:
    """Return the column with the factors of a configuration, and its memory in the header."""

    boots = boots_of_rows([*by_name.values()])

    def format_step(system: Mapping[str, str]) -> str:
        if name == system["configuration"]:
            return "as today"
        factors = divide_step(name, system, by_name)
        return list_by_machine(factors, boots) if factors else "not measured"

    header = step
    if name in by_name:
        header += f" ({format_memory(by_name[name])} GiB)"
    return Column(header, format_step)


def describe_steps(by_name: Mapping[str, Row]) -> str:
    """Return what the factors of known systems are, with the sizes of the messages of this benchmark."""
    sizes = [edge.bytes for edge in by_name[BASELINE].newest.workload.edges]
    smallest = min(sizes) // MIB
    largest = format_bytes(max(sizes))
    return (
        "Each factor says how many times as fast. *The system itself*: after a change of it (in brackets: 95 % "
        f"interval). The last three columns: this benchmark, flat tensors of {smallest} to {largest}, compared with "
        "the most similar configuration, by the means, on one machine after the other. *Kept memory*: "
        "`--retain-memory`. *GiB*: the peak memory of all processes together."
    )


def describe_measured(system: Mapping[str, Any]) -> str:
    """Return how many times as fast changes made the system itself, in pairs of runs, or that nothing was measured."""
    texts = []
    for description in system.get("measured", []):
        program = description["program"]
        change = description["change"]
        text = description["text"]
        measured = find_change(program, change)
        factor = describe_factor_of(measured)
        texts.append(f"{text}: {factor}")
        if keeps_memory(measured):
            texts[-1] += ", memory not measured"
    return "; ".join(texts) if texts else "not measured"


def describe_measured_systems() -> str:
    """Return how many times as fast each measured change made a system itself."""
    systems = [system for system in SYSTEMS["systems"] if system.get("measured")]
    return "; ".join(map(describe_measured, systems))


def keeps_memory(measured: Mapping[str, Any]) -> bool:
    """Return whether a measured change sets variables of --retain-memory."""
    change = measured["change"]
    settings = change.get("settings", {})
    return bool(RETAIN_MEMORY.keys() & settings.keys())


def describe_factor_of(measured: Mapping[str, Sequence[float]]) -> str:
    """Return how many times as fast a program is with a change, and its interval."""
    change = ratio(measured["after"], measured["before"], paired=True)
    if change.interval is None:
        return "not measured"
    slowest, fastest = change.interval  # of the times
    factor = 1 / change.value
    low = 1 / fastest
    high = 1 / slowest
    text = f"{factor:.2f} ({low:.2f} to {high:.2f}), {change.runs} pairs of runs"
    if change.verdict in UNRANKED:
        text += f", {change.verdict}"
    return text


def find_change(program: str, name: str) -> Mapping[str, Any]:
    """Return the measured change of a program; raise RecordError if there is none."""
    path = PROGRAMS / f"{program}.json"
    changes = []
    if path.exists():
        record = json.loads(path.read_bytes())
        changes = record["changes"]
    for measured in changes:
        change = measured["change"]
        if change["name"] == name:
            return dict(measured)
    raise RecordError(f"{path} has no change {name!r}: measure it, or change systems.toml")
