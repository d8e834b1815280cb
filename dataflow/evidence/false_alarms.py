"""Print how often dataflow compare is wrong: a Markdown table of verdicts on pairs whose real difference is known.

    python3 -m dataflow.evidence.false_alarms results/evidence/alike results/evidence/paired

Each pair has 5 old and 5 new runs of one configuration. results/evidence/paired has paired measurements of a
configuration with itself, and with itself and an injected delay of 5 %.
"""

import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dataflow.analysis.comparison import Pair
from dataflow.analysis.result import Result
from dataflow.analysis.statistics import ratio, ratio_of_pairs
from dataflow.errors import UsageError, run_main
from dataflow.records import files
from dataflow.report.markdown import render_table
from dataflow.report.tables import Column, TextTable, make_table

RUNS = 5  # on each side of a pair, as in published records
SHUFFLES = 12  # random orders of the same runs


def count_verdicts(results: Sequence[Result]) -> dict[tuple[str, str], list[str]]:
    """Return the verdicts by configuration and kind of pair. Pairs of an order that was not drawn at random overlap."""
    verdicts: dict[tuple[str, str], list[str]] = defaultdict(list)
    generator = random.Random(0)
    for result in results:
        if "inject" in result.name:
            continue
        runs = sorted(result.shown_runs, key=lambda run: (run.started_at, run.order))
        times, name = [float(np.median(run.seconds)) for run in runs], name_without_delay(result)
        for begin in range(len(times) - 2 * RUNS + 1):  # whatever run a comparison begins with
            window = times[begin : begin + 2 * RUNS]
            verdicts[name, "equal, one after the other"].append(ratio(window[RUNS:], window[:RUNS]).verdict)
            verdicts[name, "equal, interleaved"].append(ratio(window[1::2], window[::2]).verdict)
        for _ in range(SHUFFLES):
            for block in split_blocks(generator.sample(times, len(times)), 2 * RUNS):
                verdicts[name, "equal, in random order"].append(ratio(block[RUNS:], block[:RUNS]).verdict)
    paired = sorted((result for result in results if result.paired), key=lambda result: "inject" in result.name)
    for index, new in enumerate(paired):
        pairs = next(filter(None, (Pair(old, new).paired_runs for old in paired[:index])), [])
        for block in split_blocks(pairs, RUNS):
            is_delayed = "inject" in new.name
            seconds = [[pair[side].seconds for pair in block] for side in (1, 0)]
            kind = "delayed, paired" if is_delayed else "equal, paired"
            verdicts[name_without_delay(new), kind].append(ratio_of_pairs(*seconds).verdict)
            if is_delayed:
                medians = [np.median(side, axis=1) for side in seconds]
                verdicts[name_without_delay(new), "delayed, interleaved"].append(ratio(*medians).verdict)
    return verdicts


def name_without_delay(result: Result) -> str:
    flags = {name: value for name, value in result.configuration.flags.items() if name != "inject"}
    return msgspec.structs.replace(result.configuration, flags=flags).name


def split_blocks(items: Sequence[Any], length: int) -> list[Sequence[Any]]:
    """Return the whole blocks of this length."""
    return [items[begin : begin + length] for begin in range(0, len(items) - length + 1, length)]


def verdict_table(folders: Sequence[Path]) -> TextTable:
    """Return the table of the records below these folders; raise UsageError if there are too few runs."""
    verdicts = count_verdicts([Result((files.load(path),)) for path in files.record_files(folders)])
    if not verdicts:
        raise UsageError(f"no configuration has {2 * RUNS} runs: raise --runs")
    columns = [
        Column("configuration", lambda key: f"`{key[0]}`"),
        Column("old and new runs", lambda key: key[1], is_text=True),
        Column("pairs", lambda key: str(len(verdicts[key]))),
        Column("called slower", lambda key: str(verdicts[key].count("slower"))),
        Column("called faster", lambda key: str(verdicts[key].count("faster"))),
    ]
    return make_table(sorted(verdicts), columns)


def main(folders: Sequence[str]) -> int:
    print(render_table(verdict_table(list(map(Path, folders)))))
    return 0


if __name__ == "__main__":
    run_main(main, sys.argv[1:])
