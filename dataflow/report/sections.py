# SPDX-License-Identifier: Apache-2.0
"""Build the sections of a report from results. Records name their table, and suite_tables.py or a study defines it."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from math import inf
from typing import Any, NamedTuple

import msgspec

from dataflow.analysis.result import UNCOUNTED, Result
from dataflow.catalogue.catalogue import BASELINE, SIMPLEST
from dataflow.flows.catalogue import FLOWS
from dataflow.records.schema import Configuration, Layout, Workload
from dataflow.report import tables
from dataflow.report.provenance import provenance
from dataflow.report.tables import Column, Section, make_table
from dataflow.study import STUDIES_FOLDER, studies
from dataflow.units import format_bytes

MAX_PAGE_ROWS = 12  # of a table on a page
OF_PAGE_ROWS = "Only the rows of this table are compared."
# A flow with a table of its own, which no page shows: docs/cluster.md has its chart.
FAN_IN = "fan-in"
MeasuredKey = tuple[Workload, Configuration]


class Group:
    """The results of one section, which share their reference times, and all results of the report."""

    def __init__(
        self,
        results: Sequence[Result],
        report: Sequence[Result],
        in_campaigns: Collection[MeasuredKey] = (),
    ) -> None:
        # Also those without a time.
        self.results = [Result(result.records, results) for result in results]
        self.report = report
        self.in_campaigns = in_campaigns
        self.done = [result for result in self.results if result.status == "ok"]
        self.ordered = tables.order_by_readers(self.done)

    def is_in_campaigns(self, result: Result) -> bool:
        """Return whether the page has the factors of newer campaigns for it, which other tables do not give again."""
        if result.traced:
            return False
        return measured_key(result) in self.in_campaigns

    def has_newer_gain(self, result: Result) -> bool:
        """Return whether a campaign has measured this configuration, and it keeps memory."""
        keeps_memory = "retain_memory" in result.configuration.flags
        return keeps_memory and measured_key(result) in self.in_campaigns

    def has_newer_without_links(self, result: Result) -> bool:
        """Return whether campaigns have the same messages and transport, whatever nodes and links the actors have."""
        alike = msgspec.structs.replace(result.configuration, layout=Layout())
        return (result.workload, alike) in self.in_campaigns


def measured_key(result: Result) -> MeasuredKey:
    """Return what is equal if a campaign measured the same configuration with the same messages."""
    return result.workload, result.configuration


def title_of(result: Result) -> str:
    """Return the flow, and the bytes of an iteration."""
    return f"{result.flow.title}, {format_bytes(result.workload.bytes_per_iteration)} per iteration"


def by_sizes(*left_out: str) -> Callable[[Result], tuple[Any, ...]]:
    """Return a function for `Table.group_by`: results with equal sizes, except those that are left out."""

    def sizes_of(result: Result) -> tuple[Any, ...]:
        sizes = dict(result.workload.sizes)
        for name in left_out:
            sizes.pop(name, None)
        ordered = sorted(sizes.items())
        return (str(ordered),)

    return sizes_of


def is_baseline(result: Result) -> bool:
    """Return whether a configuration is the demo's queues or plain references, whatever number is verified at once."""
    flags = result.configuration.flags.keys()
    has_baseline_transport = result.transport.label in (BASELINE, SIMPLEST)
    return has_baseline_transport and flags <= {*tables.GROUP_FLAGS}


def largest_first(result: Result) -> tuple[Any, ...]:
    """Return what groups results with equal messages, those with most bytes first."""
    workload = result.workload
    return (-workload.bytes_per_iteration, workload.messages)


def ordered_results(group: Group) -> Sequence[Result]:
    """Return the results that have a time, in groups of equal work."""
    return group.ordered


def no_sentence(group: Group) -> str:
    """Return "", for a table that needs no sentence."""
    return ""


def no_chart(group: Group) -> None:
    """Draw nothing, for a table without a chart."""


