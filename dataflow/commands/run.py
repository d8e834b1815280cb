# SPDX-License-Identifier: Apache-2.0
"""Measure configurations, and end with their comparison in words.

    python3 -m dataflow run "store refs"                                         one configuration
    python3 -m dataflow run "store refs" "graph shm --in-flight 2" --runs 5      several, interleaved
    python3 -m dataflow run --suite quick
    python3 -m dataflow run --suite quick "store refs" "graph shm"               two configurations of a suite
    python3 -m dataflow run --flow "rollout -> trainer: tokens int64 8MB" "store refs" "graph shm"

A configuration is a runtime, a transport and flags of its own, in quotes. Other flags are for all configurations. With
--runs, all configurations are measured once, then all of them again in another order.

Exit code: 0 if every configuration has a result, apart from skipped ones; 1 if a run failed or a configuration has no
result, because its runs failed, were disturbed, had not settled or are impossible; 2 for a wrong flag; 130 if it was
interrupted.
"""

import argparse
import os
import random
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from common.packages import describe_missing, find_missing
from common.record_files import find_files
from dataflow.catalogue.catalogue import TRANSPORTS, suites
from dataflow.errors import RecordError, UsageError
from dataflow.flows.changing_sizes import count_sizes
from dataflow.measure import supervisor
from dataflow.measure.supervisor import Item, make_items
from dataflow.plan.command_line import (
    Planned,
    VerbParser,
    parse_with_options,
    plan_configuration,
)
from dataflow.plan.durations import Durations
from dataflow.plan.options import CAMPAIGNS, RESULTS
from dataflow.plan.plan import Plan
from dataflow.records.folder import RecordFolder
from dataflow.units import format_bytes


