"""Say in sentences which configurations are faster, by how much, how sure that is, and what changed with the time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from dataflow.analysis.comparison import Pair, compared_result, find_transports
from dataflow.analysis.result import UNCOUNTED, Result
from dataflow.analysis.stages import fault_seconds
from dataflow.analysis.statistics import MAX_RUNS, MIN_RUNS, NO_DIFFERENCE, TOO_NOISY, UNRANKED, Ratio
from dataflow.catalogue.catalogue import BASELINE
from dataflow.report import tables
from dataflow.report.tables import Column, format_faults, format_milliseconds, format_significant, format_stored
from dataflow.units import format_bytes

SIMPLEST = "store refs"  # what users of Ray begin with
BASELINES = (BASELINE, SIMPLEST, "store replay-buffer")  # the last one is what ColossalAI does
SHORT_SECONDS = 0.002  # less depends on the caches, which hold other data after a verification of all bytes
MIN_CHANGE = 0.05  # of the difference of two times, which a cost explains that is named beside it


@dataclass(frozen=True)
class Cost:
    """Something that may have changed with the time: what an iteration used, or the speed of the machine."""

    name: str
    value: Callable[[Result], float | None]
    cell: Callable[[Result], str]
    unit_seconds: Callable[[Result], float]  # the time that one unit of `value` takes, about


CPU_TIME = "CPU time"  # contains the time of the other costs, so it comes last
COSTS = (
    Cost("page faults", lambda r: r.faults_per_iteration, format_faults,
         lambda r: fmean(map(fault_seconds, r.shown_runs))),
    Cost("bytes stored", lambda r: r.stored_bytes_per_iteration, format_stored,
         lambda r: (r.memcpy_seconds or 0) / r.workload.bytes_per_iteration),
    Cost("memcpy time of the machine", lambda r: r.memcpy_seconds, lambda r: format_milliseconds(r.memcpy_seconds),
         lambda r: r.typical_seconds / r.memcpy_seconds if r.memcpy_seconds else 0),
    Cost(CPU_TIME, lambda r: r.cpu_seconds_per_iteration, lambda r: format_milliseconds(r.cpu_seconds_per_iteration),
         lambda _: 1),
)  # fmt: skip


def describe_all(pairs: Sequence[Pair]) -> list[str]:
    """Return a sentence about the times of each pair that was measured, then one about the cost that changed most."""
    measured = [pair for pair in pairs if pair.is_measured]
    several = len({pair.old.workload.edges for pair in measured}) > 1
    lines = []
    for pair in measured:
        workload = f"{format_bytes(pair.old.workload.bytes_per_iteration)} per iteration: " if several else ""
        lines.append(f"{workload}{describe_pair(pair)}.")
    return [*lines, *filter(None, map(describe_largest_change, measured))]


def describe_pair(pair: Pair) -> str:
    """Return how many times as fast the new configuration is as the old one, and how sure that is."""
    ratio, counts = pair.ratio, dict.fromkeys(len(result.run_seconds) for result in (pair.new, pair.old))
    runs = f"{' and '.join(map(str, counts))} {'run' if max(counts) == 1 else 'runs'}"
    runs = f"{runs} each" if len(counts) == 1 else runs
    old, new = pair.old.label, pair.new.label
    if not tables.have_equal_work(pair.old, pair.new):
        times = [f"{result.label} takes {format_time(result)} where {tables.readers_of(result)}"
                 for result in (pair.new, pair.old)]  # fmt: skip
        return f"{', and '.join(times)}: different work, so there is no factor"
    is_slower, factor = ratio.value > 1, describe_factor(ratio)
    interval = f"95 % interval {format_interval(ratio, invert=not is_slower)}"
    if ratio.verdict in UNRANKED:
        needed, too_small = ratio.runs_needed(), f"even {MAX_RUNS} runs would not make so small a difference clear"
        advice = f"give --runs {needed}" if needed else too_small
        preposition = "from" if ratio.verdict == NO_DIFFERENCE else "against"
        return (f"{new} {ratio.verdict} {preposition} {old} with {runs} ({factor}, {interval}; a difference below "
                f"{ratio.detectable:.0%} would be missed): {advice}")  # fmt: skip
    text = f"{new} {'takes' if is_slower else 'is'} {factor} as {old} "
    if ratio.low is None:
        return f"{text}({runs}, so no interval: give --runs {MIN_RUNS} or more)"
    return f"{text}({interval}, {runs})"


def describe_factor(ratio: Ratio) -> str:
    return f"{format_significant(max(ratio.value, 1 / ratio.value))} times as {'long' if ratio.value > 1 else 'fast'}"


def describe_largest_change(pair: Pair) -> str | None:
    """Return the costs that changed in the same direction as the time, the one that explains most of it first.

    A cost that explains less than MIN_CHANGE of the difference is left out. None if the times are alike. This is no
    proof of a cause: other things may have changed too.
    """
    if pair.ratio.verdict in UNRANKED or not tables.have_equal_work(pair.old, pair.new):
        return None
    difference, changes = abs(pair.new.typical_seconds - pair.old.typical_seconds), []
    for cost in COSTS:
        old, new = cost.value(pair.old), cost.value(pair.new)
        if old is None or new is None or old == new or (new < old) != (pair.ratio.value < 1):
            continue
        seconds = abs(new - old) * cost.unit_seconds(pair.old)
        if seconds >= MIN_CHANGE * difference:
            share = f" to {new / old:.0%}" if new < 10 * old else ""
            change = f"{cost.name} {'fell' if new < old else 'rose'}{share} ({old_and_new(cost.cell)(pair)})"
            changes.append((cost.name == CPU_TIME, -seconds, change))
    name = pair.label if pair.old.label == pair.new.label else f"{pair.new.label}, compared with {pair.old.label}"
    if not changes:
        return f"{name}: no cost changed in the same direction as the time"
    (*_, first), *others = sorted(changes)
    rest = f"; also {', '.join(change for *_, change in others)}" if others else ""
    return f"{name}: {first}, the largest change in the same direction{rest}"


def old_and_new(cell: Callable[[Result], str]) -> Callable[[Pair], str]:
    """Return a function that returns the cells of both results of a pair."""
    return lambda pair: f"{cell(pair.old)} → {cell(pair.new)}"


def describe_fastest(results: Sequence[Result]) -> str:
    """Return a sentence for the fastest configuration of each kind of readers, with one copying thread per actor.

    Configurations that cannot be told apart from it are named too, and those that varied too much to be ranked.
    """
    sentences, transports = [], find_transports(results)
    for readers in tables.READER_GROUPS:
        group = [r for r in transports if tables.readers_of(r) == readers and r.threads == 1]
        candidates = sorted(group, key=lambda result: result.typical_seconds)
        if not candidates:
            continue
        best, *others = candidates
        if readers != tables.OWN_COPY:  # less work than in the first group: not compared with it
            sentences.append(f"If {readers}, {describe_alone(best)}")
            continue
        verb = "is the fastest with" if others else "takes"
        sentence = f"If {readers}, `{best.label}` {verb} {format_milliseconds(best.typical_seconds)} ms"
        if best.times_memcpy:
            sentence += f" ({best.times_memcpy:.2f} times the memcpy time)"
        equal, noisy = [], []
        for result in others:
            ratio, time = Pair(best, result).ratio, f"`{result.label}` ({format_time(result)}"
            if ratio.verdict == NO_DIFFERENCE:
                equal.append(f"{time}; a difference below {ratio.detectable:.0%} would be missed)")
            elif ratio.verdict == TOO_NOISY:
                noisy.append(f"{time})")
        if equal:
            sentence += f"; with these runs it cannot be told apart from {' and '.join(equal)}"
        if noisy:
            sentence += f"; {' and '.join(noisy)} varied too much to be ranked"
        sentences.append(sentence)
        factors = [
            f"`{other.label}` takes {format_significant(ratio.value)} times as long ({describe_interval(ratio)})"
            for other in transports if other.name in BASELINES and other is not best
            and (ratio := Pair(best, other).ratio).verdict not in UNRANKED
        ]  # fmt: skip
        if factors:
            sentences.append(", and ".join(factors))
    left_out = [f"`{result.label}` ({result.status})" for result in results if result.status in UNCOUNTED]
    if left_out:
        sentences.append(f"Not ranked: {', '.join(left_out)}")
    return "".join(f"{sentence}. " for sentence in sentences).strip()


def describe_alone(result: Result) -> str:
    """Return what one configuration takes, and why this time is not divided by that of a copy."""
    text = f"`{result.label}` takes about {float(f'{result.typical_seconds * 1e3:.2g}'):,g} ms"
    if result.readers_own_a_copy:
        return f"{text}, without the time in which the producer writes"
    text += f", because {'nothing is copied' if result.producer_writes_in_place else 'no reader copies'}"
    if result.typical_seconds < SHORT_SECONDS:
        text += f" (times below {SHORT_SECONDS * 1e3:g} ms depend on how often all bytes are verified)"
    return text


def describe_interval(ratio: Ratio) -> str:
    return f"95 % interval {format_interval(ratio)}" if ratio.low else f"no interval: give --runs {MIN_RUNS} or more"


def format_time(result: Result) -> str:
    """Return the time in milliseconds, with its 95 % interval if there are enough runs."""
    text = f"{format_milliseconds(result.typical_seconds)} ms"
    return f"{text} ({tables.format_interval(result)})" if len(result.run_seconds) >= MIN_RUNS else text


def format_speed_up(result: Result, baseline: Result | None) -> str:
    """Return how many times as fast a result is as the baseline, with the 95 % interval if there are enough runs."""
    if baseline is None or not result.seconds or result.check_every != baseline.check_every:
        return "-"
    if not tables.have_equal_work(result, baseline):
        return "-"
    if result is baseline:
        return "1x"
    ratio = Pair(result, baseline).ratio
    return f"{format_significant(ratio.value)}x" + (f" ({format_interval(ratio)})" if ratio.low else "")


def format_interval(ratio: Ratio, invert: bool = False) -> str:
    """Return the 95 % interval of a ratio, or of its inverse; "-" for too few runs."""
    if ratio.low is None or ratio.high is None:
        return "-"
    low, high = (1 / ratio.high, 1 / ratio.low) if invert else (ratio.low, ratio.high)
    return f"{format_significant(low)} to {format_significant(high)}"


def format_factor(ratio: Ratio, name: str = "") -> str:
    """Return how many times as fast the new configuration is, and the interval, with this name before it."""
    return f"{format_significant(1 / ratio.value)} times as fast ({name}{format_interval(ratio, invert=True)})"


PAIR_COLUMNS = (
    Column("ms per iteration", old_and_new(lambda result: format_milliseconds(result.typical_seconds))),
    Column("times as fast", lambda pair: format_significant(1 / pair.ratio.value)),
    Column("95 % interval", lambda pair: format_interval(pair.ratio, invert=True)),
    Column("verdict", lambda pair: pair.ratio.verdict, is_text=True),
    Column("page faults per iteration", old_and_new(format_faults)),
)


def describe_change(result: Result, results: Sequence[Result]) -> str:
    """Return how a result compares with the configuration that it extends, and why; "-" if that was not measured."""
    other = compared_result(result, results)
    if other is None or result.status != "ok" or result.variant is None:
        return "-"
    explanation = f"({result.variant.explanation})"
    if not tables.have_equal_work(other, result):
        difference = result.typical_seconds - other.typical_seconds
        milliseconds = f"{format_milliseconds(abs(difference))} ms {'more' if difference > 0 else 'less'}"
        return f"{milliseconds} than {other.label}, other work {explanation}"
    change = Pair(other, result).ratio
    text = f"{change.verdict} {'from' if change.verdict == NO_DIFFERENCE else 'against'}"
    if change.verdict in ("faster", "slower"):
        text = f"{'takes ' if change.value > 1 else ''}{describe_factor(change)} as"
    return f"{text} {other.label} {explanation}"
