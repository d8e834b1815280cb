# SPDX-License-Identifier: Apache-2.0
"""Say how campaigns are shown: factors, how much they vary within and between campaigns, and what they predict."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from dataflow.analysis.campaigns import ENOUGH_BOOTS, MIN_BOOTS, Factor, Row, leave_one_out
from dataflow.analysis.stored_costs import load_costs
from dataflow.records.schema import Run
from dataflow.report import tables
from dataflow.report.factor_chart import draw_factors, format_boots, format_memory
from dataflow.report.machine_columns import (
    FittedCosts,
    boots_of_rows,
    divide_means,
    format_factors,
    list_by_machine,
    machine_columns,
    order_of,
    slow_columns,
)
from dataflow.report.provenance import provenance
from dataflow.report.sections import title_of
from dataflow.report.tables import (
    Column,
    Section,
    digits_of,
    format_ends,
    format_significant,
    make_table,
)


def format_factor(factor: Factor) -> str:
    """Return the geometric mean of the boots' ratios, marked if there are too few boots; "-" if there is none."""
    count = len(factor.by_boot)
    if not count:
        return "-"
    text = format_significant(factor.mean, digits_of(factor.interval))
    return text if count >= MIN_BOOTS else f"{text} ({format_boots(count)})"


def format_interval(factor: Factor) -> str:
    """Return the interval, with the number of boots if they are few; "-" without one."""
    ends = format_ends(factor.interval)
    count = len(factor.by_boot)
    if factor.interval is None or count >= ENOUGH_BOOTS:
        return ends
    return f"{ends} ({format_boots(count)})"


def format_held(row: Row) -> str:
    """Return what all processes hold at the end of a run of the newest campaign; "-" if it is unknown."""
    return tables.format_held(row.newest)


def format_repeatability(row: Row) -> str:
    """Return what multiplies and divides the ratio of the campaign that varied most."""
    return f"×/÷ {row.repeatability:.3g}" if row.repeatability else "-"


def format_campaigns(row: Row) -> str:
    """Return how many campaigns a row has, and on how many boots."""
    return f"{len(row.pairs)} ({format_boots(len(row.boots))})"


def format_settled(row: Row) -> str:
    """Return after how many untimed iterations the runs of all campaigns settled, or that they did not."""
    runs: list[Run] = []
    for pair in row.pairs.values():
        runs += pair.new.shown_runs
    return tables.format_settled(runs)


def settled_columns(rows: Sequence[Row]) -> list[Column]:
    """Return the column of warm-ups, if a configuration keeps memory: others settle soon, or do not count."""
    if not any(row.newest.keeps_memory for row in rows):
        return []
    return [Column("settled after (iterations)", format_settled, rank=2)]


def columns_of(rows: Sequence[Row], costs: FittedCosts) -> Sequence[Column]:
    """Return the columns of a table of campaigns: what carries over to other machines, and the times on each of ours.

    The first baseline names the column of the factors, because a table has one baseline.
    """
    baseline = tables.short_label(rows[0].baseline)
    boots = boots_of_rows(rows)
    return (
        Column("configuration", lambda row: tables.short_label(row.newest)),
        Column("copies, page faults, rest", costs.format),
        *machine_columns(rows),
        Column(
            f"times as fast as {baseline}, by machine",
            lambda row: format_factors(row, boots),
        ),
        Column("memory GiB", format_memory),
        Column(tables.HELD.header, format_held, rank=2, is_optional=True),
        *slow_columns(rows),
        *settled_columns(rows),
        Column("readers get", lambda row: tables.READERS.cell(row.newest), rank=1, is_text=True),
        Column("within a campaign (95 %)", format_repeatability, rank=3),
        Column("campaigns", format_campaigns, rank=4),
    )


def describe_campaigns(rows: Sequence[Row]) -> list[str]:
    """Return the failures, the machines, and how many campaigns, boots and kernels, with which commits."""
    of_rows: set[str] = set()
    for row in rows:
        of_rows |= row.pairs.keys()
    names = sorted(of_rows)
    measured = []
    failures = []
    for name in names:
        for row in rows:
            if name not in row.pairs:
                continue
            result = row.pairs[name].new
            measured.append(result)
            if result.failure:
                failures.append(f"{name}: {result.label}: {result.failure}.")
    return [*failures, *provenance(measured, names)]


