# SPDX-License-Identifier: Apache-2.0
"""Simulate how long an iteration takes with more and more actors on one node, beside what was measured there.

All actors but one send a message to the last one (the flow `fan-in`). Nothing is fitted to these times. What copies and
page faults take comes from the measured runs; without any, it is that of the median machine of the campaigns.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dataflow.analysis.machine_costs import Rates, rates_of
from dataflow.analysis.result import Result
from dataflow.cluster.check import CORES
from dataflow.cluster.costs import ForecastFile, WayCost
from dataflow.cluster.hardware import Cluster, NodeMachine
from dataflow.cluster.measured_apart import PUBLISHED, load_results
from dataflow.cluster.ways import simulate_flow
from dataflow.flows.catalogue import build_flow
from dataflow.flows.flow import DRIVER

FAN_IN = "fan-in"  # the flow, and the folder of its records
MESSAGE_BYTES = 32 * 2**20
ACTORS = (2, 4, 8, 12, 16, 24, 32, 48, 64)
CONFIGURATIONS = (
    "store driver-queue",
    "store refs",
    "store refs --retain-memory",
    "rdt gloo",
    "torch gloo",
)


@dataclass(frozen=True)
class FanInLine:
    """The times of one configuration by the number of actors."""

    configuration: str
    simulated: dict[int, float]  # actors -> seconds
    measured: dict[int, Result]  # actors -> result

    @property
    def actors(self) -> list[int]:
        return [*self.simulated]


def load_fan_in() -> list[Result]:
    """Return what was measured of FAN_IN on one node; [] if nothing was."""
    folder = PUBLISHED / FAN_IN
    if not folder.exists():
        return []
    results = [result for result in load_results(folder) if is_simulated(result)]
    return [result for result in results if result.status == "ok"]


def is_simulated(result: Result) -> bool:
    """Return whether a result has the flow and the messages of the simulation."""
    workload = result.workload
    is_fan_in = workload.flow == FAN_IN
    return is_fan_in and workload.sizes.get("message_bytes") == MESSAGE_BYTES


def rates_on(results: Sequence[Result], stored: ForecastFile) -> Rates:
    """Return what copies and page faults took in these runs; without any, on the median machine."""
    return rates_of(results) or Rates(1 / stored.pair_rate, stored.fault_seconds)


def simulate_lines(results: Sequence[Result], stored: ForecastFile) -> list[FanInLine]:
    """Return a line for each of CONFIGURATIONS, with the results that have measured it."""
    rates = rates_on(results, stored)
    ways = {way.configuration: way for way in stored.ways}
    lines = []
    for name in CONFIGURATIONS:
        measured = {}
        for result in results:
            if result.configuration.name == name:
                measured[int(result.workload.sizes["actors"])] = result
        actors = sorted({*ACTORS, *measured})
        simulated = {count: simulate_actors(count, ways[name], rates) for count in actors}
        lines.append(FanInLine(name, simulated, measured))
    return lines


def simulate_actors(actors: int, way: WayCost, rates: Rates) -> float:
    """Return the seconds of an iteration with so many actors on one node."""
    flow = build_flow(FAN_IN, {"message_bytes": MESSAGE_BYTES, "actors": actors}, None)
    rate = 1 / rates.byte_seconds
    machine = NodeMachine(rate, rate, rates.fault_seconds, CORES)
    cluster = Cluster(machine, nodes=1, link_rate=rate, is_one_machine=True)
    places = dict.fromkeys([DRIVER, *flow.actors], 0)
    return simulate_flow(flow, places, cluster, way.path, way.costs_on(machine)).seconds