@dataclass(frozen=True)
class Table:
    """How the results of one table of records are shown: a section for each value of `group_by`.

    They are in the order of its first part.
    """

    name: str  # of its sections, as in the marks of the pages
    columns: Callable[[Group], Sequence[Column]]
    # Results or other items; without any, the section is left out. Results whose runs do not count follow the others.
    rows: Callable[[Group], Sequence[Any]] = ordered_results
    title: Callable[[Result], str] = title_of
    sentence: Callable[[Group], str] = no_sentence
    chart: Callable[[Group], Any] = no_chart
    notes: Callable[[Group], Sequence[str]] = lambda group: ()
    group_by: Callable[[Result], tuple[Any, ...]] = largest_first
    before: Sequence["Table"] = ()  # tables of the same groups
    # The results that a configuration has, if there are several.
    split: Callable[[Result], Sequence[Result]] = lambda result: [result]
    # Whether a row stays on a page that cannot have all, after the baseline and the fastest ones.
    is_preferred: Callable[[Result], bool] = is_baseline
    # Whether pages have a row. They leave out those of which they have a newer measurement; report.html has all.
    is_on_page: Callable[[Group, Any], bool] = lambda group, row: True
    # Whether the sentence says which row is the fastest. That of a page then compares only the rows that the page has.
    has_ranking: bool = False


@cache
def find_tables() -> Mapping[str, Table]:
    """Return how each table is shown, in the order of the report: those of the suite, then those of the studies."""
    modules = ["dataflow.report.suite_tables"]
    for name in studies():
        file = STUDIES_FOLDER / name / "sections.py"
        if file.exists():
            modules.append(f"dataflow.studies.{name}.sections")
    found: dict[str, Table] = {}
    for module in modules:
        found |= import_module(module).SECTIONS
    return found


def table_of(result: Result) -> str:
    """Return the name of the table that shows a result. A record of FAN_IN may not name it: any command measures it."""
    is_fan_in = result.workload.flow == FAN_IN and result.table == "configurations"
    return FAN_IN if is_fan_in else result.table


