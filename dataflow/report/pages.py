"""Build what only the pages have: the flags, when to use each configuration, and what known systems do."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dataflow.analysis.comparison import Pair
from dataflow.analysis.result import Result
from dataflow.catalogue.catalogue import VARIANTS, Variant
from dataflow.plan.command_line import describe_flags
from dataflow.report import tables
from dataflow.report.readme_sections import build_readme
from dataflow.report.sentences import format_factor
from dataflow.report.tables import Column, Section, TextTable, format_milliseconds, make_table
from dataflow.units import format_bytes

SYSTEMS = Path(__file__).with_name("systems.toml")


def page_sections(results: Sequence[Result]) -> list[Section]:
    """Return the sections about the configurations of the largest workload, and the flags of configurations."""
    flags = [[f"`{flag}`", text] for flag, text in describe_flags().items()]
    built = [Section("flags", "", table=TextTable(["flag", "meaning"], flags, (0, 1)))]
    built += build_readme(results)
    all_sizes = [result for result in results if result.table == "configurations"]
    if any(result.status == "ok" for result in all_sizes):
        largest = max((result.workload for result in all_sizes), key=lambda workload: workload.bytes_per_iteration)
        measured = [result for result in all_sizes if result.workload == largest]
        built += [Section("advice", "", table=make_advice_table(measured)),
                  Section("systems", "", table=make_systems_table(measured))]  # fmt: skip
    return built


def make_advice_table(results: Sequence[Result]) -> TextTable:
    """Return when to use each configuration of the catalogue."""

    def measured(variant: Variant) -> str:
        result = next((result for result in results if result.name == variant.name), None)
        if result is None or result.status != "ok":
            return result.status if result else "not measured"
        return f"{format_milliseconds(result.typical_seconds)} ({tables.format_interval(result)})"

    columns = [
        Column("configuration", lambda variant: f"`{variant.name}`"),
        Column("use it for", lambda variant: variant.advice.use_when, is_text=True),
        Column("needs", lambda variant: variant.advice.needs, is_text=True),
        Column("copies per edge", lambda variant: variant.advice.copies, is_text=True),
        Column("what breaks it", lambda variant: variant.advice.breaks, is_text=True),
        Column("published ms (95 % interval)", measured),
    ]
    return make_table([variant for variant in VARIANTS if variant.advice], columns)


def make_systems_table(results: Sequence[Result]) -> TextTable:
    """Return what known systems do, which configuration that is, and how much faster another one was measured to be."""
    by_name = {result.name: result for result in results if result.status == "ok"}
    size = format_bytes(results[0].workload.bytes_per_iteration)

    def speed_ups(system: Mapping[str, Any]) -> str:
        cells = []
        for name in (step["becomes"] for step in system["steps"]):
            cell = "not measured"
            if by_name.keys() >= {system["configuration"], name}:
                cell = format_factor(Pair(by_name[system["configuration"]], by_name[name]).ratio)
            cells.append(cell)
        return "; ".join(cells)

    columns = [
        Column("system", lambda system: f"{system['name']} {system['version']}"),
        Column("how it sends experience", lambda system: system["today"], is_text=True),
        Column("source", lambda system: system["source"], is_text=True),
        Column("most similar configuration", lambda system: f"`{system['configuration']}`", is_text=True),
        Column(
            "changes",
            lambda system: "; then ".join(f"{step['change']}: `{step['becomes']}`" for step in system["steps"]),
            is_text=True,
        ),
        Column(
            "examples", lambda system: ", ".join(f"[{x}](../examples/{x}.py)" for x in system["examples"]), is_text=True
        ),
        Column(f"after each change, with flat messages, {size} per iteration (95 % interval)", speed_ups, is_text=True),
    ]
    return make_table(tomllib.loads(SYSTEMS.read_text(encoding="utf-8"))["systems"], columns)
