# SPDX-License-Identifier: Apache-2.0
"""Say in sentences which configurations are faster, by how much, and how sure that is."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import product

from dataflow.analysis.comparison import Pair, find_transports
from dataflow.analysis.result import UNCOUNTED, Result
from dataflow.analysis.statistics import MIN_RUNS, NO_DIFFERENCE, UNRANKED, Ratio
from dataflow.report import tables
from dataflow.report.tables import Column, digits_of, format_ends, format_faults, format_significant

COUNTS = {1: "One run", 2: "Two runs"}
RANK_QUICK = f'make quick FLAGS="--runs {MIN_RUNS}"'


def describe_pair(pair: Pair) -> str:
    """Return how many times as fast the new configuration is as the old one, and how sure that is.

    There is no factor between different work, and no verdict of one or two quiet runs.
    """
    old, new = pair.sides
    if old.work != new.work:
        takes = f"{describe_takes(new)}, and {describe_takes(old)}"
        return f"{takes}: different work, so there is no factor."
    if not old.can_be_ranked or not new.can_be_ranked:
        times = describe_times(pair)
        reason = explain_no_ranking([new, old])
        return f"{times}. {reason}: no verdict."
    ratio = pair.ratio
    is_slower = ratio.value > 1
    times, ends = format_ratio(ratio, invert=not is_slower)
    factor = f"{times} times as {'long' if is_slower else 'fast'}"
    interval = f"95 % interval {ends}"
    if ratio.verdict in UNRANKED:
        preposition = "from" if ratio.verdict == NO_DIFFERENCE else "against"
        missed = f"a difference below {ratio.detectable:.0%} would be missed"
        verdict = f"{new.label} {ratio.verdict} {preposition} {old.label}"
        return f"{verdict} ({factor}, {interval}; {missed})."
    verb = "takes" if is_slower else "is"
    return f"{new.label} {verb} {factor} as {old.label} ({interval})."


def describe_takes(result: Result) -> str:
    """Return the time of a result and what its readers get."""
    return f"{result.label} takes {format_time(result)} where {tables.readers_of(result)}"


def describe_times(pair: Pair) -> str:
    """Return both times, as "graph shm: 38 ms, store refs: 240 ms"."""
    sides = []
    for side in (pair.new, pair.old):
        time = format_time(side)
        sides.append(f"{side.label}: {time}")
    return ", ".join(sides)


def compare_with_first(results: Sequence[Result]) -> list[str]:
    """Return a sentence per configuration that compares it with the first one, or says why it cannot.

    The first one is the baseline even if it has no time. Several results of it, for example of a sweep, are the
    baselines of those with the same messages.
    """
    first = results[0]
    baselines = {}
    for result in results:
        if result.label == first.label:
            baselines[result.workload.messages] = result
    sentences = []
    for baseline in baselines.values():
        if baseline.status != "ok":
            reason = baseline.failure or baseline.status
            sentences.append(
                f"Nothing is compared with {first.label}, because it has no result: {reason}."
            )
    for result in results:
        if result.label == first.label:
            continue
        with_equal_messages = baselines.get(result.workload.messages)
        if with_equal_messages is None:
            sentences.append(f"{result.label} sends other messages than {first.label}: no factor.")
        elif result.status != "ok" or not result.runs:
            sentences.append(explain_missing(result))
        elif with_equal_messages.status == "ok":
            pair = Pair(with_equal_messages, result)
            sentences.append(describe_pair(pair))
    return sentences


def explain_missing(result: Result) -> str:
    """Return why a result cannot be compared."""
    if not result.runs:
        return f"{result.label} was not measured."
    reason = result.failure or result.status
    return f"{result.label} has no result to compare: {reason}."


def compare_named(results: Sequence[Result], names: Sequence[Sequence[str]]) -> list[str]:
    """Return a sentence for each pair of names that a suite compares, if both have a result with equal messages."""
    measured = [result for result in results if result.status == "ok"]
    compared = {tuple(pair) for pair in names}
    sentences = []
    for old, new in product(measured, measured):
        if (old.name, new.name) not in compared:
            continue
        if old.workload.messages == new.workload.messages:
            pair = Pair(old, new)
            sentences.append(describe_pair(pair))
    return sentences


def describe_fastest(results: Sequence[Result]) -> str:
    """Return the fastest configuration of each kind of readers, with one copying thread, and which are not ranked.

    Without enough quiet runs, it is only the lowest time, and the sentence says that this is no ranking.
    """
    timed = [result for result in results if result.status == "ok"]
    groups = group_by_readers(timed)
    unranked = [result for result in results if result.status in UNCOUNTED]
    if is_ranking_possible(groups.values()):
        sentences = [rank_group(readers, group) for readers, group in groups.items()]
        for group in groups.values():
            if len(group) > 1:
                unranked += [result for result in group if not result.can_be_ranked]
    else:
        sentences = [*describe_lowest_times(groups)]
        sentences.append(f"{explain_no_ranking(timed)}: not a ranking")
        sentences.append(f"For a ranking: {command_for_ranking(results)}")
    if unranked:
        names = [f"`{result.label}` ({explain_unranked(result)})" for result in unranked]
        sentences.append(f"Not ranked: {', '.join(names)}")
    return " ".join(f"{sentence}." for sentence in sentences)


def group_by_readers(timed: Sequence[Result]) -> dict[str, list[Result]]:
    """Return the transports with one copying thread by what readers get, the fastest first."""
    transports = find_transports(timed) or timed
    fastest_first = sorted(transports, key=lambda result: result.typical_seconds)
    groups: dict[str, list[Result]] = {}
    for readers in tables.READER_GROUPS:
        same_readers = [result for result in fastest_first if tables.readers_of(result) == readers]
        group = [result for result in same_readers if result.threads == 1]
        if group:
            groups[readers] = group
    return groups


def is_ranking_possible(groups: Collection[Sequence[Result]]) -> bool:
    """Return whether two configurations of a group have enough quiet runs, or there is nothing to rank."""
    has_several = False
    for group in groups:
        rankable = sum(result.can_be_ranked for result in group)
        if rankable > 1:
            return True
        if len(group) > 1:
            has_several = True
    return not has_several


def rank_group(readers: str, group: Sequence[Result]) -> str:
    """Return the fastest of the configurations that have enough quiet runs, and those that may be as fast."""
    ranked = [result for result in group if result.can_be_ranked]
    if len(ranked) < 2:
        best = (ranked or group)[0]
        return f"If {readers}, `{best.label}` takes {format_time(best)}"
    best, *others = ranked
    among = ""
    if best is not group[0]:
        among = "of those that can be ranked, "
    text = f"If {readers}, {among}`{best.label}` is the fastest with {format_time(best)}"
    names = []
    for other in others:
        verdict = Pair(best, other).ratio.verdict
        if verdict in UNRANKED:
            names.append(f"`{other.label}` ({format_time(other)})")
    if names:
        text += f"; these runs do not tell it apart from {' and '.join(names)}"
    return text


def describe_lowest_times(groups: dict[str, list[Result]]) -> Iterator[str]:
    """Yield the configuration with the lowest time of each kind of readers."""
    for readers, group in groups.items():
        condition = ""
        if len(groups) > 1:
            condition = f" if {readers}"
        best = group[0]
        time = format_time(best)
        yield f"Lowest time{condition}: `{best.label}`, {time}"


def explain_no_ranking(results: Sequence[Result]) -> str:
    """Return how many runs there are, and how many of them were disturbed.

    For example: "One run each, 7 of 7 disturbed".
    """
    counts = [len(result.run_seconds) for result in results]
    fewest = min(counts)
    most = max(counts)
    runs = f"{fewest} to {most} runs"
    if fewest == most:
        runs = COUNTS.get(fewest, f"{fewest} runs")
    text = f"{runs} each"
    total = sum(len(result.shown_runs) for result in results)
    quiet = sum(result.quiet_count for result in results)
    disturbed = total - quiet
    if disturbed:
        text += f", {disturbed} of {total} disturbed"
    return text


def command_for_ranking(results: Sequence[Result]) -> str:
    """Return what to do for a ranking: the command for the suite of `make quick`, the flag for others."""
    for result in results:
        if result.records[0].suite == "quick":
            return RANK_QUICK
    return f"give --runs {MIN_RUNS} or more, on an idle machine"


def explain_unranked(result: Result) -> str:
    """Return why a result has no place in a ranking."""
    if result.status != "ok":
        return result.status
    if result.is_disturbed:
        return "disturbed"
    if result.quiet_count == 1:
        return "one quiet run"
    return f"{result.quiet_count} quiet runs"


def format_time(result: Result) -> str:
    """Return the time in milliseconds, with its 95 % interval if there are enough runs."""
    text = f"{tables.format_typical(result)} ms"
    interval = tables.format_interval(result)
    if interval == "-":
        return text
    return f"{text} ({interval})"


def format_times_as_fast(result: Result, baseline: Result | None) -> str:
    """Return how many times as fast a result is as the baseline, and the 95 % interval; "-" if their work differs.

    A factor that cannot be ranked says why. With --retain-memory, the memory that it costs is beside the factor.
    """
    if baseline is None:
        return "-"
    is_grouped_alike = result.check_every == baseline.check_every
    if not is_grouped_alike or result.work != baseline.work:
        return "-"
    if result is baseline:
        return "1"
    ratio = Pair(result, baseline).ratio
    times, ends = format_ratio(ratio)
    details = [ends] if ends != "-" else []
    if not result.can_be_ranked:
        details.append(explain_unranked(result))
    elif not baseline.can_be_ranked:
        details.append(f"baseline: {explain_unranked(baseline)}")
    text = f"{times} ({', '.join(details)})" if details else times
    if "retain_memory" in result.configuration.flags:
        text += (
            f" with {tables.format_memory(result)} instead of {tables.format_memory(baseline)} GiB"
        )
    return text


def format_ratio(ratio: Ratio, invert: bool = False) -> tuple[str, str]:
    """Return a ratio, or its inverse, and its 95 % interval; "-" for too few runs."""
    value = ratio.value
    ends = ratio.interval
    if invert:
        value = 1 / value
        if ends:
            ends = (1 / ends[1], 1 / ends[0])
    return format_significant(value, digits_of(ends)), format_ends(ends)


def format_times(pair: Pair) -> str:
    """Return both times in ms, with as many digits."""
    digits = max(digits_of(tables.milliseconds_interval(side)) for side in pair.sides)
    old = tables.format_milliseconds(pair.old.typical_seconds, digits)
    new = tables.format_milliseconds(pair.new.typical_seconds, digits)
    return f"{old} → {new}"


def format_factor(pair: Pair) -> str:
    """Return how many times as fast the new side is."""
    times, _ = format_ratio(pair.ratio, invert=True)
    return times


def format_factor_interval(pair: Pair) -> str:
    """Return the 95 % interval of that factor; "-" for too few runs."""
    _, ends = format_ratio(pair.ratio, invert=True)
    return ends


def format_gain(pair: Pair) -> str:
    """Return that factor with its 95 % interval in brackets, if there are enough runs."""
    times, ends = format_ratio(pair.ratio, invert=True)
    if ends == "-":
        return times
    return f"{times} ({ends})"


def format_both_faults(pair: Pair) -> str:
    """Return the page faults per iteration of both sides."""
    return f"{format_faults(pair.old)} → {format_faults(pair.new)}"


def format_sides(pair: Pair, cell: Callable[[Result], str]) -> str:
    """Return the cells of both sides; "-" if none has a value."""
    old = cell(pair.old)
    new = cell(pair.new)
    return "-" if old == new == "-" else f"{old} → {new}"


def compare_sides(column: Column) -> Column:
    """Return a column for pairs, with the cells of both sides."""
    cell = partial(format_sides, cell=column.cell)
    return Column(column.header, cell, rank=2, is_optional=True)


PAIR_TIMES = Column("ms per iteration", format_times)
PAIR_TAILS = tuple(map(compare_sides, tables.TAIL_COLUMNS))
PAIR_VERDICT = Column("verdict", lambda pair: pair.ratio.verdict, is_text=True)
PAIR_FAULTS = Column("page faults per iteration", format_both_faults, rank=3)
PAIR_COLUMNS = (
    PAIR_TIMES,
    *PAIR_TAILS,
    Column("times as fast", format_factor),
    Column("95 % interval", format_factor_interval, rank=1),
    PAIR_VERDICT,
    PAIR_FAULTS,
)
