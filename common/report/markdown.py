"""Write sections as Markdown, between the marks of README.md and docs/ too, and build those that only they have."""

import contextlib
import io
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from common.analysis.comparison import Pair, find_transports
from common.analysis.result import Result, with_shared_references
from common.errors import RecordError
from common.flows.catalogue import build_flow
from common.flows.flow import DRIVER, Flow
from common.plan.command_line import describe_flags
from common.report import console, tables
from common.report.sections import build_retained_memory, provenance, title_of
from common.report.sentences import describe_fastest, format_interval
from common.report.tables import Column, Section, Table, format_milliseconds, format_significant, make_table
from common.transports.catalogue import BASELINE, VARIANTS, Variant
from common.units import format_bytes

MARK = re.compile(r"<!-- (?:end of )?([\w-]+)(?:: written by plot_results.py --publish)? -->")
CHOICE = ("store refs", "store refs --retain-memory", "rdt gloo", "graph shm", "graph nccl", "graph mapped --copy-out",
          "store refs --zero-copy", "graph mapped")  # fmt: skip
SYSTEMS = Path(__file__).with_name("systems.toml")
EXAMPLE_WIDTH = 100  # characters of the terminal that README.md shows


def render_table(table: Table) -> str:
    rule = ["---" if index in table.text_columns else "---:" for index in range(len(table.headers))]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in table.cells]
    return "\n".join(f"| {' | '.join(row)} |" for row in (table.headers, rule, *cells))


def render(built: Sequence[Section]) -> str:
    """Return the sections without their charts, whose files the pages show."""
    parts = []
    for section in built:
        title = f"**{section.title}.** " if section.title else ""
        table = render_table(section.table) if section.table else ""
        parts += [(title + section.sentence).strip(), table, "  \n".join(section.notes)]
    return "\n\n".join(filter(None, parts))


def rewrite_pages(folder: Path, built: Sequence[Section]) -> None:
    """Put the sections between the marks of their name, in README.md and docs/ of a folder. Others stay as they are."""
    texts = {s.name: render([other for other in built if other.name == s.name]) for s in built}
    for page in [*folder.glob("README.md"), *sorted(folder.glob("docs/*.md"))]:
        text = page.read_text(encoding="utf-8")
        for name in set(MARK.findall(text)):
            begin, end = f"<!-- {name}: written by plot_results.py --publish -->", f"<!-- end of {name} -->"
            if (text.count(begin), text.count(end)) != (1, 1):
                raise RecordError(f"{page}: write each of these marks once: {begin} and {end}")
            before, rest = text.split(begin)
            after = rest.split(end)[1]
            if name in texts:
                text = f"{before}{begin}\n{texts[name]}\n{end}{after}"
        page.write_text(text, encoding="utf-8")


def page_sections(results: Sequence[Result]) -> list[Section]:
    """Return the sections about the configurations of the largest workload, and the flags of the scripts."""
    flags = [[f"`{flag}`", text] for flag, text in describe_flags().items()]
    built = [Section("flags", "", table=Table(["flag", "meaning"], flags, (0, 1)))]
    built += [Section(name, "", draw_flow(build_flow("online-dpo", {}, message)))
              for name, message in (("flow", None), ("messages", "fields"))]  # fmt: skip
    all_sizes = [result for result in results if result.table == "configurations"]
    if not any(result.status == "ok" for result in all_sizes):
        return built
    largest = max((result.workload for result in all_sizes), key=lambda workload: workload.bytes_per_iteration)
    shown = with_shared_references([result for result in all_sizes if result.workload == largest])
    on_ray = [result for result in shown if result.transport.runtime.uses_ray]
    without_ray = [r for r in shown if r.name == BASELINE or not r.transport.runtime.uses_ray]
    memcpy = f"The memcpy time, one warm copy per edge, is {format_milliseconds(shown[0].memcpy_seconds)} ms."
    ok = [result for result in shown if result.status == "ok"]
    retained = "".join(section.sentence for section in build_retained_memory(ok))
    sentence = f"**Without Ray, compared with `{BASELINE}` on Ray.** {describe_fastest(without_ray)}"
    notes = [sentence, memcpy, *provenance(ok)]
    built += [
        Section("numbers", "Page faults", f"{retained} [docs/page-faults.md](docs/page-faults.md) has the variables.")
        if retained
        else Section("numbers", ""),
        Section("numbers", f"{title_of(shown[0])}, on Ray", describe_fastest(on_ray), notes=notes),
        Section("choice", "", table=make_advice_table(shown, CHOICE)),
        Section("advice", "", table=make_advice_table(shown)),
    ]
    built.append(Section("systems", "", table=make_systems_table(ok)))
    copies = [r for r in find_transports(on_ray) if r.readers_own_a_copy and r.threads == 1]
    if copies:
        fastest = min(copies, key=lambda result: result.typical_seconds)
        built.append(Section("printed", "", print_example(fastest)))
    return built


