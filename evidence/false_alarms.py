"""How often compare_results.py is wrong: rows compared with themselves, and with themselves slowed down.

    python3 benchmark.py --rows "torch memcpy" "torch gloo" --batch-size 256 --iterations 20 --runs 40 \\
        --output-dir results/evidence/alike
    python3 -m evidence.false_alarms results/evidence/alike        also says the delays of the next command
    python3 benchmark.py --rows "torch memcpy" "torch memcpy --inject policy:1:delay=0.35ms" ... --runs 10 \\
        --batch-size 256 --iterations 20 --output-dir results/evidence/delayed
    python3 -m evidence.false_alarms results/evidence/alike results/evidence/delayed

The runs of each row of a folder are cut into pairs of --runs each, old and new, which the code of compare_results.py
judges: `in turns`, every other run is new; `one after the other`; `at random`, again and again, so that pairs share
runs. A delayed row is judged against the one of its folder that is not, measured in turns with it.
"""

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from common.analysis.comparison import Pair
from common.analysis.results import Result, results_of
from common.analysis.statistics import MINIMUM_RUNS, scatter, typical_seconds
from common.errors import SuiteError, UsageError
from common.plan.command_line import OneLineParser
from common.plan.faults import Fault
from common.plan.kinds import at_least
from common.record import files
from common.record.schema import Run
from common.text.screen import print_table
from common.text.tables import Column, markdown_table

DELAY = 0.05  # of a trip: what a comparison shall find


@dataclass(frozen=True)
class Judged:
    """Pairs of runs of one row that were made in one way."""

    row: Result
    way: str
    pairs: list[Pair]

    def called(self, verdict: str) -> int:
        return sum(pair.ratio.verdict == verdict for pair in self.pairs)


def in_time(result: Result) -> list[Run]:
    return sorted((run for run in result.shown if run.seconds), key=lambda run: (run.started_at, run.order))


def blocks(runs: Sequence[Run], length: int) -> list[Sequence[Run]]:
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
    runs, drawn = in_time(row), random.Random(seed)
    yield Judged(row, "in turns", [judge(row, own[::2], row, own[1::2]) for own in blocks(runs, 2 * count)])
    for way, orders in (
        ("one after the other", [runs]),
        ("at random", [drawn.sample(runs, len(runs)) for _ in range(shuffles)]),
    ):
        halves = [own for order in orders for own in blocks(order, 2 * count)]
        yield Judged(row, way, [judge(row, own[:count], row, own[count:]) for own in halves])


def delayed(slow: Result, plain: Result, count: int) -> Judged:
    """A delayed row against itself without the delay, in runs that were measured meanwhile."""
    chunks = zip(blocks(in_time(plain), count), blocks(in_time(slow), count), strict=False)
    return Judged(slow, "delayed", [judge(plain, old, slow, new) for old, new in chunks])


def judged(folder: Path, count: int, shuffles: int, seed: int) -> list[Judged]:
    """All the pairs of a folder.

    Raises:
        UsageError: a delayed row lacks the row that it was made of, or no row has enough runs.
    """
    results = [result for result in results_of(map(files.load, files.below([folder]))) if result.seconds]
    found: list[Judged] = []
    for result in results:
        if result.injected is None:
            found += alike(result, count, shuffles, seed)
            continue
        plain = next((o for o in results if o.injected is None and o.record.row == result.record.row), None)
        if plain is None:
            raise UsageError(f"{folder} has {result.name} and not the row without its delay: measure both in one call")
        found.append(delayed(result, plain, count))
    if not any(one.pairs for one in found):
        raise UsageError(f"{folder} has no row with {2 * count} runs, for a pair: raise benchmark.py's --runs")
    return found


def delays(found: Sequence[Judged]) -> list[str]:
    """Of each row that is not delayed: how the next measurement has it, and has it slowed down."""
    rows = {one.row.name: one.row for one in found if not one.row.injected}
    seconds = {name: round(DELAY * typical_seconds(row.seconds_by_run), 7) for name, row in rows.items()}
    return [f'"{name}" "{name} --inject {Fault(row.flow.actors[0], 1, "delay", seconds[name])}"'
            for name, row in rows.items()]  # fmt: skip


def planted(one: Judged) -> str:
    """The delay as a share of the trips that it was added to."""
    if not one.row.injected or not one.pairs:
        return "-"
    return f"{Fault.parse(one.row.injected).seconds / typical_seconds([[p.old_seconds] for p in one.pairs]):.1%}"


COLUMNS = [
    Column("row", lambda one: one.row.name),
    Column("runs differ by", lambda one: f"{scatter(one.row.seconds_by_run):.1%}"),
    Column("pairs", lambda one: one.way, words=True),
    Column("planted", planted),
    Column("number", lambda one: str(len(one.pairs))),
    Column("slower", lambda one: str(one.called("slower"))),
    Column("faster", lambda one: str(one.called("faster"))),
    Column("between", lambda one: " to ".join(f"{pick(p.ratio.value for p in one.pairs):.3f}" for pick in (min, max))
           if one.pairs else "-"),
]  # fmt: skip


def summary(found: Sequence[Judged], count: int) -> list[str]:
    """A sentence for each way."""
    lines = []
    for way in dict.fromkeys(one.way for one in found):
        own = [one for one in found if one.way == way]
        slower, faster = (sum(one.called(verdict) for one in own) for verdict in ("slower", "faster"))
        said = f"{slower} found slower" if way == "delayed" else f"{slower + faster} called different"
        lines.append(f"Rows {way}: {sum(len(one.pairs) for one in own)} pairs of {count} runs each, {said}.")
    return lines


def main(argv: list[str] | None = None) -> int:
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="of records of benchmark.py")
    usual = "(default: %(default)s)"
    parser.add_argument("--runs", type=at_least(MINIMUM_RUNS), default=5, help=f"of each side of a pair {usual}")
    parser.add_argument("--shuffles", type=at_least(1), default=10, help=f"how often runs are paired at random {usual}")
    parser.add_argument("--seed", type=int, default=0, help=f"of these pairs {usual}")
    parser.add_argument("--markdown", action="store_true", help="the table in Markdown")
    try:
        arguments = parser.parse_all(argv)
        how = (arguments.runs, arguments.shuffles, arguments.seed)
        found = [one for folder in arguments.folders for one in judged(folder, *how)]
    except SuiteError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(markdown_table(found, COLUMNS)) if arguments.markdown else print_table(found, COLUMNS)
    print("\n".join(["", *summary(found, arguments.runs)]))
    if not any(one.row.injected for one in found):
        print(f"The same rows with {DELAY:.0%} planted, as --rows of benchmark.py:", *delays(found), sep="\n    ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
