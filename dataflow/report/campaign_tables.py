"""Say how campaigns are shown: factors, how much they vary within and between campaigns, and what they predict."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from statistics import median

from dataflow.analysis.campaigns import MIN_CAMPAIGNS, Prediction, Row, leave_one_out, mean_ratio, predict
from dataflow.analysis.result import Result
from dataflow.records.machine import machine_line
from dataflow.report import tables
from dataflow.report.charts import Chart, Mark
from dataflow.report.sections import title_of
from dataflow.report.tables import Column, Section, digits_of, format_ends, format_significant, make_table


def format_range(values: Sequence[float]) -> str:
    """Return the smallest and the largest value with two digits, or one of them if they are equal then."""
    return " to ".join(dict.fromkeys(format_significant(value) for value in (min(values), max(values))))


def format_milliseconds(row: Row) -> str:
    return format_range([1e3 * pair.new.typical_seconds for pair in row.pairs.values()])


def format_factor(ratios: Collection[float]) -> str:
    """Return the geometric mean of ratios of campaigns, marked if there are too few; "-" if there is none."""
    text = format_significant(mean_ratio(ratios), digits_of(predict(ratios)))
    if not 0 < len(ratios) < MIN_CAMPAIGNS:
        return text
    return f"{text} ({'one campaign' if len(ratios) == 1 else f'{len(ratios)} campaigns'})"


def format_reproducibility(ratios: Collection[float]) -> str:
    """Return where the ratio of another campaign lies with a probability of 95 %; "-" for too few campaigns."""
    return format_ends(predict(ratios))


def describe_factor(ratios: Collection[float]) -> str:
    """Return the mean of ratios and, if there are enough campaigns, the interval."""
    interval = format_reproducibility(ratios)
    return format_factor(ratios) + (f" ({interval})" if interval != "-" else "")


def format_repeatability(row: Row) -> str:
    return "-" if row.repeatability is None else f"± {row.repeatability:.0%}"


def times_memcpy(row: Row) -> str:
    times = [pair.new.times_memcpy for pair in row.pairs.values() if pair.new.times_memcpy]
    return format_significant(median(times)) if times else "-"


def columns_of(rows: Sequence[Row]) -> Sequence[Column]:
    baseline = tables.short_label(rows[0].baseline)

    def unless_baseline(format_row: Callable[[Row], str], text: str = "-") -> Callable[[Row], str]:
        return lambda row: text if row.is_baseline else format_row(row)

    return (
        Column("configuration", lambda row: tables.short_label(row.newest)),
        Column("ms per iteration", format_milliseconds),
        Column(f"times as fast as {baseline}", unless_baseline(lambda row: format_factor(row.values), "1")),
        Column("of another campaign (95 %)", unless_baseline(lambda row: format_reproducibility(row.values))),
        Column("within a campaign (95 %)", unless_baseline(format_repeatability), 2),
        Column("x memcpy", times_memcpy, 1),
        Column("readers get", lambda row: tables.READERS.cell(row.newest), is_text=True),
        Column("campaigns", lambda row: str(len(row.pairs)), 3),
    )


def describe_campaigns(rows: Sequence[Row]) -> list[str]:
    """Return the machines, and how many campaigns, boots and kernels, on which days and with which commits."""
    results: list[Result] = [pair.new for row in rows for pair in row.pairs.values()]
    environments = [environment for result in results for environment in result.environments]
    names = sorted({name for row in rows for name in row.pairs})
    values = {key: {environment.get(key) for environment in environments} for key in ("boot", "kernel", "git_commit")}
    shared = {key: " or ".join(sorted({str(e.get(key)) for e in environments})) for key in ("cpu_model", "kernel")}
    commits = ", ".join(sorted(str(commit)[:10] for commit in values["git_commit"]))
    runs = sorted({len(result.run_seconds) for result in results})
    failures = [f"{name}: {pair.new.label}: {pair.new.failure}." for row in rows for name, pair in row.pairs.items()
                if pair.new.failure]  # fmt: skip
    return [
        *failures,
        *sorted({machine_line(environment | shared) for environment in environments}),
        f"Campaigns: {len(names)} ({', '.join(names)}), boots: {len(values['boot'])}, kernels: "
        f"{len(values['kernel'])}. Runs per configuration and campaign: {format_range(runs)}. Commit {commits}.",
    ]


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
        built.append(Section(f"campaign-{table}", title, "", cells, chart, describe_campaigns(group)))
    predictions = leave_one_out(rows)
    return [*built, *([build_check(predictions)] if predictions else [])]


def draw_factors(rows: Sequence[Row]) -> Chart | None:
    marks = []
    for row in (row for row in rows if row.is_comparable and not row.is_baseline):
        low, high = predict(row.values) or (row.mean, row.mean)
        marks.append(Mark(tables.short_label(row.newest), describe_factor(row.values), row.mean, low, high))
    if not marks:
        return None
    caption = ("Line: where the factor of another campaign lies with 95 % probability.", *describe_campaigns(rows))
    fastest, baseline = max(marks, key=lambda mark: mark.value), rows[0].baseline
    title = f"{fastest.name} is {format_significant(fastest.value)} times as fast as {baseline.label}.\n"
    axis = f"times as fast as {baseline.label} (logarithmic axis)"
    return Chart("campaigns", title + title_of(baseline), {"": marks}, axis, {}, caption)


def build_check(predictions: Sequence[Prediction]) -> Section:
    """Return how many ratios of each campaign lie where the other campaigns say."""
    by_campaign = defaultdict[str, list[Prediction]](list)
    for prediction in predictions:
        by_campaign[prediction.campaign].append(prediction)
    columns = (
        Column("campaign that is left out", lambda item: item[0]),
        Column("ratios", lambda item: str(len(item[1]))),
        Column("inside of the interval of the others", lambda item: str(sum(p.is_right for p in item[1]))),
        Column("outside", lambda item: ", ".join(tables.short_label(p.row.newest) for p in item[1] if not p.is_right)
               or "-", is_text=True),
    )  # fmt: skip
    share = sum(prediction.is_right for prediction in predictions) / len(predictions)
    sentence = f"{format_significant(100 * share)} % of {len(predictions)} ratios lie in the interval of the others."
    return Section("campaign-check", "", sentence, make_table([*by_campaign.items()], columns))
