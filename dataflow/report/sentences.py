"""Say in sentences which configurations are faster, by how much, and how sure that is."""

from collections.abc import Sequence

from dataflow.analysis.comparison import Pair, find_transports
from dataflow.analysis.result import UNCOUNTED, Result
from dataflow.analysis.statistics import MIN_RUNS, NO_DIFFERENCE, UNRANKED, Ratio
from dataflow.report import tables
from dataflow.report.tables import Column, digits_of, format_ends, format_faults, format_significant


def describe_pair(pair: Pair) -> str:
    """Return how many times as fast the new configuration is as the old one, and how sure that is."""
    old, new, ratio = pair.old, pair.new, pair.ratio
    if old.work != new.work:
        texts = [
            f"{r.label} takes {format_time(r)} where {tables.readers_of(r)}" for r in (new, old)
        ]
        return f"{', and '.join(texts)}: different work, so there is no factor."
    is_slower = ratio.value > 1
    times, ends = format_ratio(ratio, invert=not is_slower)
    interval = (
        f"95 % interval {ends}"
        if ratio.interval
        else f"no interval: give --runs {MIN_RUNS} or more"
    )
    factor = f"{times} times as {'long' if is_slower else 'fast'}"
    if ratio.verdict in UNRANKED:
        preposition = "from" if ratio.verdict == NO_DIFFERENCE else "against"
        missed = f"a difference below {ratio.detectable:.0%} would be missed"
        return f"{new.label} {ratio.verdict} {preposition} {old.label} ({factor}, {interval}; {missed})."
    return f"{new.label} {'takes' if is_slower else 'is'} {factor} as {old.label} ({interval})."


def describe_fastest(results: Sequence[Result]) -> str:
    """Return the fastest configuration of each kind of readers, with one copying thread, and which are not ranked."""
    sentences, transports = [], find_transports(results) or [r for r in results if r.status == "ok"]
    for readers in tables.READER_GROUPS:
        group = [r for r in transports if tables.readers_of(r) == readers and r.threads == 1]
        if group:
            best, *others = sorted(group, key=lambda result: result.typical_seconds)
            text = f"If {readers}, `{best.label}` {'is the fastest with' if others else 'takes'} {format_time(best)}"
            equal = [other for other in others if Pair(best, other).ratio.verdict in UNRANKED]
            names = " and ".join(f"`{other.label}` ({format_time(other)})" for other in equal)
            sentences.append(
                f"{text}; these runs do not tell it apart from {names}" if names else text
            )
    if left_out := [
        f"`{result.label}` ({result.status})" for result in results if result.status in UNCOUNTED
    ]:
        sentences.append(f"Not ranked: {', '.join(left_out)}")
    return " ".join(f"{sentence}." for sentence in sentences)


def format_time(result: Result) -> str:
    """Return the time in milliseconds, with its 95 % interval if there are enough runs."""
    text, interval = f"{tables.format_typical(result)} ms", tables.format_interval(result)
    return text if interval == "-" else f"{text} ({interval})"


def format_times_as_fast(result: Result, baseline: Result | None) -> str:
    """Return how many times as fast a result is as the baseline, and the 95 % interval; "-" if their work differs."""
    if baseline is None or (result.check_every, result.work) != (
        baseline.check_every,
        baseline.work,
    ):
        return "-"
    if result is baseline:
        return "1"
    times, ends = format_ratio(Pair(result, baseline).ratio)
    return times if ends == "-" else f"{times} ({ends})"


def format_ratio(ratio: Ratio, invert: bool = False) -> tuple[str, str]:
    """Return a ratio, or its inverse, and its 95 % interval; "-" for too few runs."""
    ends = ratio.interval
    if invert and ends:
        ends = (1 / ends[1], 1 / ends[0])
    return format_significant(
        1 / ratio.value if invert else ratio.value, digits_of(ends)
    ), format_ends(ends)


def format_times(pair: Pair) -> str:
    """Return both times in ms, with as many digits."""
    digits = max(digits_of(tables.milliseconds_interval(side)) for side in pair.sides)
    return " → ".join(
        tables.format_milliseconds(side.typical_seconds, digits) for side in pair.sides
    )


PAIR_COLUMNS = (
    Column("ms per iteration", format_times),
    Column("times as fast", lambda pair: format_ratio(pair.ratio, invert=True)[0]),
    Column("95 % interval", lambda pair: format_ratio(pair.ratio, invert=True)[1]),
    Column("verdict", lambda pair: pair.ratio.verdict, is_text=True),
    Column("page faults per iteration", lambda pair: " → ".join(map(format_faults, pair.sides)), 3),
)
