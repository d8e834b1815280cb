"""Measure configurations, and end with their comparison in words.

    python3 -m dataflow run "store refs"                                         one configuration
    python3 -m dataflow run "store refs" "graph shm --in-flight 2" --runs 5      several, interleaved
    python3 -m dataflow run --suite headline --runs 5
    python3 -m dataflow run --flow "rollout -> trainer: tokens int64 8MB" "store refs" "graph shm"

A configuration is a runtime, a transport and flags of its own, in quotes. Other flags are for all configurations. With
--runs, all configurations are measured once, then all of them again in another order. Records and charts go to a new
file or folder in results/.
"""

import argparse
import random
import re
import time
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from dataflow.catalogue.suites import SUITES
from dataflow.errors import UsageError, did_you_mean
from dataflow.measure.batch import (
    Item,
    Planned,
    check_pair,
    make_items,
    new_records,
    pair_with_checkout,
    plan_configuration,
    split_configuration,
)
from dataflow.measure.supervisor import measure_all, measure_configuration
from dataflow.plan.command_line import OneLineParser, add_lists
from dataflow.plan.memory import resident_bytes
from dataflow.plan.options import RESULTS
from dataflow.records import files
from dataflow.units import format_bytes

SHORT_FORM = r"(?<!--message) (packed|jagged|tensordict|indices)\b"  # of --message, in charts and some tables


BATCH_FLAGS = {"--suite", "--baseline", "--paired", "--against", "--continue", "--dry-run", "--order-seed"}


