# SPDX-License-Identifier: Apache-2.0
"""Predict how long an iteration takes on a machine, from what copies and page faults take there. Nothing is measured.

    python3 -m dataflow predict                                  as the newest `dataflow machine` has measured it here
    python3 -m dataflow predict --copy-gbps 40 --fault-us 0.3    a machine that one does not have
    python3 -m dataflow predict --flow "rollout -> trainer: tokens int64 64MB"
    python3 -m dataflow predict --preset router-replay           a cluster that one does not have (docs/cluster.md)

Each configuration costs a number of copies and of page faults, which were fitted to campaigns on several machines
(docs/method.md). Another flow is predicted by its bytes.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from dataflow.analysis.cost_model import MachineCosts
from dataflow.analysis.stored_costs import COSTS, StoredCost, load_costs
from dataflow.commands import predict_cluster
from dataflow.commands.machine import MACHINES
from dataflow.errors import UsageError
from dataflow.flows.catalogue import build_flow
from dataflow.machine.samples import load_machine
from dataflow.plan.command_line import parse_with_options
from dataflow.plan.options import Options
from dataflow.report.render import print_table, print_text
from dataflow.report.tables import Column, format_significant, make_table
from dataflow.units import format_bytes

GB = 1e9
MILLISECOND = 1e-3
MICROSECOND = 1e-6
TABLE = "headline"  # of campaigns: messages of 32 to 160 MiB
FITTED_CORES = 2  # of all machines of the campaigns


@dataclass(frozen=True)
class Prediction:
    """The time of an iteration of a configuration on a machine."""

    cost: StoredCost
    seconds: float
    faults: float
    fixed_seconds: float  # of these messages, for which neither copies nor page faults account
    limit_seconds: float  # one copy of all bytes by all cores

    @property
    def interval(self) -> str:
        if self.cost.factor is None:
            return "-"
        low = format_significant(self.seconds / self.cost.factor / MILLISECOND)
        high = format_significant(self.seconds * self.cost.factor / MILLISECOND)
        return f"{low} to {high}"


def parse_command(argv: Sequence[str]) -> tuple[argparse.Namespace, Options]:
    """Return this verb's own flags, and the options that name the messages; raise UsageError for wrong ones."""
    parser = predict_cluster.ClusterParser(__doc__, "python3 -m dataflow predict [flags]")
    add = parser.add_argument
    add(
        "--machine",
        type=Path,
        metavar="FILE",
        help="samples of `dataflow machine` (default: the newest in results/machines/)",
    )
    add(
        "--copy-gbps",
        type=positive,
        metavar="N",
        help="GB/s at which all cores together copy large messages",
    )
    add("--fault-us", type=positive, metavar="N", help="microseconds of a page fault")
    predict_cluster.add_options(parser)
    arguments, given = parse_with_options(parser, argv)
    predict_cluster.take_options(arguments, given)
    is_described = arguments.copy_gbps is not None and arguments.fault_us is not None
    if not is_described and (arguments.copy_gbps or arguments.fault_us):
        raise UsageError("--copy-gbps and --fault-us: give both, or neither")
    if is_described and arguments.machine:
        raise UsageError("--machine: leave it out, or --copy-gbps and --fault-us")
    return arguments, Options.of({"transport": "refs", **given})


def positive(text: str) -> float:
    """Return a number above 0; raise ValueError for others."""
    number = float(text)
    if not 0 < number < 1e9:
        raise ValueError
    return number


def costs_of_machine(arguments: argparse.Namespace, size: int) -> tuple[str, MachineCosts]:
    """Return a description of the machine, and what copying so many bytes and a page fault take there.

    Raise UsageError if no machine was measured, and RecordError if a file cannot be read.
    """
    if arguments.copy_gbps is not None:
        text = f"{arguments.copy_gbps:g} GB/s, {arguments.fault_us:g} µs per page fault"
        copy = size / (arguments.copy_gbps * GB)
        return text, MachineCosts("described", copy, arguments.fault_us * MICROSECOND)
    path = arguments.machine or max(MACHINES.glob("*.json"), default=None)
    if path is None:
        raise UsageError(
            "no machine was measured: run `python3 -m dataflow machine`, or give --copy-gbps and --fault-us"
        )
    machine = load_machine(path)
    copies = machine.copies_of(size, machine.cores)
    rate = median(copies.rates)
    fault = median(machine.fault_seconds(machine.just_freed))
    text = f"{rate / GB:.2g} GB/s, {fault / MICROSECOND:.2g} µs per page fault ({path.name})"
    return text, MachineCosts(path.name, size / rate, fault)


def predict(costs: MachineCosts, stored: Sequence[StoredCost], size: int) -> list[Prediction]:
    """Return the predictions for messages of so many bytes, the fastest first."""
    predictions = []
    for cost in stored:
        if cost.table == TABLE:
            seconds = cost.seconds_on(costs, size)
            scale = size / cost.iteration_bytes
            faults = scale * cost.faults
            fixed = scale * cost.fixed_seconds
            predictions.append(Prediction(cost, seconds, faults, fixed, costs.copy_seconds))
    return sorted(predictions, key=lambda prediction: prediction.seconds)


def main(argv: Sequence[str]) -> int:
    """Print the predicted time of each configuration on a machine: that of the flags, or the newest measured one.

    Raise UsageError for wrong flags, and if no machine was measured or given; RecordError for an unreadable file.
    """
    arguments, options = parse_command(argv)
    if predict_cluster.is_asked(arguments):
        return predict_cluster.main(arguments, options)
    try:
        flow = build_flow(options.flow, options.sizes, options.message)
    except ValueError as error:
        raise UsageError(str(error)) from None
    size = flow.bytes_per_iteration
    text, costs = costs_of_machine(arguments, size)
    stored = load_costs(COSTS)
    predictions = predict(costs, stored.costs, size)
    limit = format_significant(costs.copy_seconds / MILLISECOND)
    print_text(
        f"{flow.title}, {format_bytes(size)} per iteration. All cores together copy {text}.",
        f"If each reader gets a copy, an iteration takes {limit} ms or more.",
    )
    print_table(make_table(predictions, COLUMNS))
    print_text(*say_limits(predictions, size))
    return 0


COLUMNS = (
    Column("configuration", lambda item: item.cost.configuration),
    Column(
        "readers get", lambda item: "copy" if item.cost.readers_own_a_copy else "view", is_text=True
    ),
    Column("predicted ms", lambda item: format_significant(item.seconds / MILLISECOND)),
    Column("95 % interval", lambda item: item.interval),
    Column("copies", lambda item: format_significant(item.cost.copies)),
    Column("page faults", lambda item: format_significant(item.faults)),
    Column("fixed ms", lambda item: format_significant(item.fixed_seconds / MILLISECOND), rank=1),
    Column("x limit", lambda item: format_significant(item.seconds / item.limit_seconds), rank=2),
)


def say_limits(predictions: Sequence[Prediction], size: int) -> list[str]:
    """Return to what the costs were fitted, and how the messages differ from those."""
    costs = [prediction.cost for prediction in predictions]
    machines = max(cost.machines for cost in costs)
    fitted = costs[0].iteration_bytes
    lines = [
        f"Fitted to the mean times of campaigns on {machines} machines with {FITTED_CORES} cores and messages of "
        f"{format_bytes(fitted)} per iteration."
    ]
    if size != fitted:
        lines.append("Other messages are predicted by their bytes, and nothing has checked that.")
    return lines
