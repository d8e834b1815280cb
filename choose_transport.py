"""Rank the configurations that were measured with exactly this flow, these sizes and these flags. Nothing is measured.

    python3 choose_transport.py --any-machine
    python3 choose_transport.py --flow weights --model gpt2 --on-ray

The flags of the scripts name the workload. Messages of several fields may be packed, and weights may be sent in several
messages. Only records of one start of one machine are ranked together; of equal measurements the newest counts. If no
record has the workload, the command that measures it is printed.
"""

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

sys.path.append(__file__.rpartition("/")[0])  # Python leaves it out with PYTHONSAFEPATH=1

from common.analysis.comparison import Pair
from common.analysis.result import Result
from common.analysis.statistics import NO_DIFFERENCE
from common.errors import RecordError, UsageError, run_main
from common.flows.catalogue import build_flow
from common.plan.command_line import OneLineParser, parse_options
from common.plan.options import FLAGS, RESULTS
from common.plan.plan import Plan
from common.records import files
from common.records.environment import MACHINE_KEYS, describe_environment, machine_line
from common.records.schema import SENDER_SIZES
from common.report import console, tables
from common.report.tables import Column, format_milliseconds, format_significant
from common.run.batch import plan_configuration
from common.transports.catalogue import TRANSPORTS, VARIANTS
from common.units import format_bytes

TRANSPORT_FLAGS = {field.name for field in FLAGS if field.metadata["group"] == "transport"}


