"""Recommend a transport for a workload on this machine, from records. Nothing is measured.

    python3 choose_transport.py --batch-size 256
    python3 choose_transport.py --preset verl-dapo --scale 0.1 --reads some

The workload is given by the flags of the scripts: --flow, --preset, --message and the sizes. The newest measurement of
exactly this workload counts. Other times are interpolated between measured sizes of flows with the same edges (python3
benchmark.py sweeps). Configurations whose 95 % intervals overlap are called equal; of times of one run and interpolated
ones, those that differ by less than 10 % in each direction.
"""

import argparse
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from common.analysis import prediction
from common.analysis.prediction import Choice, Request
from common.analysis.result import Result
from common.errors import UsageError, run_main
from common.flows.catalogue import build_flow
from common.plan.command_line import OneLineParser, parse_options
from common.plan.options import RESULTS
from common.plan.plan import Plan
from common.records.environment import describe_environment, machine_line
from common.report.console import print_table
from common.report.tables import (
    Column,
    count_disturbed,
    format_interval,
    format_milliseconds,
    format_significant,
    make_table,
)
from common.runtimes.environment import RETAIN_MEMORY
from common.transports.catalogue import CONFIGURATIONS, TRANSPORTS
from common.units import format_bytes


def parse_command(argv: Sequence[str]) -> tuple[argparse.Namespace, Request]:
    """Return this script's own flags, and the request."""
    parser = OneLineParser(description=__doc__, usage="%(prog)s [flags]", allow_abbrev=False,
                           formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--reads", choices=("all", "some"), default="all", help="all: each reader needs its own copy; "
                        "some: readers may get a view and never write to it (default: all)")  # fmt: skip
    parser.add_argument("--nodes", type=int, default=1, help="number of machines (default: 1)")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs that hold the tensors (default: 0)")
    parser.add_argument(
        "--records", type=Path, nargs="+", default=[RESULTS], help="records, or folders of records (default: results/)"
    )
    parser.add_argument("--on-ray", action="store_true", help="leave out configurations without Ray")
    parser.add_argument("--any-machine", action="store_true", help="use the records of the machine that has "
                        "times for most configurations")  # fmt: skip
    arguments, rest = parser.parse_known_args(argv)
    if arguments.nodes < 1 or arguments.gpus < 0:
        raise UsageError("--nodes: give 1 or more. --gpus: give 0 or more")
    options, *others = parse_options("", "store", rest)  # a transport or another flag is no part of the workload
    if others:
        raise UsageError("--sweep: give one size, and call this script for each of them")
    try:
        flow = build_flow(options.flow, options.sizes, options.message)
    except ValueError as error:
        raise UsageError(str(error)) from None
    workload = Plan(TRANSPORTS["store refs"], options, flow).workload  # equal for every transport
    copies, machines = arguments.reads == "all", (arguments.nodes, arguments.gpus, arguments.on_ray)
    return arguments, Request(workload, flow, copies, *machines)


def select_results(paths: Sequence[Path], any_machine: bool, request: Request) -> list[Result]:
    """Return the results of this machine; with `any_machine`, of the machine whose results answer most."""
    by_machine, here = prediction.load_by_machine(paths), describe_environment()
    own = by_machine.pop(prediction.machine_key(here), [])
    candidates = [own, *by_machine.values()] if any_machine else [own]
    results = max(candidates, key=lambda results: (len(prediction.rank(request, results)[0]), len(results)))
    if results and results is not own:
        print(f"The records are of another machine: {machine_line(results[0].environments[0])}")
    return results


def find_equal(choices: Sequence[Choice]) -> list[Choice]:
    """Return the fastest configuration, and those that are equal to it."""
    return [choice for choice in choices if choice.ends[0] <= choices[0].ends[1]]


def describe_equal(equal: Sequence[Choice]) -> str:
    names = " or ".join(choice.name for choice in equal)
    if len(equal) == 1:
        return names
    several_runs = equal[0].result and len(equal[0].result.run_seconds) > 1
    return f"{names}, {'whose 95 % intervals overlap' if several_runs else 'which differ by little'}"


def print_choices(title: str, choices: Sequence[Choice]) -> None:
    """Print a table of configurations that have been measured, or whose times are interpolated."""
    columns = [
        Column("configuration", lambda choice: choice.name),
        Column("ms", lambda choice: format_milliseconds(choice.seconds)),
        Column("x fastest", lambda choice: format_significant(choice.seconds / choices[0].seconds)),
    ]
    if choices and choices[0].result:
        columns += [
            Column("95 % interval", lambda choice: format_interval(choice.result)),
            Column("runs", lambda choice: str(len(choice.result.run_seconds))),
            Column("disturbed runs", lambda choice: str(count_disturbed(choice.result))),
            Column("day", lambda choice: choice.result.shown_runs[0].started_at[:10], is_text=True),
        ]
    if choices:
        print(f"\n{title}:")
        print_table(make_table(choices, columns))


def main(argv: Sequence[str]) -> int:
    """Print the recommendation, the times, and why configurations have none. Return 1 if no time is known, else 0."""
    arguments, request = parse_command(argv)
    results = select_results(arguments.records, arguments.any_machine, request)
    choices, others = prediction.rank(request, results)
    measured = [choice for choice in choices if choice.result]
    interpolated = [choice for choice in choices if not choice.result]
    size, readers = request.workload.bytes_per_iteration, "own a copy" if request.copies else "may get a view"
    workload = f"{request.workload.flow} ({format_bytes(size)} per iteration, readers {readers})"
    best = find_equal(measured or interpolated)
    if measured:
        print(f"Use {describe_equal(best)}: the fastest of {len(measured)} that were measured with {workload}.")
    elif interpolated:
        print(f"Perhaps {describe_equal(best)}, for {workload}: nothing was measured with exactly this flow.")
    else:
        other_machine = "" if arguments.any_machine else ", or give --any-machine for the records of another machine"
        print(f"No record has a time for {workload}: measure it with benchmark.py --flow ... --configs ..., run "
              f"benchmark.py sweeps{other_machine}.")  # fmt: skip
    for choice in best:
        variant = CONFIGURATIONS.get(choice.name.partition(" --message")[0])
        if variant and (advice := variant.advice):
            print(f"{choice.name} needs: {advice.needs}. What breaks it: {advice.breaks}.")
    print_choices("Measured with exactly this flow", measured)
    print_choices("Interpolated between measured sizes; errors are in docs/choosing.md", interpolated)
    if any("--retain-memory" in choice.name for choice in choices):
        settings = " ".join(f"{name}={value}" for name, value in RETAIN_MEMORY.items())
        print(f"--retain-memory: start your cluster with {settings} (docs/page-faults.md)")
    if len(request.forms) > 1 and not any("--message" in choice.name for choice in measured):
        print("Messages of many tensors are often faster as few tensors: measure --message packed and jagged too.")
    print("docs/in-your-code.md has an example of each change.\n")
    for reason, names in others.items():
        print(textwrap.fill(f"{reason}: {', '.join(names)}", 115, subsequent_indent="    ", break_on_hyphens=False))
    return 0 if choices else 1


if __name__ == "__main__":
    run_main(main, sys.argv[1:])
