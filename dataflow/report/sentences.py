"""Say in sentences which configurations are faster, by how much, and how sure that is."""

from collections.abc import Sequence

from dataflow.analysis.comparison import Pair, find_transports
from dataflow.analysis.result import UNCOUNTED, Result
from dataflow.analysis.statistics import MIN_RUNS, NO_DIFFERENCE, TOO_NOISY, UNRANKED, Ratio
from dataflow.catalogue.catalogue import BASELINE, SIMPLEST
from dataflow.report import tables
from dataflow.report.tables import Column, format_faults, format_milliseconds, format_significant

BASELINES = (BASELINE, SIMPLEST)
SHORT_SECONDS = 0.002  # less depends on the caches, which hold other data after a verification of all bytes


def describe_pair(pair: Pair) -> str:
    """Return how many times as fast the new configuration is as the old one, and how sure that is."""
    old, new, ratio = pair.old, pair.new, pair.ratio
    if old.work != new.work:
        texts = [f"{r.label} takes {format_time(r)} where {tables.readers_of(r)}" for r in (new, old)]
        return f"{', and '.join(texts)}: different work, so there is no factor."
    is_slower, times = ratio.value > 1, format_significant(max(ratio.value, 1 / ratio.value))
    factor, interval = f"{times} times as {'long' if is_slower else 'fast'}", describe_interval(ratio, not is_slower)
    if ratio.verdict in UNRANKED:
        preposition = "from" if ratio.verdict == NO_DIFFERENCE else "against"
        missed = f"a difference below {ratio.detectable:.0%} would be missed"
        return f"{new.label} {ratio.verdict} {preposition} {old.label} ({factor}, {interval}; {missed})."
    return f"{new.label} {'takes' if is_slower else 'is'} {factor} as {old.label} ({interval})."


def describe_fastest(results: Sequence[Result], baselines: Sequence[str] = BASELINES) -> str:
    """Return the fastest configuration of each kind of readers, with one copying thread, and the baselines' factors."""
    sentences, transports = [], find_transports(results) or [r for r in results if r.status == "ok"]
    for readers in tables.READER_GROUPS:
        group = [r for r in transports if tables.readers_of(r) == readers and r.threads == 1]
        if not group:
            continue
        best, *others = sorted(group, key=lambda result: result.typical_seconds)
        if readers != tables.OWN_COPY:  # less work than in the first group: not compared with it
            sentences.append(f"If {readers}, {describe_alone(best)}")
            continue
        sentences.append(f"If {readers}, {_describe_best(best, others)}")
        slower = {r.label: Pair(best, r).ratio for r in transports if r.name in baselines and r is not best}
        factors = [f"`{label}` takes {format_significant(ratio.value)} times as long ({describe_interval(ratio)})"
                   for label, ratio in slower.items() if ratio.verdict not in UNRANKED]  # fmt: skip
        if factors:
            sentences.append(", and ".join(factors))
    left_out = [f"`{result.label}` ({result.status})" for result in results if result.status in UNCOUNTED]
    if left_out:
        sentences.append(f"Not ranked: {', '.join(left_out)}")
    return " ".join(f"{sentence}." for sentence in sentences)


def _describe_best(best: Result, others: Sequence[Result]) -> str:
    """Return the time of the fastest, those that cannot be told apart from it, and those that varied too much."""
    verb = "is the fastest with" if others else "takes"
    text = f"`{best.label}` {verb} {format_milliseconds(best.typical_seconds)} ms"
    if best.times_memcpy:
        text += f" ({best.times_memcpy:.2f} times the memcpy time)"
    ratios = {f"`{other.label}` ({format_time(other)}": Pair(best, other).ratio for other in others}
    equal = [f"{time}; a difference below {ratio.detectable:.0%} would be missed)" for time, ratio in ratios.items()
             if ratio.verdict == NO_DIFFERENCE]  # fmt: skip
    noisy = [f"{time})" for time, ratio in ratios.items() if ratio.verdict == TOO_NOISY]
    if equal:
        text += f"; with these runs it cannot be told apart from {' and '.join(equal)}"
    if noisy:
        text += f"; {' and '.join(noisy)} varied too much to be ranked"
    return text


def describe_alone(result: Result) -> str:
    """Return what one configuration takes, and why this time is not divided by that of a copy."""
    text = f"`{result.label}` takes about {float(f'{result.typical_seconds * 1e3:.2g}'):,g} ms"
    if result.readers_own_a_copy:
        return f"{text}, without the time in which the producer writes"
    text += f", because {'nothing is copied' if result.producer_writes_in_place else 'no reader copies'}"
    if result.typical_seconds < SHORT_SECONDS:
        text += f" (times below {SHORT_SECONDS * 1e3:g} ms depend on how often all bytes are verified)"
    return text


def format_time(result: Result) -> str:
    """Return the time in milliseconds, with its 95 % interval if there are enough runs."""
    text, interval = f"{format_milliseconds(result.typical_seconds)} ms", tables.format_interval(result)
    return text if interval == "-" else f"{text} ({interval})"


def format_speed_up(result: Result, baseline: Result | None) -> str:
    """Return how many times as fast a result is as the baseline, and the 95 % interval; "-" if their work differs."""
    if baseline is None or (result.check_every, result.work) != (baseline.check_every, baseline.work):
        return "-"
    if result is baseline:
        return "1x"
    ratio = Pair(result, baseline).ratio
    return f"{format_significant(ratio.value)}x" + (f" ({format_interval(ratio)})" if ratio.interval else "")


def format_interval(ratio: Ratio, invert: bool = False) -> str:
    """Return the 95 % interval of a ratio, or of its inverse; "-" for too few runs."""
    if ratio.interval is None:
        return "-"
    ends = [1 / end for end in reversed(ratio.interval)] if invert else ratio.interval
    return " to ".join(map(format_significant, ends))


def describe_interval(ratio: Ratio, invert: bool = False) -> str:
    if ratio.interval is None:
        return f"no interval: give --runs {MIN_RUNS} or more"
    return f"95 % interval {format_interval(ratio, invert)}"


def format_factor(ratio: Ratio) -> str:
    """Return how many times as fast the new configuration is, and the interval."""
    return f"{format_significant(1 / ratio.value)} times as fast ({format_interval(ratio, invert=True)})"


PAIR_COLUMNS = (
    Column("ms per iteration", lambda pair: " → ".join(format_milliseconds(r.typical_seconds) for r in pair.sides)),
    Column("times as fast", lambda pair: format_significant(1 / pair.ratio.value)),
    Column("95 % interval", lambda pair: format_interval(pair.ratio, invert=True)),
    Column("verdict", lambda pair: pair.ratio.verdict, is_text=True),
    Column("page faults per iteration", lambda pair: " → ".join(map(format_faults, pair.sides)), 3),
)
