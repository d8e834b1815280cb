"""The results as text: headline, table and advice."""

from collections.abc import Collection, Sequence
from statistics import fmean

from common.analysis.ladder import baseline_of
from common.analysis.results import Result
from common.analysis.statistics import ratio
from common.charts.ladder_chart import facts
from common.record.rows import CEILING, ROWS, Row
from common.text.tables import COLUMNS, PEAK, Column, interval, markdown_table, milliseconds, three_digits


def ladder_columns(results: Sequence[Result]) -> list[Column]:
    """The scripts' own columns, peak memory, and the speed-up over the demo's baseline."""

    def speedup(result: Result) -> str:
        baseline = baseline_of(result, results)
        if baseline is None or not result.seconds:
            return "-"
        return f"{three_digits(ratio(baseline.seconds_by_run, result.seconds_by_run).value)}x"

    compared = any(baseline_of(result, results) for result in results)
    return [*COLUMNS, PEAK, *[Column("speed-up", speedup)] * compared]


def headline(results: Sequence[Result]) -> str:
    """The fastest row that copies and the fastest that maps, a sentence each."""
    sentences = []
    for copied, where in (
        (True, "Where readers end with bytes of their own"),
        (False, "Where they map another's memory"),
    ):
        done = [result for result in results if result.status == "ok" and result.payload_copied is copied
                and result.rung != CEILING and result.episode == 1]  # fmt: skip
        if not done:
            continue
        fastest = min(done, key=lambda result: result.summary.median)
        median, ceiling = fastest.summary.median, fastest.ceiling_seconds
        sentence = f"{where}, `{fastest.name}` is the fastest: {milliseconds(median)} ms a trip"
        sentence += f", {median / ceiling:.2f} times the ceiling" if copied and ceiling else ""
        baseline = baseline_of(fastest, results)
        if baseline and baseline is not fastest:
            times = ratio(baseline.seconds_by_run, fastest.seconds_by_run)
            sentence += f"; `{baseline.name}` takes {three_digits(times.value)} times as long"
            sentence += interval(times).replace("(", "(95 % interval ") or " (one run: no interval)"
        sentences.append(sentence + ".")
    return " ".join(sentences)


def ladder(results: Sequence[Result]) -> str:
    """The headline and the table, with the reasons of runs that have no numbers, and the caption."""
    lines = [headline(results), "", markdown_table(results, ladder_columns(results))]
    lines += [f"\n{result.name}: {result.failure}." for result in results if result.failure]
    return "\n".join([*lines, "", *(line + "  " for line in facts(results).splitlines())])


def advice(results: Sequence[Result], only: Collection[str] = ()) -> str:
    """Which transport when, each with what was measured here, on any device; of the rows in `only` the short of it."""
    rows = [row for row in ROWS if row.take and (not only or row.name in only)]
    return markdown_table(rows, [column for column in advice_columns(results) if not (only and column.rank)])


def advice_columns(results: Sequence[Result]) -> list[Column]:
    """Of the rows of the catalogue that have advice."""

    def measured(row: Row) -> str:
        result = next((result for result in results if result.rung == row.name), None)
        if result is None or result.status != "ok":
            return result.status if result else "not run"
        tail = f", p95 {milliseconds(result.summary.p95)}" if result.summary.p95 else ""
        mean = fmean(result.seconds)
        tail += f", mean {milliseconds(mean)}" if mean > 2 * result.summary.median else ""
        return f"{milliseconds(result.summary.median)} ms{tail}"

    return [
        Column("", lambda row: f"`{row.name}`"),
        Column("take it when", lambda row: row.take.when, words=True),
        Column("needs", lambda row: row.take.needs, words=True),
        Column("copies an edge", lambda row: row.take.copies, rank=1, words=True),
        Column("what breaks it", lambda row: row.take.breaks, rank=1, words=True),
        Column("a trip here", measured),
    ]
