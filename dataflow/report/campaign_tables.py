# SPDX-License-Identifier: Apache-2.0
"""Say how campaigns are shown: factors, how much they vary within and between campaigns, and what they predict."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from dataflow.analysis.campaigns import ENOUGH_BOOTS, MIN_BOOTS, Factor, Row, leave_one_out
from dataflow.analysis.result import median_of
from dataflow.report import tables
from dataflow.report.charts import Chart, Mark
from dataflow.report.provenance import provenance
from dataflow.report.sections import title_of
from dataflow.report.tables import (
    Column,
    Section,
    digits_of,
    format_ends,
    format_range,
    format_significant,
    make_table,
)


def format_times(row: Row, factor: float = 1e3) -> str:
    """Return the range of the times per iteration, in milliseconds, or of the seconds of `factor` iterations."""
    return format_range([factor * pair.new.typical_seconds for pair in row.pairs.values()])


def format_boots(count: int) -> str:
    """Return "one boot", or "3 boots"."""
    return "one boot" if count == 1 else f"{count} boots"


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


def describe_factor(factor: Factor, has_boots: bool = True) -> str:
    """Return the mean of the ratios and, if there are enough boots, the interval.

    The number of boots is beside it if they are few; without `has_boots`, the sentence or header around it has that.
    """
    text = format_factor(factor)
    if factor.interval is None:
        return text
    ends = format_ends(factor.interval)
    count = len(factor.by_boot)
    if has_boots and count < ENOUGH_BOOTS:
        ends += f", {format_boots(count)}"
    return f"{text} ({ends})"


def describe_boots(factors: Sequence[Factor]) -> str:
    """Return what stands beside the intervals of factors: how many boots they come from; "" if these are enough."""
    counts = [len(factor.by_boot) for factor in factors if factor.interval]
    if not counts or min(counts) >= ENOUGH_BOOTS:
        return ""
    return f"{format_range(counts)} boots"


def format_memory(row: Row) -> str:
    """Return the peak memory of all processes of a run in GiB, the largest of all campaigns."""
    return format_significant(row.peak_memory_bytes / 2**30)


def format_repeatability(row: Row) -> str:
    """Return what multiplies and divides the ratio of the campaign that varied most."""
    return f"×/÷ {row.repeatability:.3g}" if row.repeatability else "-"


def format_times_memcpy(row: Row) -> str:
    """Return the median of the campaigns; "-" for views."""
    measured = [pair.new.times_memcpy for pair in row.pairs.values()]
    known = [times for times in measured if times]
    return format_significant(median_of([known]))


def format_campaigns(row: Row) -> str:
    """Return how many campaigns a row has, and on how many boots."""
    return f"{len(row.pairs)} ({format_boots(len(row.boots))})"


def columns_of(rows: Sequence[Row]) -> Sequence[Column]:
    """Return the columns of a table of campaigns; each factor has the memory that it costs beside it.

    The first baseline names the column of the factors, because a table has one baseline.
    """
    baseline = tables.short_label(rows[0].baseline)
    return (
        Column("configuration", lambda row: tables.short_label(row.newest)),
        Column("ms per iteration", format_times),
        Column(
            f"times as fast as {baseline}",
            lambda row: "1" if row.is_baseline else format_factor(row.factor),
        ),
        Column(
            "on another boot (95 %)",
            lambda row: "-" if row.is_baseline else format_interval(row.factor),
        ),
        Column("memory GiB", format_memory),
        Column("within a campaign (95 %)", format_repeatability, 2),
        Column("x memcpy", format_times_memcpy, 1),
        Column("readers get", lambda row: tables.READERS.cell(row.newest), is_text=True),
        Column("campaigns", format_campaigns, 3),
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
    built = [build_campaign(table, group) for (table, _), group in groups.items()]
    is_inside = leave_one_out(rows)
    return [*built, build_check(is_inside)] if is_inside else built


def build_campaign(table: str, rows: list[Row]) -> Section:
    """Return the section of one table, the slowest configuration first, and views last."""
    rows.sort(key=lambda row: (not row.is_comparable, row.factor.mean))
    chart = draw_factors(rows) if table == "headline" else None
    cells = make_table(rows, columns_of(rows))
    title = title_of(rows[0].newest)
    return Section(f"campaign-{table}", title, "", cells, chart, describe_campaigns(rows))


def draw_factors(rows: Sequence[Row]) -> Chart | None:
    """Return a chart of the factors with their intervals; None if there is none."""
    marks = []
    for row in rows:
        if row.is_comparable and not row.is_baseline:
            mean = row.factor.mean
            low, high = row.factor.interval or (mean, mean)
            factor = describe_factor(row.factor, has_boots=False)
            label = f"{factor}, {format_memory(row)} GiB"
            marks.append(Mark(tables.short_label(row.newest), label, mean, low, high))
    if not marks:
        return None
    boots = describe_boots([row.factor for row in rows])
    caption = (
        f"Line: where the factor lies on another boot with 95 % probability{boots and f' ({boots})'}. "
        f"GiB: peak memory of all processes; that of {rows[0].baseline.label} is {describe_baseline_memory(rows)} GiB.",
        *describe_campaigns(rows),
    )
    baseline = rows[0].baseline
    title = describe_fastest_factor(rows) + title_of(baseline)
    axis = f"times as fast as {baseline.label} (logarithmic axis)"
    return Chart("campaigns", title, {"": marks}, axis, {}, caption)


def describe_baseline_memory(rows: Sequence[Row]) -> str:
    """Return the memory of the baseline in GiB; "-" if it has no row."""
    for row in rows:
        if row.is_baseline:
            return format_memory(row)
    return "-"


def describe_fastest_factor(rows: Sequence[Row]) -> str:
    """Return the first line of the chart's title: the largest factor, if there are enough boots for an interval.

    Without an interval, it would be a ranking that nobody can trust.
    """
    comparable = [row for row in rows if row.is_comparable]
    if any(row.factor.interval is None for row in comparable):
        return ""
    fastest = max(comparable, key=lambda row: row.factor.mean)
    name = tables.short_label(fastest.newest)
    factor = describe_factor(fastest.factor, has_boots=False)
    memory = format_memory(fastest)
    return f"{name} is {factor} times as fast as {rows[0].baseline.label}, with {memory} GiB.\n"


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