def place_of(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return table, position and name of the flow, and the first value of `group_by`; others may have no order."""
    return key[:4]


def sections(
    results: Sequence[Result], in_campaigns: Collection[MeasuredKey] = ()
) -> list[Section]:
    """Return the sections that show these results, each with the results of one table, flow and `group_by`.

    They are sorted by table, then flow, then the first value of `group_by`. If these are equal, they are in the order
    of the results. A table that neither the suite nor a study has looks like that of the configurations.

    in_campaigns: what campaigns have measured, whose factors pages do not give a second time. Raise RecordError if a
    trace contradicts itself: the columns of tables of stages find it out (stage_tables.py).
    """
    by_name = dict(find_tables())
    for result in results:
        name = table_of(result)
        if name not in by_name:
            by_name[name] = replace(by_name["configurations"], name=name, chart=no_chart)
    positions = {name: position for position, name in enumerate(by_name)}
    groups: dict[tuple[Any, ...], list[Result]] = defaultdict(list)
    for result in results:
        flow = result.workload.flow
        flows = [*FLOWS, flow]
        by_flow = flows.index(flow)
        name = table_of(result)
        group_by = by_name[name].group_by
        position = positions[name]
        key = (position, by_flow, flow, *group_by(result))
        groups[key] += split_result(by_name[name], result)
    built = []
    for key in sorted(groups, key=place_of):
        members = groups[key]
        group = Group(members, results, in_campaigns)
        built += build_group(by_name[table_of(members[0])], group)
    return built


def split_result(table: Table, result: Result) -> Sequence[Result]:
    """Return the results that a table shows of one configuration.

    A paired measurement can have the same configuration twice, from two checkouts.
    """
    if result.paired:
        return [Result((record,)) for record in result.records]
    return table.split(result)


def build_group(table: Table, group: Group) -> list[Section]:
    """Return the sections of one group. The last one has the failures and the provenance of all."""
    failed = [result for result in group.results if result.failure]
    failures = [f"{result.label}: {result.failure}." for result in failed]
    if not group.done:
        title = title_of(group.results[0])
        statuses = make_table(group.results, tables.MAIN_COLUMNS)
        return [Section("results", title, "Nothing was measured.", statuses, notes=failures)]
    built = []
    for part in (*table.before, table):
        last_notes: list[str] = []
        if part is table:
            last_notes = [*failures, *provenance(group.done)]
        section = build_part(part, group, last_notes)
        if section:
            built.append(section)
    return built


def build_part(part: Table, group: Group, last_notes: Sequence[str]) -> Section | None:
    """Return one section of a group; None if it has no rows. A table without columns is only a sentence."""
    rows = [*part.rows(group)]
    columns = part.columns(group)
    if not rows:
        return None
    rows += list_uncounted(group, rows)
    sentence = part.sentence(group)
    page_sentence = sentence
    table = None
    if columns:
        page_rows = choose_page_rows(part, group, rows)
        table = replace(make_table(rows, columns), page_rows=page_rows)
        if part.has_ranking and page_rows is not None:
            shown = [rows[position] for position in page_rows]
            page_sentence = describe_page_rows(part, group, shown, sentence)
    title = part.title(group.done[0])
    notes = [*part.notes(group), *last_notes]
    chart = part.chart(group)
    return Section(part.name, title, sentence, table, chart, notes, page_sentence=page_sentence)


def list_uncounted(group: Group, rows: Sequence[Any]) -> list[Result]:
    """Return the results whose runs do not count, and which are not in `rows`; none if the rows are no results."""
    if not isinstance(rows[0], Result):
        return []
    uncounted = [result for result in group.results if result.status in UNCOUNTED]
    return [result for result in uncounted if result not in rows]


def describe_page_rows(part: Table, group: Group, shown: Sequence[Result], sentence: str) -> str:
    """Return what a table says of the rows of a page alone, so it names no row that the page leaves out.

    It begins with OF_PAGE_ROWS if it differs from the sentence of all rows; "" if no row of the page has a time.
    """
    of_page = Group(shown, group.report, group.in_campaigns)
    if not of_page.done:
        return ""
    page_sentence = part.sentence(of_page)
    if page_sentence == sentence:
        return sentence
    return f"{OF_PAGE_ROWS} {page_sentence}"


def choose_page_rows(part: Table, group: Group, rows: Sequence[Any]) -> list[int] | None:
    """Return the positions of the rows that a page has; None for all. At most MAX_PAGE_ROWS of results."""
    shown = [row for row in rows if part.is_on_page(group, row)]
    has_results = isinstance(rows[0], Result)
    has_many = len(shown) > MAX_PAGE_ROWS
    if has_many and has_results:
        chosen = choose_rows(shown, part.is_preferred)
        shown = [shown[position] for position in chosen]
    if len(shown) == len(rows):
        return None
    return [position for position, row in enumerate(rows) if row in shown]


class Priority(NamedTuple):
    """Rows with the smallest one stay if there are too many."""

    tier: int  # 0: the baseline, and the fastest of each kind of readers; 1: preferred; 2: others
    rank: int  # among the results with the same kind of readers; 0: the fastest


def choose_rows(
    results: Sequence[Result],
    is_preferred: Callable[[Result], bool] = is_baseline,
    max_rows: int = MAX_PAGE_ROWS,
) -> list[int]:
    """Return the positions of at most so many results, in ascending order.

    If there are more, the baseline and the fastest of each kind of readers stay, then those that are preferred, then
    the fastest of the others. Results without a time come last in their kind.
    """

    def seconds_at(position: int) -> float:
        result = results[position]
        return result.typical_seconds if result.seconds else inf

    priorities: dict[int, Priority] = {}
    for readers in tables.READER_GROUPS:
        group = []
        for position, result in enumerate(results):
            if tables.readers_of(result) == readers:
                group.append(position)
        group.sort(key=seconds_at)
        for rank, position in enumerate(group):
            result = results[position]
            if rank == 0 or is_baseline(result):
                tier = 0
            elif is_preferred(result):
                tier = 1
            else:
                tier = 2
            priorities[position] = Priority(tier, rank)
    by_priority = sorted(priorities, key=lambda position: priorities[position])
    return sorted(by_priority[:max_rows])
