# SPDX-License-Identifier: Apache-2.0
"""Predict how long an iteration takes on a cluster that one does not have, and which resource is full first.

    python3 -m dataflow predict --preset router-replay
    python3 -m dataflow predict --flow "rollout -> trainer: 100MB" --rollouts 64 --trainers 8 --nodes 9 --link 400gbit

It is a simulation (docs/cluster.md). Nothing is measured.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import inf
from statistics import median
from typing import Any

from msgspec import Meta

from dataflow.catalogue.catalogue import INLINED_BYTES
from dataflow.cluster.costs import ForecastFile, load_forecast, typical_machine
from dataflow.cluster.forecast import FULL, Case, Forecast, forecast
from dataflow.cluster.hardware import Cluster, NodeMachine, format_rate, parse_rate, place
from dataflow.cluster.presets import LINK, ClusterPreset, load_presets
from dataflow.cluster.scaling import ROLLOUT
from dataflow.errors import UsageError
from dataflow.flows.flow import Flow
from dataflow.machine.samples import load_machine
from dataflow.plan.command_line import VerbParser
from dataflow.plan.flag import parse_value
from dataflow.report.cluster_forecast import (
    BLOCKS,
    forecast_table,
    say_assumptions,
    say_calls,
    say_checks,
    say_links,
)
from dataflow.report.render import print_table, print_text
from dataflow.units import GB, MICROSECOND, format_bytes

MAX_NODES = 10_000
MAX_COPIES = 1_000  # of rollouts or trainers: more take several seconds to simulate
MAX_MESSAGES = 1_100  # of an iteration: twice as many are simulated, too
LARGE = 2**28  # bytes of the copies whose rate counts
COPIES = partial(parse_value, int, Meta(ge=1, le=MAX_COPIES))
OF_A_CLUSTER = ("link", "switch", "rollouts")


class ClusterParser(VerbParser):
    """A parser with the flags of configurations and of clusters, which have many trainers."""

    def parse_all(self, argv: Sequence[str]) -> argparse.Namespace:
        # A study has this flag for the few trainers that one machine runs.
        trainers = self._option_string_actions["--trainers"]
        trainers.type = COPIES
        return super().parse_all(argv)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a cluster. Each is None if it is not given."""
    add = parser.add_argument
    rate = partial(parse_value, parse_rate, None)
    add(
        "--preset",
        choices=list(load_presets()),
        help="a known case with its flow and cluster, in place of --flow and --nodes",
    )
    add(
        "--nodes",
        type=partial(parse_value, int, Meta(ge=1, le=MAX_NODES)),
        metavar="N",
        help="simulate the flow on a cluster of N nodes. --placement says which actors share a node (default: "
        "blocks, neighbours in the flow)",
    )
    add(
        "--link",
        type=rate,
        metavar="RATE",
        help=f"rate of each node's link in each direction, such as 50GB/s (default: {LINK})",
    )
    add(
        "--switch", type=rate, metavar="RATE", help="rate of all links together (default: no limit)"
    )
    add(
        "--rollouts",
        type=COPIES,
        metavar="N",
        help="with --nodes or --preset: number of copies of the flow's actor rollout. --trainers N: of its trainer",
    )


def is_asked(arguments: argparse.Namespace) -> bool:
    return bool(arguments.nodes or arguments.preset)


def take_options(arguments: argparse.Namespace, given: dict[str, Any]) -> None:
    """Move the flags of configurations that have another meaning for a cluster: --trainers and --placement.

    Raise UsageError for flags of a cluster without its size, and for a preset with another flow.
    """
    if is_asked(arguments):
        arguments.trainers = given.pop("trainers", None)
        arguments.placement = given.pop("placement", None) or BLOCKS
        if arguments.check:
            raise UsageError("--check: it measures this machine: leave --nodes and --preset out")
        if arguments.preset and "flow" in given:
            raise UsageError("--preset and --flow: leave one of them out")
        return
    for name in OF_A_CLUSTER:
        if getattr(arguments, name) is not None:
            raise UsageError(f"--{name}: give --nodes or --preset, too")


def main(arguments: argparse.Namespace, flow: Flow) -> int:
    """Print the forecast of each way. Raise UsageError for flags that don't fit, RecordError for unreadable files."""
    stored = load_forecast()
    machine = machine_of(arguments, stored)
    preset = None
    if arguments.preset:
        preset = load_presets()[arguments.preset]
        case = case_of_preset(preset, arguments, machine)
    else:
        case = case_of_flow(flow, arguments, machine)
    check_case(case)
    forecasts = forecast(case, stored.ways)
    print_text(*describe_case(case, preset))
    print_table(forecast_table(forecasts))
    print_text(*say_notes(forecasts, stored, preset))
    return 0


