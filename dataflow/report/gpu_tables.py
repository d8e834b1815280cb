# SPDX-License-Identifier: Apache-2.0
"""Show what was measured on GPUs, and what a machine with so many cards can measure."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from common import demo
from common.flags import SCRIPTS
from common.gpus import share_of_gpu
from dataflow.analysis.result import Result, group_results
from dataflow.catalogue.catalogue import BASELINE, Transport, suites
from dataflow.errors import Skipped
from dataflow.flows.catalogue import build_flow
from dataflow.flows.flow import DRIVER
from dataflow.plan import validate
from dataflow.plan.command_line import list_members, make_options
from dataflow.plan.options import RESULTS
from dataflow.plan.plan import Plan
from dataflow.records import files
from dataflow.records.machine import describe_gpus
from dataflow.report import tables
from dataflow.report.sections import Group, Table, title_of
from dataflow.report.tables import (
    Column,
    Section,
    format_milliseconds,
    format_significant,
    make_table,
)
from dataflow.units import format_bytes

TABLE = "gpu"
# Records of the two scripts, on one card.
SCRIPT_RECORDS = RESULTS / "evidence" / "gpu-scripts"
FLAG_IN_BRACKETS = re.compile(r" \(--[a-z-]+\)")
# When a run failed, at the beginning of its failure.
MOMENT = re.compile(
    r"(?P<moment>iteration \d+|before the first iteration|after the last iteration): "
)
CARDS = (1, 2, 3, 4, 8)
PAGE = "[cluster.md](cluster.md#gpus)"
NOT_MEASURED = "not measured. Nothing has run on a GPU here"
MEMCPY = (
    "x memcpy: the time divided by that of one copy of each message from the GPU of its sender to that of its reader, "
    "which can be the same one. "
)
HOST_COPIES = (
    "x host copies: the time divided by that of one copy of each message into pinned host memory and one back. Ray's "
    "own paths through the host use pageable memory, which takes longer."
)
NOTES = (MEMCPY + HOST_COPIES,)
# The sentence about the fastest result of each kind of readers.
FASTEST_OF = {tables.COPY_TO_KEEP: "keep a copy", tables.VIEW: "get a view"}


def format_path(result: Result) -> str:
    """Return how the messages between actors travelled, as found at run time."""
    paths = set()
    for run in result.shown_runs:
        for edge, path in run.data_paths.items():
            if DRIVER not in edge.split(" -> "):
                paths.add(path)
    return "; ".join(sorted(paths)) or "-"


def gpu_columns(group: Group) -> Sequence[Column]:
    return (
        Column("configuration", lambda result: result.name),
        tables.READERS,
        Column("page faults", tables.format_faults, rank=1),
        tables.TIME,
        *tables.TAIL_COLUMNS,
        Column("95 % interval", tables.format_interval, rank=3, is_optional=True),
        Column("x memcpy", lambda result: format_significant(result.times_memcpy)),
        Column("x host copies", format_host_multiple, rank=2),
        Column("messages between actors", format_path, is_text=True),
        Column("status", lambda result: result.status, rank=2, untimed=True),
    )


def format_host_multiple(result: Result) -> str:
    return format_significant(result.multiple_of(result.host_copy_seconds))


def title_on_gpus(result: Result) -> str:
    return f"{title_of(result)}, tensors on GPUs"


GPU = Table(TABLE, gpu_columns, title=title_on_gpus, notes=lambda group: NOTES)


def is_of_gpus(result: Result) -> bool:
    """Return whether a result is of the suite gpu, and of GPUs: it can also be rehearsed with --device cpu."""
    return result.configuration.device == "cuda" and result.table == TABLE


def is_measured(result: Result) -> bool:
    return is_of_gpus(result) and result.status == "ok"


def answer_gpus(results: Sequence[Result]) -> str:
    """Return the times of the largest workload on GPUs, the fastest first, or that nothing was measured."""
    measured = list(filter(is_measured, results))
    if not measured:
        return f"**GPUs:** {NOT_MEASURED}: {PAGE}."
    sizes = [result.workload.bytes_per_iteration for result in measured]
    shown = [result for result in measured if result.workload.bytes_per_iteration == max(sizes)]
    shown.sort(key=lambda result: result.typical_seconds)
    times = [format_time(result) for result in shown]
    cards = describe_gpus(shown[0].environments[0])
    size = format_bytes(max(sizes))
    return f"**GPUs** ({cards}, {size} per iteration; {PAGE}). {', '.join(times)}."


def format_time(result: Result) -> str:
    """Return the name and the time, and what readers get if it is no copy that they may keep."""
    text = f"`{result.name}` {format_milliseconds(result.typical_seconds)} ms"
    group = tables.readers_of(result)
    if group == tables.COPY_TO_KEEP:
        return text
    return f"{text} ({tables.READER_GROUPS[group]})"


def gpu_sections(results: Sequence[Result]) -> list[Section]:
    """Return what pages have besides the table of the suite: that there is none, what cards can, the scripts."""
    built = [build_cards(), build_scripts(load_script_results())]
    if not any(map(is_measured, results)):
        sentence = (
            f"GPUs: {NOT_MEASURED}, neither NCCL nor CUDA IPC. "
            "No number of this repository says anything about them."
        )
        built.append(Section(TABLE, "", sentence))
    return built


@dataclass(frozen=True)
class ScriptResults:
    """What the two scripts measured on one card: the demo's queues, and the fastest compiled graph."""

    queues: Result
    graph: Result

    @property
    def text(self) -> str:
        """Return both times and their factor, beside those of the demo."""
        cards = ", ".join(self.queues.environments[0]["gpus"])
        factor = self.queues.typical_seconds / self.graph.typical_seconds
        demo_factor = demo.QUEUE_SECONDS / demo.GRAPH_SECONDS
        return (
            f"On one {cards} that all models share, an iteration of the demo's queues takes "
            f"{format_mean(self.queues)}, and one of a compiled graph (`{self.graph.configuration.transport}`) "
            f"{format_mean(self.graph)}: {format_significant(factor)} times as fast. The demo reports "
            f"{format_demo(demo.QUEUE_SECONDS)} and {format_demo(demo.GRAPH_SECONDS)} ms, "
            f"{format_significant(demo_factor)} times, with NCCL between its own GPUs."
        )


