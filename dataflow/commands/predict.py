# SPDX-License-Identifier: Apache-2.0
"""Predict how long an iteration takes on a machine with each configuration. Only --check measures.

    python3 -m dataflow predict                                   as the newest `dataflow machine` has measured it here
    python3 -m dataflow predict --copy-gbps 40 --fault-us 0.3 --cores 16      a machine that one does not have
    python3 -m dataflow predict --copy-gbps 12,40 --fault-us 0.3 --cores 16   the same, with the rate of one thread
    python3 -m dataflow predict --flow "rollout -> trainer: tokens int64 64MB"
    python3 -m dataflow predict --check --iteration-bytes 128MiB  measure three configurations, and compare
    taskset -c 0 python3 -m dataflow predict --check --state "one core"        the same, and keep it for the pages
    python3 -m dataflow predict --preset router-replay           a cluster that one does not have (docs/cluster.md)
    python3 -m dataflow predict --campaign                        keep what `make campaign` will measure here

Each configuration costs a number of copies and of page faults, which were fitted to campaigns on several machines
(docs/method.md). Another flow is predicted by its bytes.

Flags of `run` say which messages are predicted: --flow, --message and the sizes. With --check, --iterations, --warmup,
--allow-disturbed and the time limits say how it measures. The others are rejected.

Exit code: 0; 2 for a wrong flag. With --check, 0 if all three predictions are within 15 % of what was measured, 1 if
one is not, or was not measured, and 130 if it was interrupted.
"""

import argparse
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dataflow.analysis.prediction import (
    FITTED_CORES,
    Check,
    MachineSpeed,
    Prediction,
    choose_checked,
    choose_table,
    mean_seconds,
    measure_flow,
    predict,
    speed_of_samples,
)
from dataflow.analysis.stored_costs import COSTS, load_costs
from dataflow.catalogue.catalogue import TRANSPORTS
from dataflow.commands import predict_campaign, predict_cluster
from dataflow.commands.keep_checks import keep_checks
from dataflow.commands.machine import MACHINES, keep_measurement
from dataflow.errors import UsageError
from dataflow.flows.catalogue import build_flow, flag_name
from dataflow.flows.flow import Flow
from dataflow.machine.samples import load_machine
from dataflow.plan.command_line import VerbParser, make_options, parse_with_options, words_of
from dataflow.plan.options import FLAGS, RESULTS
from dataflow.report.prediction_tables import (
    checks_table,
    describe_checks,
    describe_limits,
    describe_machine_speed,
    describe_order,
    describe_refused,
    predictions_table,
    warn_of_spread,
)
from dataflow.report.render import print_table, print_text
from dataflow.units import GB, MICROSECOND, format_bytes

MOST = 1e9  # of a rate or a time
MAX_COUNT = 10_000  # of cores, and of runs
# Flags that say which messages are predicted, and those that only say how --check measures.
OF_MESSAGES = {"flow", "message"} | {flag.name for flag in FLAGS if flag.size}
OF_MESSAGES -= {"changing_sizes"}  # campaigns, to which costs are fitted, have no such messages
OF_CHECK = {"iterations", "warmup", "allow_disturbed", "timeout", "run_limit"}


