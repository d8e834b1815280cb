"""How often a comparison is wrong: many runs of one row cut into pairs, as if they had been old and new, and judged."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from common.analysis.comparison import Pair
from common.analysis.results import Result, results_of
from common.analysis.statistics import scatter, typical_seconds
from common.errors import UsageError
from common.plan.faults import Fault
from common.record import files
from common.record.schema import Run

T = TypeVar("T")
DELAY = 0.05  # of a trip: what a comparison shall find
PAIRED = (5,)  # runs of each side of a pair: as many as are published
SHUFFLES = 12  # how often runs are paired at random


@dataclass(frozen=True)
class Judged:
    """Pairs of runs of one row that were made in one way, so many runs on each side.

    scatter: by what share its runs differ; where they alternated with another's, their ratios.
    """

    row: Result
    way: str
    count: int
    pairs: list[Pair]
    scatter: float

    def called(self, verdict: str) -> int:
        return sum(pair.ratio.verdict == verdict for pair in self.pairs)


def in_time(result: Result) -> list[Run]:
    return sorted((run for run in result.shown if run.seconds), key=lambda run: (run.started_at, run.order))


def blocks(runs: Sequence[T], length: int) -> list[Sequence[T]]:
    """One after the other, without what is left over."""
    return [runs[begin : begin + length] for begin in range(0, len(runs) - length + 1, length)]


def judge(old: Result, old_runs: Sequence[Run], new: Result, new_runs: Sequence[Run]) -> Pair:
    """As compare_results.py would, had these been all the runs."""
    before, after = (
        Result((msgspec.structs.replace(result.record, runs=list(runs)),))
        for result, runs in ((old, old_runs), (new, new_runs))
    )
    return Pair(before, after)


def alike(row: Result, count: int, shuffles: int, seed: int) -> Iterator[Judged]:
    """The row against itself, in each of the three ways; within a way, or within a shuffle, pairs share no run."""
    runs, drawn, differ = in_time(row), random.Random(seed), scatter(row.seconds_by_run)
    pairs = [judge(row, own[::2], row, own[1::2]) for own in blocks(runs, 2 * count)]
    yield Judged(row, "in turns", count, pairs, differ)
    for way, orders in (
        ("one after the other", [runs]),
        ("at random", [drawn.sample(runs, len(runs)) for _ in range(shuffles)]),
    ):
        halves = [own for order in orders for own in blocks(order, 2 * count)]
        yield Judged(row, way, count, [judge(row, own[:count], row, own[count:]) for own in halves], differ)


def delayed(slow: Result, plain: Result, count: int) -> Judged:
    """A delayed row against itself without the delay, by runs that were measured meanwhile, alternating or not."""
    sides = ([msgspec.structs.replace(run, alternation="") for run in in_time(side)] for side in (plain, slow))
    chunks = zip(*(blocks(side, count) for side in sides), strict=False)
    pairs = [judge(plain, old, slow, new) for old, new in chunks]
    return Judged(slow, "delayed", count, pairs, scatter(slow.seconds_by_run))


def alternating(new: Result, old: Result, count: int) -> Judged:
    """A row, delayed or not, against another whose trips alternated with its own."""
    both = Pair(old, new).alternated
    pairs = [judge(old, [one for one, _ in own], new, [other for _, other in own]) for own in blocks(both, count)]
    ratios = [[judge(old, [one], new, [other]).ratio.value] for one, other in both]
    way = "delayed, alternating" if new.injected else "alternating"
    return Judged(new, way, count, pairs, scatter(ratios))


def judged(folder: Path, counts: Sequence[int], shuffles: int, seed: int) -> list[Judged]:
    """All the pairs of a folder, of as many runs a side as each of these.

    Raises:
        UsageError: a delayed row lacks the row that it was made of, or no row has enough runs.
    """
    records = list(map(files.load, files.below([folder])))
    # A row may alternate with itself, in two records.
    results = [result for record in records if (result := Result((record,))).alternated and result.seconds]
    results += [result for result in results_of(records) if result.seconds and not result.alternated]
    found: list[Judged] = []
    for result in results:
        plain = next((other for other in results if _is_plain(other, result)), None)
        if plain is None:
            raise UsageError(f"{folder} has {result.name} and not the row without its delay: measure both in one call")
        if result.injected is None:
            found += [one for count in counts for one in alike(result, count, shuffles, seed)]
        else:
            found += [delayed(result, plain, count) for count in counts]
        if result.alternated and result is not plain:
            found += [alternating(result, plain, count) for count in counts]
    found = [one for one in found if one.pairs]
    if not found:
        raise UsageError(f"{folder} has no row with {2 * min(counts)} runs, for a pair: raise benchmark.py's --runs")
    return found


def _is_plain(other: Result, result: Result) -> bool:
    """Whether it is the same row without a delay, measured in the same way."""
    alike = other.record.row == result.record.row and other.alternated == result.alternated
    return alike and other.injected is None


def delays(found: Sequence[Judged]) -> list[str]:
    """Of each row that is not delayed: how the next measurement has it, and has it slowed down."""
    rows = {one.row.name: one.row for one in found if not one.row.injected}
    seconds = {name: round(DELAY * typical_seconds(row.seconds_by_run), 7) for name, row in rows.items()}
    return [f'"{name}" "{name} --inject {Fault(row.flow.actors[0], 1, "delay", seconds[name])}"'
            for name, row in rows.items()]  # fmt: skip


def planted(one: Judged) -> str:
    """The delay as a share of the trips that it was added to."""
    if not one.row.injected:
        return "-"
    return f"{Fault.parse(one.row.injected).seconds / typical_seconds([[p.old_seconds] for p in one.pairs]):.1%}"