def check_case(case: Case) -> None:
    """Raise UsageError for a flow that takes minutes to simulate, or no time, and for a placement that doesn't fit."""
    flow = case.scaled_flow()
    messages = sum(1 for edge in flow.edges if edge.bytes > INLINED_BYTES)
    if messages > MAX_MESSAGES:
        raise UsageError(
            f"the flow has {messages:,} large messages: give fewer rollouts, so that it has at most {MAX_MESSAGES:,}"
        )
    if not messages:
        size = format_bytes(INLINED_BYTES)
        raise UsageError(f"no message is larger than {size}, and only larger ones are simulated")
    place(flow, case.cluster.nodes, case.placement)


def machine_of(arguments: argparse.Namespace, stored: ForecastFile) -> NodeMachine:
    """Return the machine of the nodes: that of a file, that of the flags, or one like those of the campaigns.

    A process that is only described copies as fast as on the machines of the campaigns, and each one has a core.
    """
    if arguments.machine:
        machine = load_machine(arguments.machine)
        pair = median(machine.copies_of(LARGE, min(2, machine.cores)).rates)
        every = median(machine.copies_of(LARGE, machine.cores).rates)
        fault = median(machine.fault_seconds(machine.just_freed))
        return NodeMachine(pair, every, fault, machine.cores)
    cores = arguments.cores or inf
    if arguments.copy_gbps is not None:
        one, *rest = arguments.copy_gbps
        every = (rest[0] if rest else one) * GB
        pair = 2 * one * GB if rest else stored.pair_rate
        fault = arguments.fault_us * MICROSECOND
        return NodeMachine(min(pair, every), every, fault, cores)
    return replace(typical_machine(stored), cores=cores)


def make_cluster(arguments: argparse.Namespace, machine: NodeMachine, nodes: int) -> Cluster:
    link_rate = arguments.link or parse_rate(LINK)
    return Cluster(machine, arguments.nodes or nodes, link_rate, arguments.switch)


def case_of_preset(
    preset: ClusterPreset, arguments: argparse.Namespace, machine: NodeMachine
) -> Case:
    """Return the case of a preset. Flags override its numbers; nodes follow from the GPUs, without --nodes."""
    rollouts = arguments.rollouts or preset.rollouts
    trainers = arguments.trainers or preset.trainers
    cluster = make_cluster(arguments, machine, preset.count_nodes(rollouts, trainers))
    return Case(preset.make_flow(), cluster, arguments.placement, rollouts, trainers)


def case_of_flow(flow: Flow, arguments: argparse.Namespace, machine: NodeMachine) -> Case:
    cluster = make_cluster(arguments, machine, 1)
    rollouts = arguments.rollouts
    if rollouts is None and ROLLOUT in flow.actors:
        rollouts = 1
    return Case(flow, cluster, arguments.placement, rollouts, arguments.trainers)


def describe_case(case: Case, preset: ClusterPreset | None) -> list[str]:
    """Return what is simulated, in a few sentences."""
    flow = case.scaled_flow()
    cluster = case.cluster
    title = preset.title if preset else case.flow.title
    size = flow.bytes_per_iteration / GB
    nodes = "1 node" if cluster.nodes == 1 else f"{cluster.nodes:,} nodes"
    lines = [
        f"{title}: {len(flow.actors):,} actors on {nodes}, {size:,.4g} GB per iteration. "
        f"Each node sends and receives {format_rate(cluster.link_rate)}."
    ]
    return [*lines, say_machine(cluster.machine)]


def say_machine(machine: NodeMachine) -> str:
    cores = "a core per process" if machine.cores == inf else f"{machine.cores:g} cores"
    return (
        f"Machine of a node: two threads copy {machine.pair_rate / GB:.3g} GB/s, all cores together "
        f"{machine.memory_rate / GB:.3g} GB/s, {machine.fault_seconds / MICROSECOND:.2g} µs per page fault, {cores}."
    )


def say_notes(
    forecasts: Sequence[Forecast], stored: ForecastFile, preset: ClusterPreset | None
) -> list[str]:
    """Return what the columns mean, how far the simulation was checked, and what is assumed."""
    case = forecasts[0].asked.case
    lines = [
        say_full(case),
        "An iteration only moves data, and calls actors for that. Generation and training take time that is not in it.",
        say_calls(stored, len(case.scaled_flow().tasks)),
    ]
    if preset:
        lines.append(say_assumptions(preset))
    return [*lines, *say_links(stored.checks, case.cluster), say_checks(stored.checks)]


def say_full(case: Case) -> str:
    """Return what the last column of the table means."""
    used = f"the resource is in use for at least {FULL * 100:.0f} % of an iteration"
    if case.rollouts is None:
        return f"full from rollouts: yes if {used}. The flow has no actor named {ROLLOUT}, so no size is compared."
    return (
        f"full from rollouts: with this many rollouts or more, {used}, if there are as many trainers and nodes per "
        "rollout as here."
    )
