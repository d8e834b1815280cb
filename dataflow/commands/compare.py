# SPDX-License-Identifier: Apache-2.0
"""Compare two measurements: which configurations are faster, which are slower, and which cannot be told apart.

    python3 -m dataflow compare OLD NEW                      each a record, or a folder of records
    python3 -m dataflow compare OLD NEW --fail-above 5%      exit code 1 if one is slower by more, or missing
    python3 -m dataflow compare results/campaigns NEW        whether NEW, of make campaign, confirms other boots

Measure with `dataflow run ... --runs 5` on one machine, or two versions together with `dataflow run --against`.
A run counts with the mean of its iterations, and times are geometric means of runs. A configuration is called faster
or slower if equal configurations differ as much in fewer than 1 of 100 comparisons (docs/method.md).
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from dataflow.analysis.campaigns import Row, combine, load_campaigns, of_other_boots
from dataflow.analysis.comparison import Pair, check_one_machine, find_differences, match_results
from dataflow.analysis.result import UNCOUNTED, Result, group_results
from dataflow.analysis.statistics import MIN_RUNS
from dataflow.errors import RecordError, UsageError
from dataflow.plan.command_line import VerbParser
from dataflow.records import files
from dataflow.report.campaign_tables import format_factor, format_interval
from dataflow.report.render import print_table, print_text
from dataflow.report.sentences import PAIR_COLUMNS, describe_pair
from dataflow.report.tables import Column, format_significant, make_table
from dataflow.units import format_bytes


def format_share(share: float | None) -> str:
    """Return 5.0%, or 12%; "-" for None."""
    if share is None:
        return "-"
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def describe_workload(pair: Pair) -> str:
    workload = pair.new.workload
    return f"{workload.flow}, {format_bytes(workload.bytes_per_iteration)}"


def count_runs(pair: Pair) -> str:
    return f"{len(pair.old.run_seconds)}, {len(pair.new.run_seconds)}"


COLUMNS = (
    Column("configuration", lambda pair: pair.label),
    Column("flow and bytes per iteration", describe_workload, rank=3, is_text=True),
    *PAIR_COLUMNS,
    Column("runs", count_runs, rank=2),
    Column("detectable slowdown", lambda pair: format_share(pair.ratio.detectable), rank=1),
)


def find_losses(pairs: Sequence[Pair], only_old: Sequence[Result], limit: float) -> list[str]:
    """Return a line per loss: slower by more than `limit`, failing more often, or missing. Warn of too noisy pairs."""
    worse = [pair for pair in pairs if pair.is_worse]
    lines = [f"{pair.label} fails more often: {pair.new.failure}" for pair in worse]
    lines += [f"{result.label} is missing in NEW" for result in only_old if result.ok_runs]
    for pair in pairs:
        check_counted(pair)
        if pair.is_measured and pair.old.work == pair.new.work:
            lines += find_slowdown(pair, limit)
    return lines


def check_counted(pair: Pair) -> None:
    """Raise UsageError if the runs of a side do not count, or are not ranked because they were disturbed."""
    for result in pair.sides:
        if result.status in UNCOUNTED or result.is_disturbed:
            raise UsageError(f"--fail-above: {pair.label}: {result.failure}")


def find_slowdown(pair: Pair, limit: float) -> list[str]:
    """Return a line if a pair is slower by more than `limit`; raise UsageError for too few runs.

    Warn if such a slowdown could be missed.
    """
    if pair.ratio.runs < MIN_RUNS:
        raise UsageError(
            f"--fail-above: {pair.label} has too few runs for a verdict: measure with --runs 5"
        )
    if pair.ratio.verdict == "slower" and pair.ratio.value > 1 + limit:
        return [f"{pair.label} is slower by {pair.ratio.value - 1:.1%}"]
    if (pair.ratio.detectable or 0) > limit:
        missed = format_share(pair.ratio.detectable)
        print(
            f"warning: {pair.label}: a slowdown below {missed} could be missed: give more --runs, or compare with "
            "--against",
            file=sys.stderr,
        )
    return []


def parse_share(text: str) -> float:
    """Return 0.05 for 5%; raise ArgumentTypeError for a text that is no percentage."""
    if not re.fullmatch(r"\d+(\.\d+)?%", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage: give 5%")
    return float(text[:-1]) / 100


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Return the flags of this verb; raise UsageError for a wrong one. Whether OLD and NEW exist is checked later."""
    parser = VerbParser(__doc__, "python3 -m dataflow compare OLD NEW [flags]")
    parser.add_argument("old", type=Path, metavar="OLD", help="a record, or a folder of records")
    parser.add_argument("new", type=Path, metavar="NEW", help="the same, compared with OLD")
    parser.add_argument(
        "--fail-above",
        type=parse_share,
        metavar="SHARE",
        help="exit code 1 if a configuration is missing, fails more often, or is significantly slower by more than "
        "SHARE, as 5%%",
    )
    parser.add_argument(
        "--mixed",
        action="store_true",
        help="compare records of different machines, versions or boots",
    )
    return parser.parse_all(argv)