def campaign_sections(rows: Sequence[Row]) -> list[Section]:
    """Return a section per table and flow, and last what each boot's ratios are beside those of the others."""
    groups = defaultdict[tuple[str, str, float], list[Row]](list)
    for row in rows:
        workload = row.newest.workload
        groups[row.newest.table, workload.flow, workload.changing_sizes].append(row)
    costs = FittedCosts(load_costs())
    built = []
    for (table, *_), group in groups.items():
        sentences = [costs.say_machines(group), compare_with_pauses(group, rows)]
        built.append(build_campaign(table, group, costs, " ".join(filter(None, sentences))))
    is_inside = leave_one_out(rows)
    return [*built, build_check(is_inside)] if is_inside else built


def build_campaign(table: str, rows: list[Row], costs: FittedCosts, sentence: str) -> Section:
    """Return the section of one table, in groups of what readers get, the slowest configuration of each first."""
    groups = [*tables.READER_GROUPS]
    rows.sort(key=lambda row: (groups.index(tables.readers_of(row.newest)), -order_of(row)))
    chart = draw_factors(rows) if table == "headline" else None
    cells = make_table(rows, columns_of(rows, costs))
    newest = rows[0].newest
    title = title_of(newest)
    if newest.check_every > newest.in_flight:
        title += f", {newest.check_every} iterations without a pause"
    return Section(f"campaign-{table}", title, sentence, cells, chart, describe_campaigns(rows))


def compare_with_pauses(rows: Sequence[Row], others: Sequence[Row]) -> str:
    """Return how many times as long iterations without a pause take as those with one, of the same campaigns.

    "" if the rows have pauses, or if no row of `others` is the same configuration with them.
    """
    boots = boots_of_rows(rows)
    texts = []
    for row in rows:
        paused = find_with_pauses(row, others)
        factors = divide_means(paused, row) if paused else {}
        if factors:
            texts.append(f"{tables.short_label(row.newest)} {list_by_machine(factors, boots)}")
    if not texts:
        return ""
    compared = "; ".join(texts)
    return f"Times as long as with a pause after each iteration, by machine: {compared}."


def find_with_pauses(row: Row, others: Sequence[Row]) -> Row | None:
    """Return the row that differs only in that all bytes are verified after each iteration; None without one."""
    configuration = row.newest.configuration
    flags = dict(configuration.flags)
    if flags.pop("check_every", None) is None:
        return None
    searched = replace(configuration, flags=flags)
    for other in others:
        newest = other.newest
        if (newest.workload, newest.configuration) == (row.newest.workload, searched):
            return other
    return None


def describe_outside(is_inside: Mapping[Row, bool]) -> str:
    """Return the ratios that are not where the other boots say, with their tables; "-" if there are none."""
    outside = [row for row, inside in is_inside.items() if not inside]
    names = [f"{tables.short_label(row.newest)} ({row.newest.table})" for row in outside]
    return ", ".join(names) or "-"


def build_check(is_inside: Mapping[str, Mapping[Row, bool]]) -> Section:
    """Return how many ratios of each boot lie where the other boots say."""
    columns = (
        Column("boot that is left out", lambda item: item[0]),
        Column("ratios", lambda item: str(len(item[1]))),
        Column(
            "inside of the interval of the other boots", lambda item: str(sum(item[1].values()))
        ),
        Column("outside (its table)", lambda item: describe_outside(item[1]), is_text=True),
    )
    inside = 0
    count = 0
    for of_boot in is_inside.values():
        count += len(of_boot)
        inside += sum(of_boot.values())
    share = format_significant(100 * inside / count)
    sentence = (
        f"{share} % of {count} ratios lie in the interval of the other boots "
        f"({format_boots(len(is_inside) - 1)} each)."
    )
    return Section("campaign-check", "", sentence, make_table([*is_inside.items()], columns))
