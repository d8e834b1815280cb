# SPDX-License-Identifier: Apache-2.0
"""Show what huge pages for all memory do, for private memory, for /dev/shm, and for both: docs/page-faults.md.

A configuration has a result per setting of the machine, and a column of times for each of them.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dataflow.analysis.result import Result
from dataflow.records.machine import chosen_huge_pages, shared_huge_pages
from dataflow.records.schema import Record
from dataflow.report.allocator_tables import format_factor
from dataflow.report.machine_columns import MachineTimes
from dataflow.report.sections import Group, Table
from dataflow.report.sentences import explain_no_ranking
from dataflow.report.tables import Column, format_faults, format_memory, short_label

ALWAYS = "always"
# As on our machines: only memory with madvise(MADV_HUGEPAGE) gets huge pages.
USUAL_PRIVATE = "madvise"
USUAL_SHARED = "never"
NOTE = (
    "Page faults and memory are in the order of the columns of times. Memory that programs ask huge pages for has them "
    "in all columns."
)


@dataclass(frozen=True)
class Setting:
    """Which memory the kernel gives huge pages: that of programs, and files in /dev/shm such as Ray's object store."""

    private: str | None  # always, madvise, never; None: unknown
    shared: str | None

    def __str__(self) -> str:
        """Return which memory gets huge pages, such as "private memory and /dev/shm"; "on request" for the usual."""
        parts = [
            name_memory("private memory", self.private, USUAL_PRIVATE),
            name_memory("/dev/shm", self.shared, USUAL_SHARED),
        ]
        return " and ".join(filter(None, parts)) or "on request"


def name_memory(memory: str, value: str | None, usual: str) -> str:
    """Return the memory if it always gets huge pages, with the value if that is another one; "" for the usual one."""
    if value == usual:
        return ""
    return memory if value == ALWAYS else f"{memory}: {value}"


ON_REQUEST = Setting(USUAL_PRIVATE, USUAL_SHARED)
PRIVATE_MEMORY = Setting(ALWAYS, USUAL_SHARED)
ORDER = (ON_REQUEST, PRIVATE_MEMORY, Setting(USUAL_PRIVATE, ALWAYS), Setting(ALWAYS, ALWAYS))


def setting_of(record: Record) -> Setting:
    environment: dict[str, Any] = record.environments.get("0", {})
    return Setting(chosen_huge_pages(environment), shared_huge_pages(environment))


def order_of(setting: Setting) -> int:
    return ORDER.index(setting) if setting in ORDER else len(ORDER)


def split_by_setting(result: Result) -> list[Result]:
    """Return a result per setting of the machine."""
    records: dict[Setting, list[Record]] = defaultdict(list)
    for record in result.records:
        records[setting_of(record)].append(record)
    return [Result(of_setting) for of_setting in records.values()]


@dataclass(frozen=True)
class HugePageRow:
    """The results of one configuration by the setting of the machine; those without a time are left out."""

    results: Mapping[Setting, Result]

    @property
    def first(self) -> Result:
        return next(iter(self.results.values()))

    @property
    def keeps_memory(self) -> bool:
        return self.first.keeps_memory

    @property
    def label(self) -> str:
        return short_label(self.first)

    def format_at(self, setting: Setting, cell: Callable[[Result], str]) -> str:
        """Return the cell of one setting; "-" without a time."""
        result = self.results.get(setting)
        return cell(result) if result else "-"

    def format_all(self, settings: Sequence[Setting], cell: Callable[[Result], str]) -> str:
        """Return the cells of several settings, such as "1.2, 1.3"."""
        return ", ".join(self.format_at(setting, cell) for setting in settings)

    def format_gain(self, setting: Setting) -> str:
        """Return how many times as fast the configuration is as with huge pages on request."""
        baseline = self.results.get(ON_REQUEST)
        return self.format_at(setting, lambda result: format_factor(baseline, result))

    def format_gains(self, settings: Sequence[Setting]) -> str:
        """Return the factors of several settings, such as "1.2 (1.1 to 1.3), 2"."""
        return ", ".join(self.format_gain(setting) for setting in settings)


def list_rows(group: Group) -> list[HugePageRow]:
    """Return a row per configuration that has a time."""
    by_label: dict[str, dict[Setting, Result]] = defaultdict(dict)
    for result in group.done:
        # split_by_setting has made each result of records with one setting.
        setting = setting_of(result.records[0])
        by_label[short_label(result)][setting] = result
    return [HugePageRow(results) for results in by_label.values()]


def list_settings(rows: Sequence[HugePageRow]) -> list[Setting]:
    """Return the settings that were measured, the one on request first."""
    found: set[Setting] = set()
    for row in rows:
        found |= row.results.keys()
    return sorted(found, key=lambda setting: (order_of(setting), str(setting)))


def format_times(result: Result) -> str:
    """Return the mean, the median and the 95th percentile of all iterations, in milliseconds."""
    return str(MachineTimes(result.seconds))


def time_column(setting: Setting) -> Column:
    """Return the column of the times with one setting."""
    header = f"{setting}: mean ms (p50, p95)"
    return Column(header, lambda row: row.format_at(setting, format_times))


def huge_page_columns(group: Group) -> Sequence[Column]:
    """Return the columns: times and factors of each setting, and page faults and memory of all."""
    settings = list_settings(list_rows(group))
    changed = [setting for setting in settings if setting != ON_REQUEST]
    names = ", ".join(str(setting) for setting in changed)
    return (
        Column("configuration", lambda row: row.label),
        *map(time_column, settings),
        Column(f"times as fast, {names}", lambda row: row.format_gains(changed)),
        Column("page faults per iteration", lambda row: row.format_all(settings, format_faults)),
        Column("memory GiB", lambda row: row.format_all(settings, format_memory)),
    )


def describe_gains(group: Group) -> str:
    """Return how many times as fast configurations without kept memory are with huge pages for private memory.

    "" if nothing was measured with them.
    """
    texts: list[str] = []
    compared: list[Result] = []
    for row in list_rows(group):
        is_complete = row.results.keys() >= {ON_REQUEST, PRIVATE_MEMORY}
        if is_complete and not row.keeps_memory:
            texts.append(f"`{row.label}` {row.format_gain(PRIVATE_MEMORY)}")
            compared += [row.results[ON_REQUEST], row.results[PRIVATE_MEMORY]]
    if not texts:
        return ""
    sentence = (
        "With huge pages for all private memory, and without kept memory, iterations are so many times as fast (by the "
        f"mean): {', '.join(texts)}."
    )
    if not all(result.can_be_ranked for result in compared):
        sentence += f" {explain_no_ranking(compared)}: not a ranking."
    return sentence


HUGE_PAGES = Table(
    "huge-pages",
    huge_page_columns,
    list_rows,
    sentence=describe_gains,
    notes=lambda group: [NOTE],
    split=split_by_setting,
)