def parse_arguments(argv: Sequence[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Return the flags of this verb, and the flags of configurations that are given."""
    arguments, given = parse_with_options(make_parser(), argv)
    check_arguments(arguments)
    return arguments, given


def says_what_to_measure(argv: Sequence[str]) -> bool:
    """Return whether the words of this verb have a configuration or a suite."""
    arguments, _ = parse_with_options(make_parser(), argv)
    return bool(arguments.configurations or arguments.suite)


def make_parser() -> VerbParser:
    parser = VerbParser(__doc__, "python3 -m dataflow run [CONFIGURATION ...] [flags]")
    add_selection(parser)
    add_procedure(parser)
    return parser


def add_selection(parser: VerbParser) -> None:
    """Add the flags that say what is measured, and where its records go."""
    add = parser.add_argument
    add(
        "configurations",
        nargs="*",
        metavar="CONFIGURATION",
        help="runtime, transport and flags, in quotes",
    )
    add(
        "--suite",
        choices=suites(),
        default="",
        metavar="NAME",
        help="all configurations of a suite, or those that are given: " + ", ".join(suites()),
    )
    add(
        "--runs",
        type=int,
        default=1,
        metavar="N",
        help="processes per configuration (default: %(default)s)",
    )
    add(
        "--output",
        type=Path,
        metavar="PATH",
        help="new file for the record of one configuration, or new folder for several records and "
        "their charts; those of a suite are one file at the end (default: a new name in results/)",
    )


def add_procedure(parser: VerbParser) -> None:
    """Add the flags that say in which order it is measured, and what is printed."""
    add = parser.add_argument
    add(
        "--against",
        type=Path,
        metavar="CHECKOUT",
        help="measure each configuration paired with the same one in another checkout of this "
        "project, made with git worktree add CHECKOUT COMMIT",
    )
    add(
        "--paired",
        action="store_true",
        help="measure two configurations in pairs of runs, one right after the other, which shows "
        "smaller differences on a machine whose speed changes",
    )
    add(
        "--continue",
        action="store_true",
        dest="is_continued",
        help="measure only the runs that an earlier call with the same flags and --output has not "
        "finished",
    )
    add(
        "--columns",
        choices=["all"],
        help="print all columns of each table, and not the most important ones",
    )
    add("--dry-run", action="store_true", help="print what would be measured, and measure nothing")


def check_arguments(arguments: argparse.Namespace) -> None:
    """Raise UsageError for flags of this verb that do not fit together."""
    check_quotes(arguments.configurations)
    if not (arguments.suite or arguments.configurations):
        raise UsageError("give a configuration, or --suite (--help shows examples)")
    if arguments.is_continued:
        check_continued(arguments)
    if arguments.runs < 1:
        raise UsageError(f"--runs {arguments.runs}: give 1 or more")
    checkout = arguments.against
    if arguments.paired and checkout:
        raise UsageError(
            "--paired measures two configurations of this checkout: leave --against out"
        )
    if checkout and not (checkout / "dataflow" / "measure" / "monitor.py").is_file():
        raise UsageError(
            f"--against {checkout}: there is no checkout of this project with this structure: "
            f"make one with git worktree add {checkout} COMMIT"
        )


def check_continued(arguments: argparse.Namespace) -> None:
    """Raise UsageError if there is no earlier call that --continue can continue."""
    if arguments.against:
        raise UsageError(
            "--continue: a measurement with --against cannot be continued: leave it out"
        )
    if arguments.output is None or not arguments.output.exists():
        raise UsageError("--continue: give the --output of the earlier call")


def check_quotes(configurations: Sequence[str]) -> None:
    """Raise UsageError if the shell has taken apart a flow or a configuration, because it had no quotes."""
    if "-" in configurations:  # of ->; the shell has written to the file that > names
        raise UsageError(
            "'-' is no configuration: the flow must be in quotes: --flow \"rollout -> trainer: 12MB\""
        )
    for words in pairwise(configurations):
        meant = " ".join(words)
        if meant in TRANSPORTS:
            raise UsageError(f'{meant}: did you mean "{meant}" in quotes?')


def plan_items(arguments: argparse.Namespace, given: dict[str, Any]) -> tuple[list[Item], Path]:
    """Return what is measured or skipped, and where its records go.

    Raise UsageError if all of it is skipped, if a flag or a name is wrong, if --output does not fit the number of
    records or, outside of a suite, if memory is too small. Records that are there already are found later.
    """
    is_paired = arguments.paired or arguments.against
    table = "paired" if is_paired else ""
    names = arguments.configurations
    now = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    output = arguments.output or RESULTS / f"run-{now}"
    if arguments.suite:
        items = supervisor.plan_suite(names, arguments.suite, given, folder=output, table=table)
    else:
        planned = plan_configurations(arguments, given, table)
        if len(planned) == 1 and not arguments.against:
            plan, _ = planned[0]
            label = plan.transport.label.replace(" ", "-")
            output = arguments.output or RESULTS / f"{label}-{now}.json"
            items = [Item(planned[0], output)]
        else:
            items = make_items(planned, output)
    if all(item.skipped for item in items):
        raise UsageError(f"this machine can measure none of the configurations: {items[0].skipped}")
    check_output(output, len(items), arguments)
    return items, output


def plan_configurations(
    arguments: argparse.Namespace, given: dict[str, Any], table: str
) -> list[Planned]:
    """Return the plans of the configurations that are given; with --sweep, one per value."""
    names = arguments.configurations
    if len(names) == 1 and not arguments.against:
        # Its time is shown, with a warning if something disturbs it.
        given = {"allow_disturbed": True, **given}
    planned: list[Planned] = []
    for name in names:
        planned += plan_configuration(name, given, table)
    return planned


def check_output(output: Path, count: int, arguments: argparse.Namespace) -> None:
    """Raise UsageError if --output is a folder for one configuration, or a file for several."""
    is_one_file = count == 1 and not arguments.suite and not arguments.against
    if is_one_file and output.is_dir():
        raise UsageError(
            f"--output {output} is a folder, and one configuration is written into a file: "
            f"give {output / 'record.json'}"
        )
    if not is_one_file and output.exists() and not output.is_dir():
        raise UsageError(
            f"--output {output} exists and is no folder, which several records need: give a new name"
        )


def group_items(arguments: argparse.Namespace, ready: Sequence[Item]) -> list[list[Item]]:
    """Return the items whose runs are neighbours: pairs, or one by one.

    Raise UsageError if --paired has another number of items than two, or two with different messages.
    """
    if arguments.paired:
        if len(ready) != 2:
            raise UsageError(
                "--paired: give two configurations that this machine can measure (--dry-run)"
            )
        if len({item.plan.workload.edges for item in ready}) > 1:
            raise UsageError(
                "--paired compares times of equal messages: give both the same --flow and sizes"
            )
        return [[*ready]]
    if arguments.against:
        return [supervisor.pair_with_checkout(item, arguments.against) for item in ready]
    return [[item] for item in ready]


def order_runs(groups: Sequence[list[Item]], runs: int, seed: str) -> list[list[Item]]:
    """Return each group `runs` times: all of them once, then all again in another order. Pairs are shuffled, too.

    One run keeps the given order. Equal seeds give equal orders, which --continue needs.
    """
    generator = random.Random(seed)
    if runs == 1:
        return [*groups]
    ordered: list[list[Item]] = []
    for _ in range(runs):
        ordered += generator.sample(groups, len(groups))
    return [generator.sample(group, len(group)) for group in ordered]


def print_plans(
    items: Sequence[Item], remaining: Sequence[Plan], arguments: argparse.Namespace, output: Path
) -> None:
    """Print the messages, what is measured of each configuration, the expected time if it is known, and the output.

    The memory is without Ray's own. `remaining` has the plan of each run that is not measured yet. Raise RecordError if
    a record of the published campaigns, which tell the times, cannot be read.
    """
    # Imports take time, and a wrong flag should not wait.
    from dataflow.report.render import print_flow, print_table, print_text
    from dataflow.report.tables import Column, make_table

    plans = {item.plan.workload.messages: item.plan for item in items}
    for plan in plans.values():
        print_flow(plan.requested_flow)
        if plan.options.changing_sizes:
            print_text(describe_sizes(plan))
    durations = read_durations()
    runs = arguments.runs
    columns = (
        Column("configuration", lambda item: item.label),
        Column("runs x iterations", lambda item: f"{runs} x {iterations_of(item)}", rank=1),
        Column("memory", lambda item: format_bytes(item.plan.memory_bytes), rank=2),
        Column(
            "iterations take about",
            lambda item: format_iterations(durations, item.plan, item.skipped, runs),
            rank=2,
            is_optional=True,
        ),
    )
    print_table(make_table(items, columns))
    for item in items:
        if item.skipped:
            print_text(f"skipped: {item.label}: {item.skipped}")
    if total := durations.describe_total(remaining):
        print_text(total)
    if len(items) > 1 or arguments.dry_run:  # otherwise, the end of the run shows the path
        print(f"records: {output}")
    sys.stdout.flush()


def iterations_of(item: Item) -> int:
    return item.plan.options.iterations


def describe_sizes(plan: Plan) -> str:
    """Return how much the sizes of messages change from iteration to iteration."""
    count = count_sizes(plan.options.iterations)
    shares = [plan.relative_bytes(range(number, number + 1)) for number in range(count)]
    sizes = "1 size" if count == 1 else f"{count} sizes in turn"
    return f"--changing-sizes: {sizes}, from {min(shares):.2g} to {max(shares):.2g} times the ones above"


def read_durations() -> Durations:
    """Return how long the runs of the published campaigns took."""
    return Durations(CAMPAIGNS)


def format_iterations(
    durations: Durations, plan: Plan | None, skipped: object, runs: int = 1
) -> str:
    """Return how long all iterations of these runs take in seconds; "-" if it is not known or the plan is skipped."""
    seconds = None if plan is None or skipped else durations.iterations_seconds(plan)
    return "-" if seconds is None else f"{runs * seconds:.0f} s"


def continue_records(
    items: Sequence[Item], folder: RecordFolder, is_continued: bool
) -> Sequence[Item]:
    """Give items the finished runs that the folder has of them (--continue), and return those that it has no record of.

    Without `is_continued`, return all items; `new_records` rejects those whose files exist. Raise UsageError if the
    folder has records of another measurement, if it has an archive and `is_continued` is false, or if a record was made
    with other flags, on another machine or by another commit, and RecordError if it cannot be read.
    """
    others = {*find_files(folder.path)} - {item.path for item in items} - {folder.archive}
    if others:
        raise UsageError(
            f"--output {folder.path}: it has records of another measurement, such as "
            f"{min(others).name}, which would be in the same charts: give a new folder"
        )
    if not is_continued:
        folder.require_new()
        return items
    earlier = folder.load_earlier()
    for item in items:
        if item.path in earlier and not item.skipped:
            item.keep_finished_runs(earlier[item.path])
    return [item for item in items if item.path not in earlier]


def show_results(arguments: argparse.Namespace, items: Sequence[Item], output: Path) -> int:
    """Print the tables, draw the charts, and compare. Return 0, or the exit code of the report or comparison.

    Return 1 if all records had to be saved elsewhere. Raise RecordError if the charts cannot be written.
    """
    if len(items) == 1:
        show_record(items[0], has_all_columns=bool(arguments.columns))
        return 0
    from dataflow.commands import compare, report  # they import matplotlib

    if not any(item.saved_path.is_relative_to(output) for item in items):
        return 1  # the records are elsewhere, which was printed
    if arguments.against:
        return compare.main([str(output / "old"), str(output / "new"), "--mixed"])
    if arguments.paired:
        return compare.main([*(str(item.path) for item in items), "--mixed"])
    columns = ["--columns", "all"] if arguments.columns else []
    code = report.main([str(output), *columns])
    print_comparisons(arguments.suite, items)
    return code


def show_record(item: Item, has_all_columns: bool) -> None:
    """Print the tables of a single configuration."""
    from dataflow.analysis.result import Result
    from dataflow.report.render import MAX_COLUMNS, MORE_COLUMNS, print_end, print_sections

    if item.record.runs[-1].spans:
        # It imports matplotlib, which takes time, and prints a warning for a user without a home.
        from dataflow.report.sections import sections

        try:
            print_sections(sections([Result((item.record,))]))
        except RecordError as error:
            print(f"warning: {error}")
    print_end(item.record, item.saved_path, MORE_COLUMNS if has_all_columns else MAX_COLUMNS)


def print_comparisons(suite: str, items: Sequence[Item]) -> None:
    """Print one sentence per pair: those that a suite names or, without a suite, each configuration and the first."""
    from dataflow.analysis.result import Result
    from dataflow.report.render import print_text
    from dataflow.report.sentences import compare_named, compare_with_first

    # Skipped configurations are first in `items`, and the names of the files are in the given order.
    ordered = sorted(items, key=lambda item: item.path.name)
    results = [Result((item.record,)) for item in ordered]
    if not suite:
        print_text(*compare_with_first(results))
        return
    named = [*chain.from_iterable(part.compare for part in suites()[suite])]
    print_text(*compare_named(results, named))


def print_continuation(arguments: argparse.Namespace, output: Path) -> None:
    """Print the command that measures the rest of an interrupted measurement."""
    if arguments.is_continued:
        print("to continue: the same command again")
        return
    print(f"to continue: the same command with --continue --output {output}")
    if command := os.environ.get("DATA_FLOW_MAKE"):  # which the Makefile sets
        print(f"with make:   {command.replace('OUTPUT', str(output))}")


def warn_of_missing_packages() -> None:
    """Print a line if a package is not installed without which the tables and charts of this run fail at its end."""
    for name in find_missing("matplotlib", "scipy"):
        warning = f"there will be records, but no tables and charts: {describe_missing(name)}"
        print(f"warning: {warning}", file=sys.stderr)


def find_exit_code(codes: Sequence[int], measured: Sequence[Item], report_code: int) -> int:
    """Return the exit code: that of an interrupt, else 1 if a run failed or a configuration has no result, else 0."""
    from dataflow.analysis.result import Result

    has_results = all(Result((item.record,)).status == "ok" for item in measured)
    return max([*codes, report_code, 0 if has_results else 1])


def main(argv: Sequence[str]) -> int:
    """Measure, and return the exit code that --help explains. The runs that have finished are kept in any case.

    It waits until other measurements on this machine have ended. Raise UsageError, before the first run, if it cannot
    be measured as it was asked for, and RecordError if records cannot be read or written.
    """
    arguments, given = parse_arguments(argv)
    items, output = plan_items(arguments, given)
    groups = group_items(arguments, [item for item in items if not item.skipped])
    measured = [*chain.from_iterable(groups)]
    items = [item for item in items if item.skipped] + measured
    is_dry = arguments.dry_run
    is_pairwise = arguments.paired or arguments.against
    folder = RecordFolder(output, items, is_archived=bool(arguments.suite) and not is_pairwise)
    new_items = [] if is_dry else continue_records(items, folder, arguments.is_continued)
    with supervisor.new_records(new_items):
        # --continue has the same --output, and so the same order.
        ordered = order_runs(groups, arguments.runs, seed=output.resolve().name)
        remaining = supervisor.find_remaining(supervisor.schedule_runs(ordered))
        print_plans(items, [run.item.plan for run in remaining], arguments, output)
        if is_dry:
            return 0
        if len(items) > 1:
            warn_of_missing_packages()
        codes = supervisor.measure_all(ordered, folder)
    if 130 in codes and len(items) > 1 and not arguments.against:
        print_continuation(arguments, output)
        runs = chain.from_iterable(item.record.runs for item in items)
        if not any(run.status == "ok" for run in runs):
            return 130
    report_code = show_results(arguments, items, output)
    return find_exit_code(codes, measured, report_code)
