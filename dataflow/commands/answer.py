# SPDX-License-Identifier: Apache-2.0
"""Rank the configurations that were measured with exactly this flow, these sizes and these flags. Nothing is measured.

    python3 -m dataflow answer --any-machine
    python3 -m dataflow answer --flow weights --model gpt2 --any-machine

The flags of `run` name the workload. Messages of several fields may be packed, and weights may be sent in several
messages. Only records of one start of one machine are ranked together; of equal measurements the newest counts. If no
record has the workload, the command that measures it is printed.
"""

import argparse
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from common.record_files import find_newest
from dataflow.catalogue.catalogue import TRANSPORTS, VARIANTS
from dataflow.commands.list import plan_variant
from dataflow.errors import UsageError
from dataflow.flows.catalogue import build_flow, flag_name
from dataflow.plan.command_line import VerbParser, make_options, parse_with_options
from dataflow.plan.options import CAMPAIGNS, RESULTS
from dataflow.plan.plan import Plan
from dataflow.records import files
from dataflow.records.machine import MACHINE_KEYS, describe_environment
from dataflow.units import format_bytes


def find_records() -> list[Path]:
    """Return the published records, the campaigns, and the newest own ones. Other files in results/ are no records."""
    published = [folder for folder in (RESULTS / "published", CAMPAIGNS) if folder.exists()]
    return [*published, *find_newest(RESULTS)]


def parse_command(argv: Sequence[str]) -> tuple[argparse.Namespace, dict[str, Any], Plan]:
    """Return this verb's own flags, those of the workload, and a plan of it; raise UsageError for wrong ones."""
    parser = VerbParser(__doc__, "python3 -m dataflow answer [flags]")
    add = parser.add_argument
    add(
        "--records",
        type=Path,
        nargs="+",
        default=find_records(),
        help="records, or folders of records (default: those that are published, those of "
        "campaigns, and your newest in results/)",
    )
    add(
        "--any-machine",
        action="store_true",
        help="use the records of the machine that has most of them",
    )
    add(
        "--columns",
        choices=["all"],
        help="print all columns of the table, and not the most important ones",
    )
    arguments, given = parse_with_options(parser, argv)
    transport = TRANSPORTS["store refs"]  # any one: records of all of them are ranked
    options, *others = make_options(transport, given)
    if others:
        raise UsageError(
            "--sweep: leave it out, and give one workload, to compare all transports of it"
        )
    try:
        flow = build_flow(options.flow, options.sizes, options.message)
    except ValueError as error:
        raise UsageError(str(error)) from None
    # Whether the flags fit each other or this machine is not checked: nothing is measured.
    return (
        arguments,
        given,
        Plan(transport, options, flow, options.device.replace("auto", "cpu")),
    )


def start_of_machine(environment: Mapping[str, Any]) -> str:
    """Return a text that is equal for records of equal versions since one start of a machine."""
    return repr([environment.get(key) or None for key in MACHINE_KEYS])  # no GPUs: None or []


def measuring_command(given: Mapping[str, Any]) -> str:
    """Return the command that measures the recommended configurations.

    Those that this machine cannot measure are left out. Raise UsageError if none is left.
    """
    reasons = {
        variant.name: plan_variant(variant, given)[1] for variant in VARIANTS if variant.advice
    }
    names = [name for name, reason in reasons.items() if reason is None]
    if not names:
        name, reason = next(iter(reasons.items()))
        raise UsageError(f"this machine cannot measure it with {name}: {reason}")
    words = []  # the value None is that of --warmup steady
    for name, value in given.items():
        words += (
            [flag_name(name)]
            if value is True
            else [flag_name(name), "steady" if value is None else str(value)]
        )
    return shlex.join(["python3", "-m", "dataflow", "run", *names, *words, "--runs", "5"])


def describe_missing(plan: Plan, has_others: bool) -> str:
    """Return that this machine has no record of the workload, and whether another one has."""
    size = format_bytes(plan.workload.bytes_per_iteration)
    other = ""
    if has_others:
        other = " (other machines, or earlier starts of this one, have some: --any-machine)"
    return (
        f"No record since the start of this machine has exactly this flow, sizes and flags{other}: "
        f"{plan.workload.flow}, {size} per iteration."
    )


def describe_newer(starts: Mapping[str, Mapping[str, Any]], chosen: Mapping[str, Any]) -> str:
    """Return that another start of a machine has newer results than the one with most of them; "" if none has."""
    newest = max(starts.values(), key=last_day)
    if last_day(newest) <= last_day(chosen):
        return ""
    count = f"{len(newest)} configuration{'s' if len(newest) > 1 else ''}"
    return (
        f"Another start of a machine has newer times of {count}, of {last_day(newest)}. To see only those, name "
        "their folder with --records."
    )


def last_day(results: Mapping[str, Any]) -> str:
    """Return the day of the newest run; "" without results."""
    newest = ""
    for result in results.values():
        newest = max([newest, *(run.started_at for run in result.shown_runs)])
    return newest[:10]


def main(argv: Sequence[str]) -> int:
    """Print the ranking, or the command that measures. Return 1 if no record has the workload, else 0.

    Only records of this start of this machine count, or with --any-machine those of the start that has most. Raise
    UsageError for wrong flags, or if this machine cannot measure it either, and RecordError for damaged records.
    """
    arguments, given, plan = parse_command(argv)
    from dataflow.analysis.comparison import is_asked_for  # imports take time, as in run.py
    from dataflow.analysis.result import Result
    from dataflow.report.render import MAX_COLUMNS, MORE_COLUMNS, print_sections, print_text
    from dataflow.report.sections import Group, build_group
    from dataflow.report.suite_tables import CONFIGURATIONS

    here = start_of_machine(describe_environment())
    starts: dict[str, dict[str, Result]] = {here: {}}
    results = [Result((record,)) for record in files.load_all(arguments.records)]
    asked = [result for result in results if is_asked_for(result, plan)]
    for result in sorted(asked, key=lambda result: result.shown_runs[0].started_at):
        starts.setdefault(start_of_machine(result.environments[0]), {})[result.label] = result
    chosen = max(starts.values(), key=len) if arguments.any_machine else starts[here]
    if chosen:
        group = Group([*chosen.values()], results)
        table = replace(CONFIGURATIONS, chart=lambda group: None)
        print_sections(
            build_group(table, group), MORE_COLUMNS if arguments.columns else MAX_COLUMNS
        )
        newer = describe_newer(starts, chosen) if arguments.any_machine else ""
        if newer:
            print_text(newer)
        return 0
    print_text(describe_missing(plan, has_others=len(starts) > 1))
    print(f"To measure it:\n{measuring_command(given)}")
    return 1
