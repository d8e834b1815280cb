"""Compare the rows of two measurements: which are faster, which are slower, and of which it cannot be told.

    python3 compare_results.py OLD NEW                      each a record, or a folder of records
    python3 compare_results.py OLD NEW --markdown           or --csv, --json
    python3 compare_results.py OLD NEW --fail-above 5%      exit code 1 where a row is slower by more than that

Measure both with `benchmark.py ... --runs 5` on one machine. A row's time is the geometric mean of its runs' medians,
the interval that of Welch's t-test between runs, and a row is called faster or slower where rows that are alike would
come out so far apart in fewer than 1 of 100 comparisons (docs/statistics.md). What was not measured alike is refused.
"""

import argparse
import json
import sys
from pathlib import Path

from common.analysis.comparison import Comparison, Pair, compare
from common.analysis.results import Result, results_of
from common.analysis.statistics import MINIMUM_RUNS
from common.errors import RecordError, SuiteError, UsageError
from common.plan.command_line import OneLineParser
from common.record import files
from common.text.pipe import outlast_reader
from common.text.screen import print_table
from common.text.tables import Column, csv_table, markdown_table, milliseconds
from common.units import format_bytes


def load(path: Path) -> list[Result]:
    """The rows of one side.

    Raises:
        RecordError: it holds none, or one that cannot be read.
    """
    results = results_of(map(files.load, files.below([path])))
    if not results:
        raise RecordError(f"{path} holds no record with a run: name a record that a script wrote, or their folder")
    return results


def columns(pairs: list[Pair]) -> list[Column]:
    """Flow and bytes are said where they tell rows apart."""
    several = len({_moved(pair.new) for pair in pairs}) > 1

    def interval(pair: Pair) -> str:
        low, high = pair.ratio.low, pair.ratio.high
        return "-" if low is None or high is None else f"{low:.3f} to {high:.3f}"

    return [
        Column("row", lambda pair: pair.new.name + f", {_moved(pair.new)}" * several),
        Column("old ms", lambda pair: milliseconds(pair.old_seconds)),
        Column("new ms", lambda pair: milliseconds(pair.new_seconds)),
        Column("new / old", lambda pair: f"{pair.ratio.value:.3f}"),
        Column("95 % interval", interval, 1),
        Column("runs", lambda pair: f"{len(pair.old.seconds_by_run)}, {len(pair.new.seconds_by_run)}", 2),
        Column("verdict", lambda pair: pair.ratio.verdict, words=True),
    ]


def _moved(result: Result) -> str:
    return f"{result.record.row.flow}, {format_bytes(result.record.bytes_per_trip)}"


def notes(found: Comparison) -> list[str]:
    """What the table does not say."""
    count, mean = len(found.pairs), found.geometric_mean
    lines = [f"Geometric mean of new / old over {count} row{'s' * (count > 1)}: {mean:.3f}"] if count else []
    if found.undecided:
        lines.append(f"{too_few(found)}: measure with --runs 5")
    for what, results in (("Only in OLD", found.only_old), ("Only in NEW", found.only_new)):
        lines += [f"{what}: {', '.join(result.name for result in results)}"] if results else []
    lines += [f"{result.name} was ok in OLD and is not in NEW: {result.failure}" for result in found.broken]
    return (
        lines + worse(found) + [f"{result.name} has no numbers in OLD: {result.failure}" for result in found.unmeasured]
    )


def too_few(found: Comparison) -> str:
    return f"{len(found.undecided)} of {len(found.pairs)} rows have fewer than {MINIMUM_RUNS} runs, so no verdict"


def as_json(found: Comparison) -> str:
    """Times in seconds, ratios new / old, unrounded."""
    rows = [
        {
            "row": pair.new.name, "flow": pair.new.record.row.flow, "bytes": pair.new.record.bytes_per_trip,
            "old_seconds": pair.old_seconds, "new_seconds": pair.new_seconds,
            "old_runs": len(pair.old.seconds_by_run), "new_runs": len(pair.new.seconds_by_run),
            "ratio": pair.ratio.value, "low": pair.ratio.low, "high": pair.ratio.high, "p": pair.ratio.p,
            "verdict": pair.ratio.verdict,
        }
        for pair in found.pairs
    ]  # fmt: skip
    others = {
        name: [result.name for result in getattr(found, name)]
        for name in ("only_old", "only_new", "broken", "unmeasured")
    }
    mean = found.geometric_mean if found.pairs else None
    return json.dumps({"rows": rows, "geometric_mean": mean, **others}, indent=1)


def slower(found: Comparison, limit: float) -> list[str]:
    """The rows that are slower beyond luck, and by more than this share; and those that are broken.

    Raises:
        UsageError: a row has too few runs to tell.
    """
    if found.undecided:
        raise UsageError(f"--fail-above: {too_few(found)}: measure with --runs 5")
    beyond = [pair for pair in found.pairs if pair.ratio.verdict == "slower" and pair.ratio.value > 1 + limit]
    named = [f"{pair.new.name} is slower by {pair.ratio.value - 1:.1%}" for pair in beyond]
    return named + [f"{result.name} is {result.status}" for result in found.broken] + worse(found)


def worse(found: Comparison) -> list[str]:
    """Rows that are ok on both sides, of which more runs failed in NEW."""

    def failed(result: Result) -> int:
        return sum(run.status == "failed" for run in result.runs)

    pairs = [pair for pair in found.pairs if failed(pair.new) > failed(pair.old)]
    return [f"{pair.new.name}: more runs failed than before: {pair.new.failure}" for pair in pairs]


def percent(text: str) -> float:
    try:
        if not text.endswith("%") or not 0 <= (share := float(text[:-1]) / 100) < float("inf"):
            raise ValueError
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no share: give 5%, say") from None
    return share


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, metavar="OLD", help="a record, or a folder of records")
    parser.add_argument("new", type=Path, metavar="NEW", help="what is compared with it")
    form = parser.add_mutually_exclusive_group()
    for name in ("markdown", "csv", "json"):
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name)
    parser.add_argument("--fail-above", type=percent, metavar="SHARE", help="exit code 1 where a row is slower beyond "
                        "luck and by more than this (5%%, say), or no longer ok; too few runs are refused")  # fmt: skip
    parser.add_argument("--mixed", action="store_true", help="compare unlike machines and versions all the same")
    return parser.parse_all(argv)


def main(argv: list[str] | None = None) -> int:
    """Exit code 0, 1 (--fail-above), or 2 with one line on what to do."""
    try:
        arguments = parse(argv)
        found = compare(load(arguments.old), load(arguments.new), arguments.mixed)
        beyond = [] if arguments.fail_above is None else slower(found, arguments.fail_above)
    except SuiteError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if arguments.form == "json":
        print(as_json(found))
    elif arguments.form == "csv":
        print(csv_table(found.pairs, columns(found.pairs)))
        print("\n".join(notes(found)), file=sys.stderr)  # a spreadsheet takes rows alone
    elif arguments.form == "markdown":
        print("\n\n".join([markdown_table(found.pairs, columns(found.pairs)), *notes(found)]))
    else:
        print_table(found.pairs, columns(found.pairs))
        print("\n".join(notes(found)))
    for line in beyond:
        print(f"error: {line}", file=sys.stderr)
    return int(bool(beyond))


if __name__ == "__main__":
    outlast_reader()
    sys.exit(main())
