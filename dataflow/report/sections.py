"""Build the sections of a report from results. console.py, markdown.py and html.py render them.

Records name their table. suite_tables.py and the modules `sections` of the studies say how each table is shown.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from dataflow.analysis.result import Result, with_shared_references
from dataflow.flows.catalogue import FLOWS
from dataflow.report import tables
from dataflow.report.groups import Group, Table, provenance, title_of
from dataflow.report.suite_tables import TABLES
from dataflow.report.tables import Section, make_table
from dataflow.studies import FOLDER, studies


@cache
def study_modules() -> list[ModuleType]:
    """Return the module `sections` of each study that has one."""
    names = [name for name in studies() if (FOLDER / name / "sections.py").exists()]
    return [import_module(f"dataflow.studies.{name}.sections") for name in names]


@cache
def find_tables() -> Mapping[str, Table]:
    """Return how each table is shown, in the order of the report: those of the suite, then those of the studies."""
    return TABLES | {name: table for module in study_modules() for name, table in module.SECTIONS.items()}


def sections(results: Sequence[Result]) -> list[Section]:
    """Return the sections of all results. Raise RecordError for a contradictory trace."""
    groups: dict[tuple[Any, ...], list[Result]] = defaultdict(list)
    order = [*find_tables()]
    for result in results:
        # A paired measurement can have the same configuration twice, from two checkouts.
        split = [Result((record,)) for record in result.records] if result.paired else [result]
        table, flow = find_table(result), result.workload.flow
        position = order.index(result.table) if result.table in order else len(order)
        key = (position, result.table, [*FLOWS, flow].index(flow), flow, *table.group_by(result))
        groups[key] += split
    return [
        section
        for key in sorted(groups, key=lambda key: key[:5])
        for section in build_group(Group(with_shared_references(groups[key]), results))
    ]


def find_table(result: Result) -> Table:
    """Return how the table of a result is shown: with the columns of the configurations, if no study has this table."""
    default = replace(TABLES["configurations"], name=result.table, chart=lambda group: None, before=())
    return find_tables().get(result.table, default)


def build_group(group: Group) -> list[Section]:
    """Return the sections of one group. The last one has the failures and the provenance of all."""
    first = group.results[0]
    failures = [f"{result.label}: {result.failure}." for result in group.results if result.failure]
    if not group.done:
        table = make_table(group.results, tables.MAIN_COLUMNS)
        return [Section("results", title_of(first), "Nothing was measured.", table, notes=failures)]
    *others, last = find_table(first).build(group)
    return [*others, replace(last, notes=[*last.notes, *failures, *provenance(group.done)])]
