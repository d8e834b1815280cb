# SPDX-License-Identifier: Apache-2.0
"""Show which variables of --retain-memory are needed, and what huge pages and another allocator do.

The tables are in docs/page-faults.md. Rows are ranked by their means, because a median leaves out slow iterations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from dataflow.analysis.fault_price import estimate_price
from dataflow.analysis.result import Result
from dataflow.analysis.statistics import ratio
from dataflow.plan.environment import VARIABLES, parse_environment
from dataflow.report.sections import Group, Table, title_of
from dataflow.report.sentences import explain_no_ranking
from dataflow.report.tables import (
    Column,
    digits_of,
    format_ends,
    format_faults,
    format_memory,
    format_microseconds,
    format_milliseconds,
    format_significant,
    short_label,
)

RETAIN_MEMORY = VARIABLES["retain_memory"]
ALL_NAMES = frozenset(RETAIN_MEMORY)
PREFIX = "MALLOC_"  # of all of these names, which tables leave out
MAX_LONGER = 1.1  # times the mean with all variables: a set of fewer that takes no longer is enough
PART = 100  # iterations at the beginning and at the end of a long run


@dataclass(frozen=True)
class AllocatorRow:
    """A result, which of the variables of --retain-memory it has, and what else is set."""

    result: Result
    names: frozenset[str]
    others: tuple[str, ...]
    # Of the configuration in which nothing is set.
    baseline: Result | None

    @property
    def mean(self) -> float:
        """Return the mean of all iterations of all runs that count, in seconds."""
        return fmean(self.result.seconds)


def make_row(result: Result, baseline: Result | None) -> AllocatorRow:
    """Return the row of a result."""
    flags = result.configuration.flags
    variables = parse_environment(flags.get("env"))
    names = {name for name, value in variables.items() if RETAIN_MEMORY.get(name) == value}
    others = [f"{name}={value}" for name, value in variables.items() if name not in names]
    if "retain_memory" in flags:
        names |= ALL_NAMES
    if "huge_pages" in flags:
        others.append("--huge-pages")
    return AllocatorRow(result, frozenset(names), tuple(others), baseline)


def list_rows(group: Group) -> list[AllocatorRow]:
    """Return the rows of a group, the one with the lowest mean first."""
    baseline = None
    for result in group.done:
        if not result.configuration.flags:
            baseline = result
    rows = [make_row(result, baseline) for result in group.done]
    return sorted(rows, key=lambda row: row.mean)


def short_names(names: frozenset[str]) -> list[str]:
    """Return names without their prefix, in the order of variables.toml."""
    return [name.removeprefix(PREFIX) for name in RETAIN_MEMORY if name in names]


def describe_set(row: AllocatorRow) -> str:
    """Return what all processes of a configuration have in their environment."""
    parts = short_names(row.names)
    if row.names == ALL_NAMES:
        parts = ["all four (--retain-memory)"]
    return ", ".join([*parts, *row.others]) or "nothing"


def run_means(result: Result) -> list[float]:
    """Return the mean of each run that counts, in seconds."""
    return [fmean(run.seconds) for run in result.shown_runs if run.seconds]


def format_factor(baseline: Result | None, result: Result) -> str:
    """Return how many times as fast a result is by the mean as the baseline, and the 95 % interval."""
    if baseline is None:
        return "-"
    if baseline is result:
        return "1"
    times = ratio(run_means(baseline), run_means(result))
    ends = times.interval
    factor = format_significant(times.value, digits_of(ends))
    return f"{factor} ({format_ends(ends)})" if ends else factor


def format_median(result: Result) -> str:
    return format_milliseconds(median(result.seconds))


def format_p95(result: Result) -> str:
    return format_milliseconds(result.p95_seconds)


def format_price(result: Result) -> str:
    """Return how many microseconds one more page fault adds to an iteration; "-" if that is not known well."""
    price = estimate_price(result.shown_runs)
    if price is None or not price.is_known:
        return "-"
    return format_microseconds(price.seconds)


def allocator_columns(group: Group) -> Sequence[Column]:
    """Return the columns of a table of sets of variables."""
    return (
        Column("set in all processes", describe_set),
        Column("mean ms", lambda row: format_milliseconds(row.mean)),
        Column("p50 ms", lambda row: format_median(row.result)),
        Column("p95 ms", lambda row: format_p95(row.result)),
        Column("times as fast by the mean", lambda row: format_factor(row.baseline, row.result)),
        Column("page faults per iteration", lambda row: format_faults(row.result)),
        Column("µs per page fault", lambda row: format_price(row.result)),
        Column("memory GiB", lambda row: format_memory(row.result)),
        Column("runs", lambda row: str(len(row.result.run_seconds)), rank=1),
    )


def find_sets(rows: Sequence[AllocatorRow]) -> dict[frozenset[str], AllocatorRow]:
    """Return the rows in which only variables of --retain-memory are set, by these variables."""
    return {row.names: row for row in rows if not row.others}


def describe_needed(group: Group) -> str:
    """Return which set of variables is enough, and how much longer an iteration takes without each of them.

    "" if the records have no configuration with all of them.
    """
    sets = find_sets(list_rows(group))
    everything = sets.get(ALL_NAMES)
    if everything is None:
        return ""
    sentences = [describe_smallest(sets, everything), *describe_omissions(sets, everything)]
    nothing = sets.get(frozenset())
    if nothing:
        sentences += describe_prices(everything, nothing)
    results = [row.result for row in sets.values()]
    if not all(result.can_be_ranked for result in results):
        sentences.append(f"{explain_no_ranking(results)}: not a ranking.")
    return " ".join(sentences)


def describe_smallest(sets: dict[frozenset[str], AllocatorRow], everything: AllocatorRow) -> str:
    """Return the smallest set whose mean is within MAX_LONGER of that of all variables, the fastest of several."""
    limit = MAX_LONGER * everything.mean
    enough = [row for row in sets.values() if row.mean <= limit]
    best = min(enough, key=lambda row: (len(row.names), row.mean))
    share = f"{MAX_LONGER - 1:.0%}".replace("%", " %")
    all_time = f"{format_milliseconds(everything.mean)} ms"
    time = f"{format_milliseconds(best.mean)} ms"
    if not best.names:
        return f"By the mean, nothing set ({time}) is within {share} of all four variables ({all_time})."
    if best.names == ALL_NAMES:
        return f"By the mean, no smaller set of those measured is within {share} of all four variables ({all_time})."
    names = " and ".join(f"`{name}`" for name in short_names(best.names))
    verb = "is" if len(best.names) == 1 else "are"
    return (
        f"By the mean, {names} {verb} enough: {time}, and {all_time} with all four variables. No smaller set of those "
        f"measured is within {share} of all four."
    )


def describe_omissions(
    sets: dict[frozenset[str], AllocatorRow], everything: AllocatorRow
) -> list[str]:
    """Return a sentence with the time without each variable, divided by that with all; none if that is not known."""
    texts: list[str] = []
    for name in RETAIN_MEMORY:
        row = sets.get(ALL_NAMES - {name})
        if row is not None:
            factor = format_significant(row.mean / everything.mean)
            verb = "times" if texts else "times as long"
            texts.append(f"{factor} {verb} without `{name.removeprefix(PREFIX)}`")
    if not texts:
        return []
    return [f"Compared with all four, an iteration takes {', '.join(texts)}."]


def describe_prices(everything: AllocatorRow, nothing: AllocatorRow) -> list[str]:
    """Return a sentence with what a page fault takes with all variables, and with none; none if that is not known."""
    prices = [format_price(row.result) for row in (everything, nothing)]
    if "-" in prices:
        return []
    kept, plain = prices
    return [
        f"Iterations took {kept} µs longer for each page fault that they had more with all four variables, and {plain} "
        "µs with nothing set (the slope of the times over the page faults of single iterations)."
    ]


ALLOCATOR = Table(
    "allocator",
    allocator_columns,
    list_rows,
    lambda result: f"{title_of(result)}, {result.transport.label}",
    sentence=describe_needed,
    group_by=lambda result: (
        -result.workload.bytes_per_iteration,
        result.workload.edges,
        result.transport.label,
    ),
)


def format_part(result: Result, is_end: bool) -> str:
    """Return the mean of the first or the last iterations of the runs; "-" if a run is too short for both."""
    parts: list[float] = []
    for run in result.shown_runs:
        if len(run.seconds) < 2 * PART:
            return "-"
        parts += run.seconds[-PART:] if is_end else run.seconds[:PART]
    return format_milliseconds(fmean(parts))


LONG_COLUMNS = (
    Column("configuration", short_label),
    Column("mean ms", lambda result: format_milliseconds(fmean(result.seconds))),
    Column("p50 ms", format_median),
    Column("p95 ms", format_p95),
    Column(f"mean ms of the first {PART}", lambda result: format_part(result, is_end=False)),
    Column(f"mean ms of the last {PART}", lambda result: format_part(result, is_end=True)),
    Column("page faults per iteration", format_faults),
    Column("memory GiB", format_memory),
)
ALLOCATOR_LONG = Table(
    "allocator-long",
    lambda group: LONG_COLUMNS,
    lambda group: sorted(group.done, key=lambda result: fmean(result.seconds)),
    lambda result: f"{title_of(result)}, {len(result.shown_runs[0].seconds):,} iterations per run",
)