def split_configurations(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the configurations, which come first, and the flags."""
    configurations = list(takewhile(lambda word: not word.startswith("-"), argv))
    return configurations, list(argv[len(configurations) :])


def is_single(argv: Sequence[str]) -> bool:
    """Return whether only one configuration is measured, into one record."""
    configurations, flags = split_configurations(argv)
    return len(configurations) == 1 and BATCH_FLAGS.isdisjoint(flag.partition("=")[0] for flag in flags)


def parse_arguments(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the flags of this command, and those of the configurations."""
    parser = OneLineParser(
        description=__doc__, usage="python3 -m dataflow run [CONFIGURATION ...] [flags]", allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("configs", nargs="*", metavar="CONFIGURATION", help="runtime, transport and flags, in quotes; "
        "with a suite, only these of its configurations")  # fmt: skip
    add("--suite", choices=SUITES, default="", metavar="NAME", help=f"all configurations of {', '.join(SUITES)}")
    add("--baseline", metavar="NAME", help="compare the others with this one (default: the first one)")
    add("--runs", type=int, default=1, help="processes per configuration (default: %(default)s)")
    add(
        "--paired",
        action="store_true",
        help="measure two configurations at the same time: it shows smaller differences",
    )
    add("--against", type=Path, metavar="CHECKOUT", help="measure each configuration paired with the same one "
        "in another checkout of this project, made with git worktree add CHECKOUT COMMIT")  # fmt: skip
    add("--order-seed", type=int, default=random.randrange(2**32), metavar="N", help="seed of the order of the runs")
    folder = RESULTS / f"run-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    add("--output", type=Path, default=folder, help="folder of records and charts (default: results/run-<time>)")
    add("--continue", dest="is_continued", action="store_true", help="measure only the runs that an earlier call with "
        "the same flags and --output has not finished")  # fmt: skip
    add_lists(parser)
    add("--dry-run", action="store_true", help="print what would be measured, and measure nothing")
    configurations, rest = split_configurations(argv)
    arguments, flags = parser.parse_known_args(rest)
    arguments.configs, checkout = configurations, arguments.against
    if not (arguments.text or arguments.suite or configurations):
        raise UsageError("give a configuration, or --suite (--help shows examples)")
    if arguments.is_continued and (checkout or not arguments.output.is_dir()):
        raise UsageError("--continue: give the folder of the earlier call as --output. --against cannot continue")
    if arguments.runs < 1:
        raise UsageError(f"--runs {arguments.runs}: give 1 or more")
    if arguments.paired and (checkout or len(arguments.configs) != 2):
        raise UsageError("--paired measures two configurations: give two of them, and no --against")
    if checkout and not (checkout / "dataflow" / "measure" / "monitor.py").is_file():
        raise UsageError(f"--against {checkout}: there is no checkout of this project with this structure: make one "
                         f"with git worktree add {checkout} COMMIT")  # fmt: skip
    return arguments, flags


def plan_all(configurations: Sequence[str], suite: str, flags: Sequence[str], table: str = "") -> list[Planned]:
    """Return the plans of these configurations, or of a suite. Raise UsageError if this machine can measure none."""
    if not suite:
        planned = [plan for text in configurations for plan in plan_configuration(text, flags, table=table)]
    else:
        planned = plan_suite(configurations, suite, flags, table)
    if all(reason for _, reason in planned):
        raise UsageError(f"this machine can measure none of the configurations: {planned[0][1]}")
    return planned


def plan_suite(configurations: Sequence[str], suite: str, flags: Sequence[str], table: str = "") -> list[Planned]:
    """Return the plans of a suite, or those that these names mean, as the suite, tables, charts or --dry-run show them.

    A name means the plans with its flags, and of those the ones with the fewest. Raise UsageError if there is none.
    """
    from dataflow.analysis.result import Result

    full_names = [name.partition(" (")[0].replace(" as sent", " --as-sent") for name in configurations]  # (reference)
    wanted = [re.sub(SHORT_FORM, r" --message \1", name).split(" --") for name in full_names]
    planned = []
    for part in SUITES[suite]:
        for text in part.commands:  # other transports are not planned, because the flags may not fit them
            if not wanted or " ".join(text.split()[:2]) in [transport for transport, *_ in wanted]:
                planned += plan_configuration(text, flags, suite, table or part.table, part.traced)
    if not wanted:
        return planned
    labels = [Result((plan.new_record(),)).label for plan, _ in planned]
    selected: set[int] = set()
    for configuration, parts in zip(configurations, wanted, strict=True):
        found: dict[int, list[int]] = {}  # indices by number of flags
        for index, (plan, _) in enumerate(planned):
            shown = labels[index].split(" --")
            given = [f"{flag.replace('_', '-')} {value}" for flag, value in plan.options.arguments.items()]
            if {*parts} <= {*shown, *(text.removesuffix(" True") for text in given)}:
                found.setdefault(len(shown), []).append(index)
        if not found:
            known = {*labels, *(text.partition(" --")[0] for part in SUITES[suite] for text in part.commands)}
            raise UsageError(f"{suite} has no {configuration}{did_you_mean(configuration, known)}")
        selected.update(found[min(found)])
    return [planned[index] for index in sorted(selected)]


def print_plans(items: Sequence[Item], runs: int) -> None:
    """Print the messages, and the iterations and the memory (without Ray's own) of each configuration."""
    from dataflow.report.console import print_flow

    for flow in {item.plan.workload.edges: item.plan.requested_flow for item in items}.values():
        print_flow(flow)
    for item in items:
        options = item.plan.options
        count = f"{options.duration:g} s" if options.duration else f"{options.iterations} iterations"
        memory = format_bytes(resident_bytes(item.plan.transport, options, item.plan.task_flow))
        cost = f"skipped, {item.skipped}" if item.skipped else f"{runs} x {count}, {memory} of memory"
        print(f"{item.label}: {cost}")


def compared_labels(items: Sequence[Item], baseline: str | None) -> list[str]:
    """Return the labels of the results, the baseline first; nothing for one label. Raise UsageError if it is none."""
    from dataflow.analysis.result import Result

    labels = list(dict.fromkeys(Result((item.record,)).label for item in items))
    first = baseline or labels[0]
    if first not in labels:
        raise UsageError(f"--baseline {first}: it is not measured{did_you_mean(first, labels)}")
    return [first, *(label for label in labels if label != first)] if len(labels) > 1 else []


def order_runs(groups: Sequence[list[Item]], runs: int, seed: int) -> list[list[Item]]:
    """Return each group of paired items once, then all again in another order; for one run in the given order."""
    generator = random.Random(seed)
    if runs == 1:
        return [*groups]
    ordered = [group for _ in range(runs) for group in generator.sample(groups, len(groups))]
    return [generator.sample(group, len(group)) for group in ordered]


def main(argv: Sequence[str]) -> int:
    """Return 0, 1 (a configuration failed) or 130 (interrupted; the runs that have finished are kept)."""
    if is_single(argv):
        (configuration,), flags = split_configurations(argv)
        runtime, transport, own_flags = split_configuration(configuration)
        return measure_configuration(runtime, ["--transport", transport, *own_flags, *flags])
    arguments, flags = parse_arguments(argv)
    if arguments.text:
        print(arguments.text())
        return 0
    folder = arguments.output
    table = "paired" if arguments.paired or arguments.against else ""
    items = make_items(plan_all(arguments.configs, arguments.suite, flags, table), folder)
    skipped, ready = [item for item in items if item.skipped], [item for item in items if not item.skipped]
    groups = [ready] if arguments.paired else [[item] for item in ready]
    if arguments.against:
        groups = [pair_with_checkout(item, arguments.against) for item in ready]
    for group in groups if table else ():
        check_pair([item.plan for item in group])
    labels = compared_labels(ready, arguments.baseline) if arguments.baseline or not (arguments.suite or table) else []
    items = skipped + [item for group in groups for item in group]
    if arguments.dry_run:
        print_plans(items, arguments.runs)
        return 0
    written = {path for path in folder.rglob("*.json*") if path.is_file() and path.suffix in (".json", ".gz")}
    others = written - {item.path for item in items}
    if others:
        raise UsageError(f"--output {folder}: it has records of another measurement, such as {min(others).name}, "
                         "which would be in the same charts: give a new folder")  # fmt: skip
    earlier = [item.path for item in items if arguments.is_continued and item.path.exists()]
    seed = files.load(earlier[0]).arguments.get("order_seed", 0) if earlier else arguments.order_seed
    if not isinstance(seed, int):
        raise UsageError(f"--continue: {earlier[0]} has the order_seed {seed!r}, which is no number: give a new folder")
    for item in items:
        item.record.arguments["order_seed"] = seed
        if item.skipped:
            print(f"{item.label}: skipped, {item.skipped}")
        elif item.path in earlier:
            item.load_finished_runs()
    with new_records([item for item in items if item.path not in earlier]):
        print(f"configurations: {sum(map(len, groups))}, runs: {arguments.runs} each, records: {folder}", flush=True)
        codes = measure_all(order_runs(groups, arguments.runs, seed))
    measured = [item for item in items if any(run.status == "ok" for run in item.record.runs)]
    if 130 in codes and not arguments.against:
        print(f"to continue: the same command with --continue --output {folder}")
    if 130 in codes and not measured:
        return 130
    from dataflow.commands import compare, report  # imports take time, and a wrong flag should be rejected at once

    if arguments.against:
        compare.main([str(folder / "old"), str(folder / "new"), "--mixed"])
        return max(codes)
    if arguments.paired:
        compare.main([str(item.path) for item in items])
    code = max([*codes, report.main([str(folder)])])
    if labels:
        from dataflow.analysis.comparison import pair_with_first
        from dataflow.analysis.result import group_results
        from dataflow.report.sentences import describe_all

        results = group_results([item.record for item in ready])
        begun = [label for label in labels if label in {result.label for result in results}]  # all, unless interrupted
        if labels[0] in begun and len(begun) > 1:
            print("\n".join(describe_all(pair_with_first(results, begun))))
    return code