def print_pairs(pairs: Sequence[Pair]) -> None:
    """Print the table of the measured pairs, and a sentence for each pair that has no ratio."""
    measured = [pair for pair in pairs if pair.is_measured]
    equal = [pair for pair in measured if pair.old.work == pair.new.work]
    print_table(make_table(equal, COLUMNS))
    for pair in pairs:
        if not pair.is_measured:
            reason = pair.new.failure or pair.old.failure
            print_text(
                f"{pair.label} was {pair.old.status} in OLD and is {pair.new.status} in NEW: {reason}"
            )
        elif pair not in equal:
            print_text(describe_pair(pair))


CAMPAIGN_COLUMNS = (
    Column("configuration", lambda pair: pair[1].newest.label),
    Column("baseline", lambda pair: pair[1].baseline.label, rank=1, is_text=True),
    Column("times as fast, OLD", lambda pair: format_factor(pair[0].factor)),
    Column("on another boot (95 %)", lambda pair: format_interval(pair[0].factor)),
    Column("NEW", lambda pair: format_significant(pair[1].factor.mean)),
    Column("NEW lies", lambda pair: find_place(*pair), is_text=True),
)


FLOW_LETTERS = 30  # at most; a flow that a user wrote has a line of text as its name


def describe_flow(result: Result) -> str:
    """Return the flow's name, and its bytes per iteration."""
    return f"{result.workload.flow}, {format_bytes(result.workload.bytes_per_iteration)}"


def shorten_flow(result: Result) -> str:
    """Return the beginning of the flow's name, and its bytes per iteration."""
    name = result.workload.flow
    if len(name) > FLOW_LETTERS:
        name = f"{name[: FLOW_LETTERS - 3]}..."
    return f"{name}, {format_bytes(result.workload.bytes_per_iteration)}"


def label_flows(results: Iterable[Result]) -> dict[str, str]:
    """Return a short text for each flow, by what describe_flow says; what it says itself if two would look alike."""
    shortened = {describe_flow(result): shorten_flow(result) for result in results}
    uses = Counter(shortened.values())
    return {flow: short if uses[short] == 1 else flow for flow, short in shortened.items()}


def compare_campaign(folder: Path, new: Sequence[Result]) -> None:
    """Print whether the published campaigns of other boots confirm NEW.

    Campaigns of NEW's own boot are left out: they are nearly equal to it. Raise UsageError if there are no others, or
    if none has a configuration of NEW with the same baseline.
    """
    published = load_campaigns(folder)
    others = of_other_boots(published, new)
    if not others:
        raise UsageError(
            f"all campaigns of {folder} are of NEW's boot, so they say nothing about others: name other ones"
        )
    print_campaign(combine(others), combine({"NEW": new}))
    left_out = [name for name in published if name not in others]
    if left_out:
        print_text(f"Left out of OLD, because NEW is of their boot: {', '.join(left_out)}")


