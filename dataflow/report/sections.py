"""Build the sections of a report from results. render.py shows them as text, Markdown and HTML.

Records name their table. suite_tables.py and the modules `sections` of the studies say how each table is shown.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

from dataflow.analysis.result import UNCOUNTED, Result, with_shared_references
from dataflow.flows.catalogue import FLOWS
from dataflow.report import tables
from dataflow.report.groups import Group, Table, provenance, title_of
from dataflow.report.suite_tables import CONFIGURATIONS, TABLES
from dataflow.report.tables import Section, make_table
from dataflow.studies import STUDIES_FOLDER, studies


@cache
def find_tables() -> Mapping[str, Table]:
    """Return how each table is shown, in the order of the report: those of the suite, then those of the studies."""
    names = [name for name in studies() if (STUDIES_FOLDER / name / "sections.py").exists()]
    modules = [import_module(f"dataflow.studies.{name}.sections") for name in names]
    return TABLES | {name: table for module in modules for name, table in module.SECTIONS.items()}


def sections(results: Sequence[Result]) -> list[Section]:
    """Return the sections of all results. Raise RecordError for a contradictory trace.

    A table that no study has is shown with the columns of the configurations.
    """
    by_name = dict(find_tables())
    for result in results:
        by_name.setdefault(result.table, replace(CONFIGURATIONS, name=result.table, chart=lambda group: None))
    groups: dict[tuple[Any, ...], list[Result]] = defaultdict(list)
    for result in results:
        flow, table = result.workload.flow, by_name[result.table]
        key = ([*by_name].index(result.table), [*FLOWS, flow].index(flow), flow, *table.group_by(result))
        # A paired measurement can have the same configuration twice, from two checkouts.
        groups[key] += [Result((record,)) for record in result.records] if result.paired else [result]
    built = []
    for key in sorted(groups, key=lambda key: key[:4]):
        built += build_group(by_name[groups[key][0].table], Group(with_shared_references(groups[key]), results))
    return built


def build_group(table: Table, group: Group) -> list[Section]:
    """Return the sections of one group. The last one has the failures and the provenance of all."""
    failures = [f"{result.label}: {result.failure}." for result in group.results if result.failure]
    if not group.done:
        cells = make_table(group.results, tables.MAIN_COLUMNS)
        return [Section("results", title_of(group.results[0]), "Nothing was measured.", cells, notes=failures)]
    built = []
    for part in (*table.before, table):
        rows, columns = [*part.rows(group)], part.columns(group)
        if rows and isinstance(rows[0], Result):
            rows += [result for result in group.results if result.status in UNCOUNTED and result not in rows]
        if rows:
            notes = [*part.notes(group), *(failures + provenance(group.done) if part is table else ())]
            shown, title = make_table(rows, columns) if columns else None, part.title(group.done[0])
            built.append(Section(part.name, title, part.sentence(group), shown, part.chart(group), notes))
    return built
