"""Print how often compare_results.py is wrong: a Markdown table of verdicts on pairs whose real difference is known.

    python3 -m evidence.false_alarms results/evidence/alike results/evidence/alternating

Each pair has 5 old and 5 new runs of one configuration. results/evidence/alternating has a paired measurement of one
configuration, the same again, and the same with an injected delay of 5 %.
"""

import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from common.analysis.comparison import Pair
from common.analysis.result import Result
from common.errors import UsageError
from common.main import run_main
from common.records import files
from common.records.schema import Run
from common.report.markdown import render_table
from common.report.tables import Column, make_table

RUNS = 5  # on each side of a pair, as in published records
SHUFFLES = 12  # random orders of the same runs


def find_verdict(result: Result, old: Sequence[Run], new: Sequence[Run]) -> str:
    """Return the verdict on two sets of runs."""
    old_result, new_result = (Result([replace(result.record, runs=list(runs))]) for runs in (old, new))
    return Pair(old_result, new_result).ratio.verdict


def count_verdicts(results: Sequence[Result]) -> dict[str, list[str]]:
    """Return the verdicts by the kind of pair, which share no run within a result and an order."""
    verdicts: dict[str, list[str]] = defaultdict(list)
    generator = random.Random(0)
    for result in results:
        delayed = "inject" in result.configuration.flags
        runs = sorted(result.shown_runs, key=lambda run: (run.started_at, run.order))
        orders = [] if delayed else [runs, *(generator.sample(runs, len(runs)) for _ in range(SHUFFLES))]
        for order in orders:
            for begin in range(0, len(runs) - 2 * RUNS + 1, 2 * RUNS):
                block = order[begin : begin + 2 * RUNS]
                name = "one after the other" if order is runs else "in random order"
                verdicts[f"equal, {name}"].append(find_verdict(result, block[:RUNS], block[RUNS:]))
                if order is runs:
                    verdicts["equal, interleaved"].append(find_verdict(result, block[::2], block[1::2]))
        first = next((other for other in results if other.paired), result)
        paired_runs = Pair(first, result).paired_runs if result is not first else []
        for begin in range(0, len(paired_runs) - RUNS + 1, RUNS):
            old, new = zip(*paired_runs[begin : begin + RUNS], strict=True)
            verdicts[f"{'delayed' if delayed else 'equal'}, paired"].append(find_verdict(result, old, new))
            if delayed:
                separate = [replace(run, pair="") for run in new]
                verdicts["delayed, interleaved"].append(find_verdict(result, old, separate))
    return verdicts


def main(folders: Sequence[str]) -> int:
    """Print the table, and return 0."""
    results = [Result((files.load(path),)) for path in files.record_files(map(Path, folders))]
    verdicts = count_verdicts(results)
    if not verdicts:
        raise UsageError(f"no configuration has {2 * RUNS} runs: raise --runs of benchmark.py")
    columns = [
        Column("old and new runs", lambda kind: kind),
        Column("pairs", lambda kind: str(len(verdicts[kind]))),
        Column("called slower", lambda kind: str(verdicts[kind].count("slower"))),
        Column("called faster", lambda kind: str(verdicts[kind].count("faster"))),
    ]
    print(render_table(make_table(sorted(verdicts), columns)))
    return 0


if __name__ == "__main__":
    run_main(main, sys.argv[1:])
