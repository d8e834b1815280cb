"""Say how campaigns are shown: factors, how much they vary within and between campaigns, and what they predict."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import geometric_mean

from dataflow.analysis.campaigns import MIN_CAMPAIGNS, Row, leave_one_out, predict
from dataflow.analysis.result import median_of
from dataflow.report import tables
from dataflow.report.charts import Chart, Mark
from dataflow.report.sections import provenance, title_of
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


def format_factor(ratios: Sequence[float]) -> str:
    """Return the geometric mean of ratios of campaigns, marked if there are too few; "-" if there is none."""
    text = format_significant(
        geometric_mean(ratios) if ratios else None, digits_of(predict(ratios))
    )
    if not 0 < len(ratios) < MIN_CAMPAIGNS:
        return text
    return f"{text} ({'one campaign' if len(ratios) == 1 else f'{len(ratios)} campaigns'})"


def describe_factor(ratios: Sequence[float]) -> str:
    """Return the mean of ratios and, if there are enough campaigns, the interval."""
    interval = predict(ratios)
    return format_factor(ratios) + (f" ({format_ends(interval)})" if interval else "")


def columns_of(rows: Sequence[Row]) -> Sequence[Column]:
    baseline = tables.short_label(rows[0].baseline)
    return (
        Column("configuration", lambda row: tables.short_label(row.newest)),
        Column("ms per iteration", format_times),
        Column(f"times as fast as {baseline}", lambda row: "1" if row.is_baseline else format_factor(row.values)),
        Column("of another campaign (95 %)", lambda row: format_ends(row.interval)),
        Column("within a campaign (95 %)", lambda r: f"×/÷ {r.repeatability:.3g}" if r.repeatability else "-", 2),
        Column("x memcpy", lambda row: format_significant(median_of(
            [pair.new.times_memcpy] for pair in row.pairs.values() if pair.new.times_memcpy)), 1),
        Column("readers get", lambda row: tables.READERS.cell(row.newest), is_text=True),
        Column("campaigns", lambda row: str(len(row.pairs)), 3),
    )  # fmt: skip


def describe_campaigns(rows: Sequence[Row]) -> list[str]:
    """Return the failures, the machines, and how many campaigns, boots and kernels, with which commits."""
    names = sorted({name for row in rows for name in row.pairs})
    measured = [(name, row.pairs[name].new) for name in names for row in rows if name in row.pairs]
    failures = [
        f"{name}: {result.label}: {result.failure}." for name, result in measured if result.failure
    ]
    return [*failures, *provenance([result for _, result in measured], names)]


def campaign_sections(rows: Sequence[Row]) -> list[Section]:
    """Return a section per table and flow, and last what each campaign's ratios are beside those of the others."""
    groups = defaultdict[tuple[str, str], list[Row]](list)
    for row in rows:
        groups[row.newest.table, row.newest.workload.flow].append(row)
    built = []
    for (table, _), group in groups.items():
        group.sort(key=lambda row: (not row.is_comparable, row.mean))
        chart = draw_factors(group) if table == "headline" else None
        cells, title = make_table(group, columns_of(group)), title_of(group[0].newest)
        built.append(
            Section(f"campaign-{table}", title, "", cells, chart, describe_campaigns(group))
        )
    is_right = leave_one_out(rows)
    return [*built, build_check(is_right)] if is_right else built


def draw_factors(rows: Sequence[Row]) -> Chart | None:
    shown = [row for row in rows if row.is_comparable and not row.is_baseline]
    marks = [Mark(tables.short_label(row.newest), describe_factor(row.values), row.mean,
                  *(row.interval or (row.mean, row.mean))) for row in shown]  # fmt: skip
    if not marks:
        return None
    caption = (
        "Line: where the factor of another campaign lies with 95 % probability.",
        *describe_campaigns(rows),
    )
    fastest, baseline = max(marks, key=lambda mark: mark.value), rows[0].baseline
    title = f"{fastest.name} is {fastest.label} times as fast as {baseline.label}.\n"
    axis = f"times as fast as {baseline.label} (logarithmic axis)"
    return Chart("campaigns", title + title_of(baseline), {"": marks}, axis, {}, caption)


def build_check(is_right: Mapping[str, Mapping[Row, bool]]) -> Section:
    """Return how many ratios of each campaign lie where the other campaigns say."""
    columns = (
        Column("campaign that is left out", lambda item: item[0]),
        Column("ratios", lambda item: str(len(item[1]))),
        Column("inside of the interval of the others", lambda item: str(sum(item[1].values()))),
        Column("outside (its table)", lambda item: ", ".join(
            f"{tables.short_label(row.newest)} ({row.newest.table})" for row in item[1] if not item[1][row]) or "-",
            is_text=True),
    )  # fmt: skip
    every = [right for of_campaign in is_right.values() for right in of_campaign.values()]
    share = format_significant(100 * sum(every) / len(every))
    sentence = f"{share} % of {len(every)} ratios lie in the interval of the others."
    return Section("campaign-check", "", sentence, make_table([*is_right.items()], columns))