def parse_command(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str], Plan]:
    """Return this script's own flags, the other flags, and a plan of the workload that these name."""
    parser = OneLineParser(description=__doc__, usage="%(prog)s [flags]", allow_abbrev=False,
                           formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    add = parser.add_argument
    add("--records", type=Path, nargs="+", default=[RESULTS], help="records, or folders of records (default: results/)")
    add("--on-ray", action="store_true", help="leave out configurations without Ray")
    add("--any-machine", action="store_true", help="use the records of the machine that has most of them")
    arguments, flags = parser.parse_known_args(argv)
    options, *others = parse_options("", "store", flags)
    if others or any(flag.partition("=")[0] == "--transport" for flag in flags):
        raise UsageError("--sweep and --transport: leave them out: give one workload, to compare all transports of it")
    try:
        flow = build_flow(options.flow, options.sizes, options.message)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return arguments, flags, Plan(TRANSPORTS["store refs"], options, flow, options.device.replace("auto", "cpu"))


def load_results(paths: Sequence[Path]) -> list[Result]:
    """Return a result per record that has a time, and print one line that names the files that cannot be read.

    Records in a folder `evidence` are left out, because they may have other settings.
    """
    results, broken = list[Result](), list[str]()
    for path in dict.fromkeys(path.resolve() for path in files.record_files(paths)):
        try:
            if "evidence" not in path.parts:
                result = Result((files.load(path),))
                if result.flow.edges and result.status == "ok" and result.environments and result.typical_seconds:
                    results.append(result)
        except Exception as error:
            is_known = isinstance(error, RecordError)
            broken.append(str(error) if is_known else f"{path} contradicts itself ({type(error).__name__})")
    if broken:
        print(f"left out: {broken[0]}{f', and {len(broken) - 1} more' if len(broken) > 1 else ''}")
    return results


def is_asked_for(result: Result, plan: Plan) -> bool:
    """Return whether a result is of the planned workload, with any transport and its flags."""
    measured, asked, work, asked_work = result.configuration, plan.configuration, result.workload, plan.workload
    alike = structs.replace(asked, runtime=measured.runtime, transport=measured.transport, flags=measured.flags)
    flags, asked_flags = (without(configuration.flags, TRANSPORT_FLAGS) for configuration in (measured, asked))
    if measured != alike or flags != asked_flags or result.traced or result.paired:
        return False
    if plan.requested_flow.has_parameters:
        sizes, asked_sizes = (without(workload.sizes, SENDER_SIZES) for workload in (work, asked_work))
        return work.flow == asked_work.flow and sizes == asked_sizes
    if asked_work.message == "fields" and not asked_work.sizes.get("as_sent") and work.message != "flat":
        work = structs.replace(work, message="fields")
    return work == asked_work and not result.transport.requirements.single_process


def without(values: Mapping[str, Any], names: Sequence[str] | set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def start_of_machine(environment: Mapping[str, Any]) -> str:
    """Return a text that is equal for records of equal versions since one start of a machine."""
    return repr([environment.get(key) or None for key in MACHINE_KEYS if key != "nccl"])  # only torch knows the latter


def print_ranking(results: Sequence[Result]) -> None:
    """Print which of these configurations may be the fastest, what they need, and the times of all."""
    best, *others = sorted(results, key=lambda result: result.typical_seconds)
    verdicts = {best.label: "fastest"} | {result.label: Pair(best, result).ratio.verdict for result in others}
    candidates = [result for result in (best, *others) if verdicts[result.label] in ("fastest", NO_DIFFERENCE)]
    in_place = ", the producer writes in place" if best.producer_writes_in_place else ""
    print(f"\nReaders {'own a copy' if best.readers_own_a_copy else 'get a view'}{in_place}: "
          f"use {' or '.join(result.label for result in candidates)}.")  # fmt: skip
    for result in candidates:
        if result.variant and (advice := result.variant.advice):
            print(f"{result.label} needs: {advice.needs}. What breaks it: {advice.breaks}.")
    columns = [
        Column("configuration", lambda result: result.label),
        Column("ms", lambda result: format_milliseconds(result.typical_seconds)),
        Column("95 % interval", tables.format_interval),
        Column("x fastest", lambda result: format_significant(result.typical_seconds / best.typical_seconds)),
        Column("compared with the fastest", lambda result: verdicts[result.label], is_text=True),
        Column("runs", lambda result: str(len(result.run_seconds))),
        Column("disturbed runs", lambda result: str(tables.count_disturbed(result))),
        Column("day", lambda result: result.shown_runs[0].started_at[:10], is_text=True),
    ]
    console.print_table(tables.make_table([best, *others], columns))


def measuring_command(flags: Sequence[str], on_ray: bool) -> str:
    """Return the command that measures the recommended configurations; raise UsageError if none can be measured."""
    reasons: dict[str, UsageError | None] = {}  # why a configuration cannot be measured
    for variant in VARIANTS:
        if variant.advice and (variant.transport.runtime.uses_ray or not on_ray):
            try:
                ((_, reasons[variant.name]),) = plan_configuration(variant.name, flags)
            except UsageError as error:
                reasons[variant.name] = error
    names = [name for name, reason in reasons.items() if reason is None]
    if not names:
        raise next(filter(None, reasons.values()))
    return shlex.join(["python3", "benchmark.py", *flags, "--runs", "5", "--configs", *names])


def main(argv: Sequence[str]) -> int:
    """Print the rankings, or the command that measures. Return 1 if no record has the workload, else 0."""
    arguments, flags, plan = parse_command(argv)
    asked = [result for result in load_results(arguments.records) if is_asked_for(result, plan)]
    starts: dict[str, dict[str, Result]] = {start_of_machine(describe_environment()): {}}
    for result in sorted(asked, key=lambda result: result.shown_runs[0].started_at):
        if result.transport.runtime.uses_ray or not arguments.on_ray:
            starts.setdefault(start_of_machine(result.environments[0]), {})[result.label] = result
    here = next(iter(starts.values()))
    chosen = [*(max(starts.values(), key=len) if arguments.any_machine else here).values()]
    workload = f"{plan.workload.flow}, {format_bytes(plan.workload.bytes_per_iteration)} per iteration"
    if not chosen:
        other = " (other machines, or earlier starts of this one, have some: --any-machine)" if asked else ""
        print(f"No record since the start of this machine has exactly this flow, sizes and flags{other}: {workload}.\n"
              f"To measure it:\n{measuring_command(flags, arguments.on_ray)}")  # fmt: skip
        return 1
    print(f"{workload}, on {machine_line(chosen[0].environments[0])}")
    groups: dict[tuple[bool, bool], list[Result]] = {}
    for result in chosen:
        groups.setdefault((not result.readers_own_a_copy, result.producer_writes_in_place), []).append(result)
    for _, group in sorted(groups.items()):
        print_ranking(group)
    return 0


if __name__ == "__main__":
    run_main(main, sys.argv[1:])
