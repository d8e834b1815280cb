"""Measure configurations, and end with their comparison in words.

    python3 -m dataflow run "store refs"                                         one configuration
    python3 -m dataflow run "store refs" "graph shm --in-flight 2" --runs 5      several, interleaved
    python3 -m dataflow run --suite headline --runs 5
    python3 -m dataflow run --suite headline "store refs" "graph shm"            two configurations of a suite
    python3 -m dataflow run --flow "rollout -> trainer: tokens int64 8MB" "store refs" "graph shm"

A configuration is a runtime, a transport and flags of its own, in quotes. Other flags are for all configurations. With
--runs, all configurations are measured once, then all of them again in another order.
"""

import argparse
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from dataflow.catalogue.catalogue import suites
from dataflow.errors import RecordError, UsageError
from dataflow.measure import supervisor
from dataflow.measure.supervisor import Item, make_items
from dataflow.plan.command_line import OneLineParser, parse_with_options
from dataflow.plan.options import CAMPAIGNS, RESULTS
from dataflow.plan.plan import Plan
from dataflow.records import files
from dataflow.units import format_bytes


def parse_arguments(argv: Sequence[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Return the flags of this verb, and the flags of configurations that are given."""
    parser = OneLineParser(__doc__, "python3 -m dataflow run [CONFIGURATION ...] [flags]")
    add = parser.add_argument
    add(
        "configurations",
        nargs="*",
        metavar="CONFIGURATION",
        help="runtime, transport and flags, in quotes",
    )
    add("--suite", choices=suites(), default="", metavar="NAME", help="all configurations of a suite, or those that "
        f"are given: {', '.join(suites())}")  # fmt: skip
    add(
        "--runs",
        type=int,
        default=1,
        metavar="N",
        help="processes per configuration (default: %(default)s)",
    )
    add("--output", type=Path, metavar="PATH", help="new file for the record of one configuration, or "
        "new folder for several records and their charts (default: a new name in results/)")  # fmt: skip
    add("--against", type=Path, metavar="CHECKOUT", help="measure each configuration paired with the "
        "same one in another checkout of this project, made with git worktree add CHECKOUT COMMIT")  # fmt: skip
    add("--paired", action="store_true", help="measure two configurations in pairs of runs, one right after "
        "the other, which shows smaller differences on a machine whose speed changes")  # fmt: skip
    add("--continue", action="store_true", dest="is_continued", help="measure only the runs that an "
        "earlier call with the same flags and --output has not finished")  # fmt: skip
    add(
        "--columns",
        choices=["all"],
        help="print all columns of each table, and not the most important ones",
    )
    add("--dry-run", action="store_true", help="print what would be measured, and measure nothing")
    arguments, given = parse_with_options(parser, argv)
    check_arguments(arguments)
    return arguments, given


def check_arguments(arguments: argparse.Namespace) -> None:
    """Raise UsageError for flags of this verb that do not fit together."""
    checkout, output = arguments.against, arguments.output
    if not (arguments.suite or arguments.configurations):
        raise UsageError("give a configuration, or --suite (--help shows examples)")
    if arguments.is_continued and (checkout or not (output and output.exists())):
        raise UsageError(
            "--continue: give the --output of the earlier call. --against cannot continue"
        )
    if arguments.runs < 1:
        raise UsageError(f"--runs {arguments.runs}: give 1 or more")
    if arguments.paired and checkout:
        raise UsageError(
            "--paired measures two configurations of this checkout: leave --against out"
        )
    if checkout and not (checkout / "dataflow" / "measure" / "monitor.py").is_file():
        raise UsageError(f"--against {checkout}: there is no checkout of this project with this structure: make one "
                         f"with git worktree add {checkout} COMMIT")  # fmt: skip


def plan_items(arguments: argparse.Namespace, given: dict[str, Any]) -> tuple[list[Item], Path]:
    """Return what is measured or skipped, and where its records go; raise UsageError if all of it is skipped."""
    table, names = (
        "paired" if arguments.paired or arguments.against else "",
        arguments.configurations,
    )
    now = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    output = arguments.output or RESULTS / f"run-{now}"
    if arguments.suite:
        items = supervisor.plan_suite(names, arguments.suite, given, output, table)
    else:
        if (
            len(names) == 1 and not arguments.against
        ):  # its time is shown with a warning if something disturbs it
            given = {"allow_disturbed": True, **given}
        planned = [
            planned
            for name in names
            for planned in supervisor.plan_configuration(name, given, "", table)
        ]
        if len(planned) == 1 and not arguments.against:
            label = planned[0][0].transport.label.replace(" ", "-")
            output = arguments.output or RESULTS / f"{label}-{now}.json"
            items = [Item(planned[0], output)]
        else:
            items = make_items(planned, output)
    if all(item.skipped for item in items):
        raise UsageError(f"this machine can measure none of the configurations: {items[0].skipped}")
    return items, output


def group_items(arguments: argparse.Namespace, ready: Sequence[Item]) -> list[list[Item]]:
    """Return the items whose runs are neighbours: pairs, or one by one."""
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
    """Return each group of paired items once, then all again in another order; for one run in the given order."""
    generator = random.Random(seed)
    if runs == 1:
        return [*groups]
    ordered = [group for _ in range(runs) for group in generator.sample(groups, len(groups))]
    return [generator.sample(group, len(group)) for group in ordered]


def print_plans(items: Sequence[Item], runs: int, output: Path) -> None:
    """Print the messages, and the iterations, the memory (without Ray's own) and the time of each configuration."""
    from dataflow.report.render import (
        print_flow,
        print_table,
    )  # imports take time, and a wrong flag should not wait
    from dataflow.report.tables import Column, make_table

    for flow in {item.plan.workload.edges: item.plan.requested_flow for item in items}.values():
        print_flow(flow)
    format_duration = read_durations()
    columns = (
        Column("configuration", lambda item: item.label),
        Column("runs x iterations", lambda item: f"{runs} x {item.plan.options.iterations}"),
        Column("memory", lambda item: format_bytes(item.plan.resident_bytes)),
        Column(
            "iterations take about",
            lambda i: format_duration(i.plan, i.skipped, runs),
            is_optional=True,
        ),
        Column("skipped", lambda item: str(item.skipped or "-"), is_text=True, is_optional=True),
    )
    print_table(make_table(items, columns))
    print(f"records: {output}", flush=True)


def read_durations() -> Callable[..., str]:
    """Return a function that says how long all iterations of a plan take, the median of campaigns; "-" if skipped."""
    campaigns = files.load_all([CAMPAIGNS]) if [*CAMPAIGNS.glob("*/*.json*")] else []

    def format_duration(plan: Plan | None, skipped: object, runs: int = 1) -> str:
        if plan is None or skipped:
            return "-"
        same = [
            r
            for r in campaigns
            if (r.workload, r.configuration) == (plan.workload, plan.configuration)
        ]
        seconds = [(run.first_seconds or 0) + sum(run.warmup_seconds) + plan.options.iterations * median(run.seconds)
                   for record in same for run in record.runs if run.seconds]  # fmt: skip
        return f"{runs * median(seconds):.0f} s" if seconds else "-"

    return format_duration


def find_new_items(items: Sequence[Item], folder: Path, is_continued: bool) -> list[Item]:
    """Return the items that continue no record; raise UsageError if the folder has records of another measurement."""
    written = {
        path
        for path in folder.rglob("*.json*")
        if path.is_file() and path.suffix in (".json", ".gz")
    }
    if others := written - {item.path for item in items}:
        raise UsageError(f"--output {folder}: it has records of another measurement, such as {min(others).name}, "
                         "which would be in the same charts: give a new folder")  # fmt: skip
    earlier = [item for item in items if is_continued and item.path.exists()]
    for item in (item for item in earlier if not item.skipped):
        item.load_finished_runs()
    return [item for item in items if item not in earlier]


def show_results(arguments: argparse.Namespace, items: Sequence[Item], output: Path) -> int:
    """Print the tables, draw the charts, and compare. Return 0, or the exit code of the report."""
    from dataflow.analysis.comparison import Pair
    from dataflow.analysis.result import Result
    from dataflow.commands import compare, report
    from dataflow.report.render import MAX_COLUMNS, MORE_COLUMNS, print_end, print_sections
    from dataflow.report.sections import sections
    from dataflow.report.sentences import describe_pair

    if len(items) == 1:
        if items[0].record.runs[-1].spans:
            try:
                print_sections(sections([Result((items[0].record,))]))
            except RecordError as error:
                print(f"warning: {error}")
        print_end(
            items[0].record, items[0].saved_path, MORE_COLUMNS if arguments.columns else MAX_COLUMNS
        )
        return 0
    if arguments.against or arguments.paired:
        sides = (
            [output / "old", output / "new"] if arguments.against else [item.path for item in items]
        )
        return compare.main([*map(str, sides), "--mixed"])
    code = report.main([str(output), *(["--columns", "all"] if arguments.columns else [])])
    measured = [result for item in items if (result := Result((item.record,))).status == "ok"]
    compared = [pair for part in suites().get(arguments.suite, []) for pair in part.compare]
    for first, other in product(measured, measured):
        is_first = not arguments.suite and first.label == measured[0].label != other.label
        if (
            is_first or [first.name, other.name] in compared
        ) and first.workload.edges == other.workload.edges:
            print(describe_pair(Pair(first, other)))
    if compared:  # the sentences stand between the list of charts and this line
        print(f"chart: {min(output.glob('*.svg'), default='none')}")
    return code


def main(argv: Sequence[str]) -> int:
    """Return 0, 1 (a configuration failed) or 130 (interrupted; the runs that have finished are kept)."""
    arguments, given = parse_arguments(argv)
    items, output = plan_items(arguments, given)
    groups = group_items(arguments, [item for item in items if not item.skipped])
    items = [item for item in items if item.skipped] + [item for group in groups for item in group]
    with supervisor.new_records(
        [] if arguments.dry_run else find_new_items(items, output, arguments.is_continued)
    ):
        print_plans(items, arguments.runs, output)
        if arguments.dry_run:
            return 0
        # --continue has the same --output, and so the same order.
        codes = supervisor.measure_all(
            order_runs(groups, arguments.runs, seed=output.resolve().name)
        )
    if 130 in codes and len(items) > 1 and not arguments.against:
        print(f"to continue: the same command with --continue --output {output}")
        if not any(run.status == "ok" for item in items for run in item.record.runs):
            return 130
    return max([*codes, show_results(arguments, items, output)])