def format_demo(seconds: float) -> str:
    """Return the milliseconds of one of the demo's iterations."""
    return format_milliseconds(seconds / demo.ITERATIONS)


def format_mean(result: Result) -> str:
    """Return the mean time and of how many iterations it is, such as "220 ms (mean of 100)"."""
    return f"{format_milliseconds(result.typical_seconds)} ms (mean of {len(result.seconds)})"


def load_script_results(folder: Path = SCRIPT_RECORDS) -> ScriptResults | None:
    """Return what the two scripts measured, from a folder with records of one card; None without both of them."""
    has_records = any(folder.glob("*.json*"))
    results = group_results(files.load_all([folder])) if has_records else []
    queues = [result for result in results if result.name == BASELINE]
    graphs = [result for result in results if result.configuration.runtime == "graph"]
    if not queues or not graphs:
        return None
    return ScriptResults(queues[0], min(graphs, key=lambda result: result.typical_seconds))


def describe_gpu_times(results: Sequence[Result], folder: Path = SCRIPT_RECORDS) -> str:
    """Return what the two scripts took on GPUs, and the suite's fastest results; "" without both scripts.

    Of the suite, only results with the messages of the scripts count. Those that failed are named.
    """
    scripts = load_script_results(folder)
    if scripts is None:
        return ""
    edges = scripts.queues.workload.edges
    of_gpus = [result for result in results if is_of_gpus(result)]
    alike = [result for result in of_gpus if result.workload.edges == edges]
    sentences = [scripts.text]
    for group, readers in FASTEST_OF.items():
        fastest = find_fastest(alike, group)
        if fastest is not None:
            sentences.append(f"If readers {readers}, {describe_fastest_of_suite(fastest)}.")
    sentences += describe_failures(alike)
    return " ".join(sentences)