def parse_command(argv: Sequence[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Return this verb's own flags, and those of the messages and of --check; raise UsageError for wrong ones."""
    parser = predict_cluster.ClusterParser(__doc__, "python3 -m dataflow predict [flags]")
    add_machine(parser)
    add_check(parser)
    predict_campaign.add_options(parser)
    predict_cluster.add_options(parser)
    arguments, given = parse_with_options(parser, argv)
    predict_cluster.take_options(arguments, given)
    check_machine(arguments)
    check_measurement(arguments, given)
    predict_campaign.check_options(arguments, given)
    return arguments, given


def add_machine(parser: VerbParser) -> None:
    """Add the flags that say for which machine it is."""
    add = parser.add_argument
    add(
        "--machine",
        type=Path,
        metavar="FILE",
        help="samples of `dataflow machine` (default: the newest in results/machines/; with --check: new ones)",
    )
    add(
        "--copy-gbps",
        type=parse_rates,
        metavar="[ONE,]ALL",
        help="GB/s at which all cores together copy large messages, or that of one thread before it, as in 12,40",
    )
    add("--fault-us", type=parse_positive, metavar="N", help="microseconds of a page fault")
    add(
        "--cores",
        type=parse_count,
        metavar="N",
        help=f"cores of the machine of --copy-gbps and --fault-us (default: {FITTED_CORES}, as in the campaigns; with "
        "--nodes or --preset: one per process)",
    )


def add_check(parser: VerbParser) -> None:
    """Add the flags with which predictions are checked."""
    add = parser.add_argument
    add(
        "--check",
        action="store_true",
        help="measure this machine and three configurations, and say whether the predictions hold",
    )
    add(
        "--runs",
        type=parse_count,
        default=1,
        metavar="N",
        help="with --check: runs per configuration (default: %(default)s)",
    )
    add(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="with --check: new folder for the records (default: a new name in results/)",
    )
    add(
        "--state",
        metavar="TEXT",
        help="with --check: keep what was predicted and measured in results/evidence/checks/; TEXT says how this "
        "machine was changed, such as 'one core'",
    )


def check_machine(arguments: argparse.Namespace) -> None:
    """Raise UsageError for flags of a machine that do not fit together."""
    described = [arguments.copy_gbps, arguments.fault_us]
    is_described = None not in described
    if not is_described and described != [None, None]:
        raise UsageError("--copy-gbps and --fault-us: give both, or neither")
    if is_described and arguments.machine:
        raise UsageError("--machine: leave it out, or --copy-gbps and --fault-us")
    if is_described and arguments.check:
        raise UsageError("--check measures this machine: leave --copy-gbps and --fault-us out")
    if arguments.cores and not is_described:
        raise UsageError("--cores: give --copy-gbps and --fault-us, too")


def check_measurement(arguments: argparse.Namespace, given: Mapping[str, Any]) -> None:
    """Raise UsageError for flags that no prediction takes into account, and for those of --check without it."""
    for name in given:
        if name not in OF_MESSAGES | OF_CHECK:
            raise UsageError(
                f"{flag_name(name)}: no prediction takes it into account: leave it out"
            )
        if name in OF_CHECK and not arguments.check:
            raise UsageError(f"{flag_name(name)}: give --check, too, or leave it out")
    is_measured = arguments.output is not None or arguments.runs > 1 or arguments.state is not None
    if is_measured and not arguments.check:
        raise UsageError("--runs, --output and --state: give --check, too, or leave them out")
    if arguments.state is not None and not arguments.state.strip():
        raise UsageError("--state: say in words how this machine was changed")
    if arguments.output is not None and arguments.output.exists():
        raise UsageError(f"--output {arguments.output} exists: give a new folder")


def parse_positive(text: str) -> float:
    """Return a number above 0; raise ArgumentTypeError for others."""
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < MOST:
        raise argparse.ArgumentTypeError(f"{text} is not possible: give a number above 0")
    return number


def parse_rates(text: str) -> list[float]:
    """Return the rate of all cores, or those of one thread and of all cores; raise ArgumentTypeError for others."""
    rates = [parse_positive(part) for part in text.split(",")]
    if len(rates) > 2 or rates[0] > rates[-1]:
        raise argparse.ArgumentTypeError(
            f"{text} is not possible: give one rate, or that of one thread and then that of all cores"
        )
    return rates


def parse_count(text: str) -> int:
    """Return a whole number of at least 1; raise ArgumentTypeError for others."""
    count = int(text) if text.isdecimal() else 0
    if not 1 <= count <= MAX_COUNT:
        raise argparse.ArgumentTypeError(
            f"{text} is not possible: give a whole number from 1 to {MAX_COUNT}"
        )
    return count


def build_messages(given: Mapping[str, Any]) -> Flow:
    """Return the flow of the flags; raise UsageError if they make none."""
    sizes = {name: value for name, value in given.items() if name in OF_MESSAGES}
    # Any transport: the messages are those of all of them.
    (options,) = make_options(TRANSPORTS["store refs"], sizes)
    try:
        return build_flow(options.flow, options.sizes, options.message)
    except ValueError as error:
        raise UsageError(str(error)) from None


def describe_speed(arguments: argparse.Namespace) -> MachineSpeed:
    """Return the machine that the flags describe."""
    cores = arguments.cores or FITTED_CORES
    one, *rest = arguments.copy_gbps
    rates = {cores: one * GB}
    if rest:
        (together,) = rest
        rates = {1: one * GB, cores: together * GB}
    return MachineSpeed("A machine as given", cores, rates, arguments.fault_us * MICROSECOND)


def find_speed(arguments: argparse.Namespace, size: int) -> MachineSpeed:
    """Return the machine of the flags; with --check, measure it if they name none.

    Raise UsageError if no machine was measured, and RecordError if a file cannot be read or written.
    """
    if arguments.copy_gbps is not None:
        return describe_speed(arguments)
    path = arguments.machine
    if path is None and arguments.check:
        print_text("Measuring this machine takes about 15 seconds.")
        path, _ = keep_measurement(None)
    path = path or max(MACHINES.glob("*.json"), default=None)
    if path is None:
        raise UsageError(
            "no machine was measured: run `python3 -m dataflow machine`, or give --copy-gbps and --fault-us"
        )
    machine = load_machine(path)
    print_text(*warn_of_spread(machine, size))
    return speed_of_samples(machine, path.name, size)


def make_predictions(
    arguments: argparse.Namespace, flow: Flow
) -> tuple[MachineSpeed, list[Prediction]]:
    """Print the predictions for a machine, and return it and them, the fastest first.

    Raise UsageError if nothing predicts messages that are so small, or if no machine was measured.
    """
    stored = load_costs(COSTS)
    volume = measure_flow(flow)
    table = choose_table(stored, volume)
    if table is None:
        raise UsageError(
            f"{format_bytes(volume.bytes)} per iteration: the time of such small messages does not follow from their "
            "bytes, so there is no prediction: measure them with `python3 -m dataflow run`"
        )
    speed = find_speed(arguments, volume.bytes)
    predictions = predict(speed, stored, table, volume)
    print_text(f"{flow.title}, {format_bytes(volume.bytes)} per iteration.")
    print_text(*describe_machine_speed(speed, volume))
    print_table(predictions_table(predictions))
    if any(prediction.interval for prediction in predictions):
        # Otherwise, what is not predicted can take longer than what is.
        print_text(*describe_order(speed, predictions))
    print_text(*describe_limits(speed, stored, predictions, volume))
    print_text(*describe_refused(stored.unexplained, table))
    return speed, predictions


def main(argv: Sequence[str]) -> int:
    """Print the predicted time of each configuration on a machine, and with --check, whether three of them hold.

    Return the exit code that --help explains. Raise UsageError for wrong flags, and if no machine was measured or
    given; RecordError for a file that cannot be read or written.
    """
    arguments, given = parse_command(argv)
    if arguments.campaign:
        return predict_campaign.main(arguments.machine)
    flow = build_messages(given)
    if predict_cluster.is_asked(arguments):
        return predict_cluster.main(arguments, flow)
    if not arguments.check:
        make_predictions(arguments, flow)
        return 0
    return check_predictions(arguments, given, flow)


def check_predictions(arguments: argparse.Namespace, given: Mapping[str, Any], flow: Flow) -> int:
    """Predict, measure three of the configurations, and compare; return the exit code."""
    from dataflow.commands import run  # it imports more than a prediction needs

    speed, of_all = make_predictions(arguments, flow)
    predictions = choose_checked(of_all)
    folder = arguments.output or RESULTS / f"run-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    code = run.main(words_of_run(predictions, given, arguments.runs, folder))
    if code == 130:
        return code
    checks = compare_with_records(predictions, folder)
    print_table(checks_table(checks))
    print_text(describe_checks(checks))
    if arguments.state is not None:
        path = keep_checks(arguments.state, arguments.runs, speed, checks)
        print_text(f"kept: {path}")
    return 0 if all(check.holds for check in checks) else 1


def words_of_run(
    predictions: Sequence[Prediction], given: Mapping[str, Any], runs: int, folder: Path
) -> list[str]:
    """Return the words of `run` that measure these configurations, on CPUs as in the campaigns."""
    names = [prediction.cost.configuration for prediction in predictions]
    flags = words_of(given)
    return [*names, *flags, "--device", "cpu", "--runs", str(runs), "--output", str(folder)]


def compare_with_records(predictions: Sequence[Prediction], folder: Path) -> list[Check]:
    """Return what the records of a folder say about predictions; raise RecordError if one cannot be read."""
    from dataflow.analysis.result import group_results
    from dataflow.records.files import load_all

    results = {result.name: result for result in group_results(load_all([folder]))}
    checks = []
    for prediction in predictions:
        check = Check(prediction, measured_seconds=None, measured_faults=None)
        result = results.get(prediction.cost.configuration)
        if result is not None and result.status == "ok":
            measured = mean_seconds(result.seconds)
            check = Check(prediction, measured, result.faults_per_iteration)
        checks.append(check)
    return checks
