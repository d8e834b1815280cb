# SPDX-License-Identifier: Apache-2.0
"""Say how campaigns are shown: factors, how much they vary within and between campaigns, and what they predict."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from dataflow.analysis.campaigns import ENOUGH_BOOTS, MIN_BOOTS, Factor, Row, leave_one_out
from dataflow.analysis.stored_costs import load_costs
from dataflow.report import tables
from dataflow.report.factor_chart import draw_factors, format_boots, format_memory
from dataflow.report.machine_columns import (
    FittedCosts,
    boots_of_rows,
    format_factors,
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


def format_repeatability(row: Row) -> str:
    """Return what multiplies and divides the ratio of the campaign that varied most."""
    return f"×/÷ {row.repeatability:.3g}" if row.repeatability else "-"


def format_campaigns(row: Row) -> str:
    """Return how many campaigns a row has, and on how many boots."""
    return f"{len(row.pairs)} ({format_boots(len(row.boots))})"


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
        *slow_columns(rows),
        Column("readers get", lambda row: tables.READERS.cell(row.newest), 1, is_text=True),
        Column("within a campaign (95 %)", format_repeatability, 3),
        Column("campaigns", format_campaigns, 4),
    )


def describe_campaigns(rows: Sequence[Row]) -> list[str]:
    """Return the failures, the machines, and how many campaigns, boots and kernels, with which commits."""
    names = sorted({name for row in rows for name in row.pairs})
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
    groups = defaultdict[tuple[str, str], list[Row]](list)
    for row in rows:
        groups[row.newest.table, row.newest.workload.flow].append(row)
    costs = FittedCosts(load_costs())
    built = [build_campaign(table, group, costs) for (table, _), group in groups.items()]
    is_inside = leave_one_out(rows)
    return [*built, build_check(is_inside)] if is_inside else built


def build_campaign(table: str, rows: list[Row], costs: FittedCosts) -> Section:
    """Return the section of one table, the slowest configuration first, and views last."""
    rows.sort(key=lambda row: (not row.is_comparable, -order_of(row)))
    chart = draw_factors(rows) if table == "headline" else None
    cells = make_table(rows, columns_of(rows, costs))
    title = title_of(rows[0].newest)
    sentence = costs.say_machines(rows)
    return Section(f"campaign-{table}", title, sentence, cells, chart, describe_campaigns(rows))


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