def describe_fastest_of_suite(fastest: Result) -> str:
    """Return a part of a sentence: the name, the milliseconds, and of how many runs they are."""
    time = format_milliseconds(fastest.typical_seconds)
    count = len(fastest.run_seconds)
    runs = "one run" if count == 1 else f"{count} runs"
    return f"`{fastest.name}` was the fastest of the suite, with {time} ms ({runs})"


def find_fastest(results: Sequence[Result], group: str) -> Result | None:
    """Return the fastest result with a time whose readers get what `group` says; None if there is none."""
    done = [result for result in results if result.status == "ok"]
    of_group = [result for result in done if tables.readers_of(result) == group]
    return min(of_group, key=lambda result: result.typical_seconds, default=None)


def describe_failures(results: Sequence[Result]) -> list[str]:
    """Return a sentence per reason why runs failed, with the names of their configurations, and when they failed."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for result in results:
        if result.status == "failed":
            moment, reason = split_failure(result.failure or "")
            name = f"`{result.name}`"
            if moment:
                name += f" ({moment})"
            by_reason[reason].append(name)
    sentences = []
    for reason, names in by_reason.items():
        sentences.append(f"No times ({reason}): {', '.join(names)}.")
    return sentences


def split_failure(failure: str) -> tuple[str, str]:
    """Split "failed: MOMENT: REASON (--flag)" into MOMENT and REASON; MOMENT is "" if the text names none.

    Flags in brackets are left out. A reason can have colons too, so only what MOMENT knows is a moment.
    """
    text = failure.removeprefix("failed: ")
    text = FLAG_IN_BRACKETS.sub("", text)
    match = MOMENT.match(text)
    if match is None:
        return "", text
    return match["moment"], text[match.end() :]


def build_scripts(measured: ScriptResults | None) -> Section:
    """Return the times of the two scripts on GPUs, beside those of the demo."""
    if measured is None:
        return Section("gpu-scripts", "")
    columns = (
        Column("script", lambda result: f"`{SCRIPTS[result.configuration.runtime]}`"),
        Column("transport", lambda result: result.configuration.transport, is_text=True),
        tables.READERS,
        Column("iterations", lambda result: f"{len(result.seconds)}"),
        tables.TIME,
        *tables.TAIL_COLUMNS,
        Column("x host copies", format_host_multiple),
    )
    table = make_table([measured.queues, measured.graph], columns)
    return Section("gpu-scripts", "", f"**{measured.text}**", table, notes=[HOST_COPIES])


@dataclass(frozen=True)
class Candidate:
    """A configuration of the suite, and the actors that need a place on the cards."""

    transport: Transport
    name: str
    flow: str
    actors: int  # a proxy actor of the driver included


def list_candidates() -> Iterator[Candidate]:
    """Yield the configurations of the suite gpu, in its order."""
    for part in suites()[TABLE]:
        for member in list_members(part):
            (options,) = make_options(member.transport, member.flags)
            flow = build_flow(options.flow, options.sizes, options.message)
            plan = Plan(member.transport, options, flow, "cuda")
            yield Candidate(
                transport=member.transport,
                name=plan.configuration.name,
                flow=options.flow,
                actors=len(plan.task_flow.actors),
            )


def describe_place(candidate: Candidate, cards: int) -> str:
    """Return how the actors share so many cards; "-" if they are too few."""
    try:
        used = validate.require_gpus(candidate.transport, cards, candidate.actors)
    except Skipped:
        return "-"
    return "own card" if share_of_gpu(candidate.actors, used) == 1 else "shared"


def build_cards() -> Section:
    """Return which configurations of the suite gpu a machine with so many cards can measure."""
    columns = [
        Column("configuration", lambda candidate: f"`{candidate.name}`"),
        Column("flow", lambda candidate: candidate.flow, is_text=True),
    ]
    columns += [make_card_column(cards) for cards in CARDS]
    return Section("gpu-cards", "", table=make_table([*list_candidates()], columns))


def make_card_column(cards: int) -> Column:
    header = "1 card" if cards == 1 else f"{cards} cards"
    return Column(header, lambda candidate: describe_place(candidate, cards), is_text=True)