def print_campaign(published: Sequence[Row], rows: Sequence[Row]) -> None:
    """Print whether each ratio of one campaign lies in the published interval, and which published ones it lacks.

    Raise UsageError if no configuration is on both sides with the same baseline.
    """
    known = by_key(published)
    mine = by_key(rows)
    both = [(known[key], row) for key, row in mine.items() if key in known]
    if not both:
        raise UsageError("no configuration is on both sides: measure NEW with make campaign")
    rows_of_both = [*known.values(), *mine.values()]
    labels = label_flows(row.newest for row in rows_of_both)
    has_several_flows = len(labels) > 1
    columns = list(CAMPAIGN_COLUMNS)
    if has_several_flows:  # a configuration has a row for each
        flow_column = Column(
            "flow", lambda pair: labels[describe_flow(pair[1].newest)], is_text=True
        )
        columns.insert(1, flow_column)
    print_table(make_table(both, columns))
    missing = []
    for key, row in known.items():
        if key not in mine:
            flow = f" ({labels[describe_flow(row.newest)]})" if has_several_flows else ""
            missing.append(f"{row.newest.label}{flow}")
    if missing:
        print_text(f"Not in NEW, with the same baseline: {', '.join(missing)}")


def by_key(rows: Sequence[Row]) -> dict[Any, Row]:
    """Return the rows that have a ratio, by configuration and baseline."""
    return {row.key: row for row in rows if row.factor.ratios and not row.is_baseline}


def find_place(published: Row, row: Row) -> str:
    """Return whether a ratio lies in the interval of the published one, and whether the code was another one."""
    if published.factor.interval is None:
        return "unknown: OLD has too few boots"
    low, high = published.factor.interval
    place = "inside" if low <= row.factor.mean <= high else "outside"
    if published.newest.code != row.newest.code:
        place += ", with other code"
    return place


def is_folder_of_campaigns(folder: Path, results: Sequence[Result]) -> bool:
    """Return whether a folder has one folder per campaign."""
    records = chain.from_iterable(result.records for result in results)
    has_folders = any(path.is_dir() for path in folder.glob("*"))
    return has_folders and all(record.suite == "campaign" for record in records)


def print_rest(
    pairs: Sequence[Pair], only_old: Sequence[Result], only_new: Sequence[Result]
) -> None:
    """Print what is on one side only, and how the machines and versions differ."""
    for side, results in (("OLD", only_old), ("NEW", only_new)):
        if results:
            print_text(f"Only in {side}: {', '.join(result.label for result in results)}")
    differences: dict[str, None] = {}
    for pair in pairs:
        if pair.is_measured:
            old = pair.old.environments[0]
            new = pair.new.environments[0]
            differences |= dict.fromkeys(find_differences(old, new))
    print_text(*differences)


def check_side(path: Path, results: Sequence[Result]) -> None:
    """Raise RecordError, which names this side, if it is of several machines in itself."""
    try:
        check_one_machine(results)
    except RecordError as error:
        raise RecordError(f"in {path} alone, {error}") from None


def main(argv: Sequence[str]) -> int:
    """Print the comparison. Return 0, or 1 if --fail-above finds a loss.

    Raise RecordError for records that cannot be read, that do not fit each other or, without --mixed, that are of
    different machines, versions or boots, which a folder of campaigns may have. Raise UsageError if --fail-above cannot
    judge a configuration, or campaigns cannot judge NEW.
    """
    arguments = parse_arguments(argv)
    limit = arguments.fail_above
    old = group_results(files.load_all([arguments.old]))
    new = group_results(files.load_all([arguments.new]))
    if is_folder_of_campaigns(arguments.old, [*old, *new]):
        if limit is not None:
            raise UsageError("--fail-above compares two measurements: leave it out for campaigns")
        compare_campaign(arguments.old, new)
        return 0
    if not arguments.mixed:
        check_side(arguments.old, old)
        check_side(arguments.new, new)
        check_one_machine([*old, *new])
    pairs, only_old, only_new = match_results(old, new)
    losses = [] if limit is None else find_losses(pairs, only_old, limit)
    print_pairs(pairs)
    print_rest(pairs, only_old, only_new)
    for line in losses:
        print(f"error: {line}", file=sys.stderr)
    return 1 if losses else 0
