"""Compare two measurements: which configurations are faster, which are slower, and which cannot be told apart.

    python3 -m dataflow compare OLD NEW                      each a record, or a folder of records
    python3 -m dataflow compare OLD NEW --fail-above 5%      exit code 1 if one is slower by more, or missing
    python3 -m dataflow compare results/campaigns NEW        whether NEW, of make campaign, confirms what is published

Measure with `dataflow run ... --runs 5` on one machine, or two versions together with `dataflow run --against`.
Times are geometric means of the runs' medians. A configuration is called faster or slower if equal configurations
differ as much in fewer than 1 of 100 comparisons (docs/method.md).
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from dataflow.analysis.campaigns import Row, combine, load_campaigns
from dataflow.analysis.comparison import Pair, check_one_machine, find_differences, match_results
from dataflow.analysis.result import UNCOUNTED, Result, group_results
from dataflow.analysis.statistics import MIN_RUNS
from dataflow.errors import UsageError
from dataflow.plan.command_line import OneLineParser
from dataflow.records import files
from dataflow.report.campaign_tables import format_factor, format_interval
from dataflow.report.render import print_table
from dataflow.report.sentences import PAIR_COLUMNS, describe_pair
from dataflow.report.tables import Column, format_significant, make_table
from dataflow.units import format_bytes


def format_share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


COLUMNS = (
    Column("configuration", lambda pair: pair.label),
    Column("flow and bytes per iteration", lambda pair: (
        f"{pair.new.workload.flow}, {format_bytes(pair.new.workload.bytes_per_iteration)}"), 3, is_text=True),
    *PAIR_COLUMNS,
    Column("runs", lambda pair: f"{len(pair.old.run_seconds)}, {len(pair.new.run_seconds)}", 2),
    Column("detectable slowdown", lambda pair: format_share(pair.ratio.detectable), 1),
)  # fmt: skip


def find_losses(pairs: Sequence[Pair], only_old: Sequence[Result], limit: float) -> list[str]:
    """Return a line per loss: slower by more than `limit`, failing more often, or missing. Warn of too noisy pairs."""
    lines = [
        f"{pair.label} fails more often: {pair.new.failure}" for pair in pairs if pair.is_worse
    ]
    lines += [f"{result.label} is missing in NEW" for result in only_old if result.ok_runs]
    for pair in pairs:
        for result in pair.sides:
            if result.status in UNCOUNTED:
                raise UsageError(f"--fail-above: {pair.label}: {result.failure}")
        if not pair.is_measured or pair.old.work != pair.new.work:
            continue
        if pair.ratio.runs < MIN_RUNS:
            raise UsageError(
                f"--fail-above: {pair.label} has too few runs for a verdict: measure with --runs 5"
            )
        if pair.ratio.verdict == "slower" and pair.ratio.value > 1 + limit:
            lines.append(f"{pair.label} is slower by {pair.ratio.value - 1:.1%}")
        elif (pair.ratio.detectable or 0) > limit:
            print(f"warning: {pair.label}: a slowdown below {format_share(pair.ratio.detectable)} could be missed: "
                  "give more --runs, or compare with --against", file=sys.stderr)  # fmt: skip
    return lines


def parse_share(text: str) -> float:
    """Return 0.05 for 5%."""
    if not re.fullmatch(r"\d+(\.\d+)?%", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage: give 5%")
    return float(text[:-1]) / 100


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = OneLineParser(__doc__, "python3 -m dataflow compare OLD NEW [flags]")
    parser.add_argument("old", type=Path, metavar="OLD", help="a record, or a folder of records")
    parser.add_argument("new", type=Path, metavar="NEW", help="the same, compared with OLD")
    parser.add_argument("--fail-above", type=parse_share, metavar="SHARE", help="exit code 1 if a configuration is "
                        "missing, fails more often, or is significantly slower by more than SHARE, as 5%%")  # fmt: skip
    parser.add_argument(
        "--mixed",
        action="store_true",
        help="compare records of different machines, versions or boots",
    )
    return parser.parse_all(argv)


def print_pairs(pairs: Sequence[Pair]) -> None:
    """Print the table of the measured pairs, and a sentence for each pair that has no ratio."""
    equal = [pair for pair in pairs if pair.is_measured and pair.old.work == pair.new.work]
    print_table(make_table(equal, COLUMNS))
    for pair in pairs:
        if not pair.is_measured:
            print(f"{pair.label} was {pair.old.status} in OLD and is {pair.new.status} in NEW: "
                  f"{pair.new.failure or pair.old.failure}")  # fmt: skip
        elif pair not in equal:
            print(describe_pair(pair))


def print_campaign(published: Sequence[Row], rows: Sequence[Row]) -> None:
    """Print for each ratio of one campaign whether it lies in the interval of those that are published."""
    known, mine = (
        {row.key: row for row in side if row.factor.ratios and not row.is_baseline}
        for side in (published, rows)
    )
    both = [(known[key], row) for key, row in mine.items() if key in known]
    if not both:
        raise UsageError("no configuration is on both sides: measure NEW with make campaign")
    columns = (
        Column("configuration", lambda pair: pair[1].newest.label),
        Column("baseline", lambda pair: pair[1].baseline.label, is_text=True),
        Column("times as fast, OLD", lambda pair: format_factor(pair[0].factor)),
        Column("on another boot (95 %)", lambda pair: format_interval(pair[0].factor)),
        Column("NEW", lambda pair: format_significant(pair[1].factor.mean)),
        Column("NEW lies", lambda pair: find_place(*pair), is_text=True),
    )
    print_table(make_table(both, columns))
    if missing := [row.newest.label for key, row in known.items() if key not in mine]:
        print(f"Not in NEW, with the same baseline: {', '.join(missing)}")


def find_place(published: Row, row: Row) -> str:
    if published.factor.interval is None:
        return "unknown: OLD has too few boots"
    low, high = published.factor.interval
    other_code = ", with other code" if published.newest.code != row.newest.code else ""
    return ("inside" if low <= row.factor.mean <= high else "outside") + other_code


def main(argv: Sequence[str]) -> int:
    """Print the comparison. Return 0, or 1 if --fail-above finds a loss."""
    arguments = parse_arguments(argv)
    old, new = (group_results(files.load_all([path])) for path in (arguments.old, arguments.new))
    is_of_campaigns = all(record.suite == "campaign" for result in old for record in result.records)
    if is_of_campaigns and any(path.is_dir() for path in arguments.old.glob("*")):
        if arguments.fail_above is not None:
            raise UsageError("--fail-above compares two measurements: leave it out for campaigns")
        print_campaign(combine(load_campaigns(arguments.old, arguments.new)), combine({"NEW": new}))
        return 0
    if not arguments.mixed:
        check_one_machine([*old, *new])
    pairs, only_old, only_new = match_results(old, new)
    losses = (
        [] if arguments.fail_above is None else find_losses(pairs, only_old, arguments.fail_above)
    )
    print_pairs(pairs)
    for side, results in (("OLD", only_old), ("NEW", only_new)):
        if results:
            print(f"Only in {side}: {', '.join(result.label for result in results)}")
    machines = [
        (pair.old.environments[0], pair.new.environments[0]) for pair in pairs if pair.is_measured
    ]
    print(
        *dict.fromkeys(line for machine in machines for line in find_differences(*machine)),
        sep="\n",
    )
    for line in losses:
        print(f"error: {line}", file=sys.stderr)
    return 1 if losses else 0