def draw_flow(flow: Flow) -> str:
    """Return a flow as a Mermaid diagram with the bytes of each edge, and its tensors if there are several."""
    lines = ["```mermaid", "flowchart LR"]
    for edge in flow.edges:
        label, count = format_bytes(edge.bytes), len(edge.message.tensor_bytes)
        if count > 1:
            label += f", {count:,} tensors"
        reader = "result[driver]" if edge.reader == DRIVER else edge.reader
        lines.append(f'    {edge.source} -->|"{label}"| {reader}')
    return "\n".join([*lines, "```"])


def make_advice_table(results: Sequence[Result], names: Collection[str] = ()) -> Table:
    """Return when to use each configuration of the catalogue; in short for `names`."""

    def measured(variant: Variant) -> str:
        result = next((result for result in results if result.name == variant.name), None)
        if result is None or result.status != "ok":
            return result.status if result else "not measured"
        return f"{format_milliseconds(result.typical_seconds)} ({tables.format_interval(result)})"

    columns = [
        Column("configuration", lambda variant: f"`{variant.name}`"),
        Column("use it for", lambda variant: variant.advice.use_when, is_text=True),
        Column("needs", lambda variant: variant.advice.needs, is_text=True),
        Column("copies per edge", lambda variant: variant.advice.copies, 1, is_text=True),
        Column("what breaks it", lambda variant: variant.advice.breaks, 1, is_text=True),
        Column("published ms (95 % interval)", measured),
    ]
    variants = [variant for variant in VARIANTS if variant.advice and (not names or variant.name in names)]
    return make_table(variants, [column for column in columns if not (names and column.rank)])


def make_systems_table(results: Sequence[Result]) -> Table:
    """Return what known systems do, which configuration that is, and how much faster another one was measured to be."""
    by_name = {result.name: result for result in results}

    def speed_up(system: Mapping[str, Any]) -> str:
        pair = [by_name.get(system[key]) for key in ("configuration", "becomes")]
        if None in pair:
            return "not measured"
        ratio = Pair(*pair).ratio  # type: ignore[arg-type]
        return f"{format_significant(1 / ratio.value)} times as fast ({format_interval(ratio, invert=True)})"

    columns = [
        Column("system", lambda system: f"{system['name']} {system['version']}"),
        Column("how it sends experience", lambda system: system["today"], is_text=True),
        Column("source", lambda system: system["source"], is_text=True),
        Column("most similar configuration", lambda system: f"`{system['configuration']}`", is_text=True),
        Column("change", lambda system: f"{system['change']}: `{system['becomes']}`", is_text=True),
        Column(
            "examples", lambda system: ", ".join(f"[{x}](../examples/{x}.py)" for x in system["examples"]), is_text=True
        ),
        Column("speed-up with the demo's messages (95 % interval)", speed_up, is_text=True),
    ]
    return make_table(tomllib.loads(SYSTEMS.read_text(encoding="utf-8"))["systems"], columns)


def print_example(result: Result) -> str:
    """Return the command that measures a configuration of the default flow, and what its last run printed."""
    record = msgspec.structs.replace(result.record, runs=[result.shown_runs[-1]])
    runtime, arguments = result.transport.runtime, record.arguments
    counts = f"--warmup {arguments.get('warmup')} --iterations {arguments.get('iterations')}"
    command = f"{runtime.script} --transport {result.name.partition(' ')[2]} {counts}"
    output, path = io.StringIO(), Path("results") / f"{runtime.name}-{result.transport.name}-TIME.json"
    with contextlib.redirect_stdout(output):
        console.print_flow(result.flow)
        console.print_end([record], path, EXAMPLE_WIDTH)
    return f"```\n$ .venv/bin/python {command}\n{output.getvalue()}```"
