"""Count how often a comparison is wrong: verdicts on 5 old and 5 new runs whose real difference is known."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from dataflow.analysis.comparison import Pair, without_delay
from dataflow.analysis.result import Result
from dataflow.analysis.statistics import Ratio, ratio, ratio_of_pairs
from dataflow.errors import UsageError
from dataflow.records import files
from dataflow.report.tables import Column, Section, make_table

RUNS = 5  # on each side of a pair, as in published records


def compare_equal(result: Result) -> Iterator[tuple[str, Ratio]]:
    """Yield the kind and the ratio of pairs of runs of one configuration. The pairs overlap."""
    runs = sorted(result.shown_runs, key=lambda run: (run.started_at, run.order))
    times = [median(run.seconds) for run in runs]
    for begin in range(len(times) - 2 * RUNS + 1):  # whatever run a comparison begins with
        window = times[begin : begin + 2 * RUNS]
        yield "equal, one after the other", ratio(window[RUNS:], window[:RUNS])
        yield "equal, interleaved", ratio(window[1::2], window[::2])


def compare_paired(results: Sequence[Result]) -> Iterator[tuple[str, str, Ratio]]:
    """Yield the name, the kind and the ratio of pairs of runs that were measured together."""
    paired = sorted((result for result in results if result.paired), key=lambda result: "inject" in result.name)
    for index, new in enumerate(paired):
        pairs = next(filter(None, (Pair(old, new).paired_runs for old in paired[:index])), [])
        kind, name = "delayed" if "inject" in new.name else "equal", without_delay(new).name
        for begin in range(0, len(pairs) - RUNS + 1, RUNS):
            block = pairs[begin : begin + RUNS]
            old_medians, new_medians = ([median(pair[side].seconds) for pair in block] for side in (0, 1))
            yield name, f"{kind}, paired", ratio_of_pairs(new_medians, old_medians)
            if kind == "delayed":
                yield name, "delayed, interleaved", ratio(new_medians, old_medians)


def verdict_section(folders: Sequence[Path]) -> Section:
    """Return the table of the records below these folders; raise UsageError if there are too few runs."""
    results = [Result((files.load(path),)) for path in files.record_files(folders)]
    verdicts: dict[tuple[str, str], list[str]] = defaultdict(list)
    for result in results:
        for kind, equal in compare_equal(result) if "inject" not in result.name else ():
            verdicts[result.name, kind].append(equal.verdict)
    for name, kind, paired in compare_paired(results):
        verdicts[name, kind].append(paired.verdict)
    if not verdicts:
        raise UsageError(f"no configuration has {2 * RUNS} runs: raise --runs")
    columns = [
        Column("configuration", lambda key: f"`{key[0]}`"),
        Column("old and new runs", lambda key: key[1], is_text=True),
        Column("pairs", lambda key: str(len(verdicts[key]))),
        Column("called slower", lambda key: str(verdicts[key].count("slower"))),
        Column("called faster", lambda key: str(verdicts[key].count("faster"))),
    ]
    return Section("verdicts", "", table=make_table(sorted(verdicts), columns))
