"""Build the sections that only README.md and docs/ have."""

import contextlib
import io
from collections.abc import Collection, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from common.analysis.result import Result, with_shared_memcpy
from common.plan.command_line import describe_flags
from common.report import console
from common.report.sections import describe_fastest, find_transports, provenance, title_of
from common.report.tables import Column, Section, Table, format_milliseconds, make_table
from common.transports.catalogue import BASELINE, VARIANTS, Variant

CHOICE = ("rdt gloo", "graph shm", "graph nccl", "graph mapped --copy-out", "store refs --zero-copy", "graph mapped")
EXAMPLE_WIDTH = 100  # characters of the terminal that README.md shows


def page_sections(results: Sequence[Result]) -> list[Section]:
    """Return the sections about the configurations of the largest workload, and the flags of the scripts."""
    flags = [[f"`{flag}`", text] for flag, text in describe_flags().items()]
    built = [Section("flags", "", table=Table(["flag", "meaning"], flags, (0, 1)))]
    all_sizes = [result for result in results if result.table == "configurations"]
    if not any(result.status == "ok" for result in all_sizes):
        return built
    largest = max((result.workload for result in all_sizes), key=lambda workload: workload.bytes_per_iteration)
    shown = with_shared_memcpy([result for result in all_sizes if result.workload == largest])
    on_ray = [result for result in shown if result.transport.runtime.uses_ray]
    without_ray = [r for r in shown if r.name == BASELINE or not r.transport.runtime.uses_ray]
    memcpy = f"The memcpy time, one warm copy per edge, is {format_milliseconds(shown[0].memcpy_seconds)} ms."
    notes = [f"Without Ray: {describe_fastest(without_ray)}", memcpy, *provenance(shown)[:-1]]
    built += [
        Section("numbers", title_of(shown[0]), describe_fastest(on_ray), notes=notes),
        Section("choice", "", table=make_advice_table(shown, CHOICE)),
        Section("advice", "", table=make_advice_table(shown)),
    ]
    copies = [result for result in find_transports(on_ray) if result.readers_own_a_copy]
    if copies:
        fastest = min(copies, key=lambda result: result.summary.median)
        built.append(Section("printed", "", print_example(fastest)))
    return built


def make_advice_table(results: Sequence[Result], names: Collection[str] = ()) -> Table:
    """Return when to use each configuration of the catalogue; in short for `names`."""

    def measured(variant: Variant) -> str:
        result = next((result for result in results if result.name == variant.name), None)
        if result is None or result.status != "ok":
            return result.status if result else "not measured"
        text, mean = f"{format_milliseconds(result.summary.median)} ms", fmean(result.seconds)
        if result.summary.p95:
            text += f", p95 {format_milliseconds(result.summary.p95)}"
        return f"{text}, mean {format_milliseconds(mean)}" if mean > 2 * result.summary.median else text

    columns = [
        Column("configuration", lambda variant: f"`{variant.name}`"),
        Column("use it for", lambda variant: variant.advice.use_when, is_text=True),
        Column("needs", lambda variant: variant.advice.needs, is_text=True),
        Column("copies per edge", lambda variant: variant.advice.copies, 1, is_text=True),
        Column("what breaks it", lambda variant: variant.advice.breaks, 1, is_text=True),
        Column("median time here", measured),
    ]
    variants = [variant for variant in VARIANTS if variant.advice and (not names or variant.name in names)]
    return make_table(variants, [column for column in columns if not (names and column.rank)])


def print_example(result: Result) -> str:
    """Return the command that measures a configuration of the default flow, and what its last run printed."""
    record = msgspec.structs.replace(result.record, runs=[result.shown_runs[-1]])
    runtime, arguments = result.transport.runtime, record.arguments
    command = f"{runtime.script} --transport {result.name.partition(' ')[2]} --iterations {arguments.get('iterations')}"
    output, path = io.StringIO(), Path("results") / f"{runtime.name}-{result.transport.name}-TIME.json"
    with contextlib.redirect_stdout(output):
        console.print_flow(result.flow)
        console.print_end([record], path, EXAMPLE_WIDTH)
    return f"```\n$ .venv/bin/python {command}\n{output.getvalue()}```"
