# SPDX-License-Identifier: Apache-2.0
"""Simulate the layouts that were measured, and keep both times.

python3 -m dataflow.cluster.check      writes results/evidence/cluster.json anew (make publish)

Nothing is fitted to these layouts. The costs come from one node: those of campaigns, and for Ray Direct Transport with
gloo those of tables of one node. What copies and page faults take comes from the runs themselves, and the rate of a
link is the one that was set.
"""

from collections.abc import Sequence
from pathlib import Path as FilePath
from statistics import fmean, median

import msgspec

from common.record import replace
from dataflow.analysis.campaigns import load_campaigns
from dataflow.analysis.machine_costs import Rates, rates_of
from dataflow.analysis.result import Result, group_results
from dataflow.analysis.stored_costs import StoredCost, load_costs, shorten
from dataflow.cluster.costs import (
    FORECAST,
    ForecastFile,
    LayoutCheck,
    WayCost,
)
from dataflow.cluster.hardware import Cluster, NodeMachine, parse_rate
from dataflow.cluster.ways import Path, bytes_on_path, simulate_flow
from dataflow.flows.catalogue import online_dpo
from dataflow.flows.flow import DRIVER, Flow
from dataflow.plan.options import CAMPAIGNS, RESULTS
from dataflow.records import files

PUBLISHED = RESULTS / "published"
CORES = 2  # of each machine with these records
KEPT = " --retain-memory"
PATHS = {
    "store driver-queue": Path.DRIVER,
    "store refs": Path.REFERENCES,
    "rdt gloo": Path.STREAM,
    "torch gloo": Path.STREAM,
}
OF_CAMPAIGNS = (
    "store driver-queue",
    "store driver-queue" + KEPT,
    "store refs",
    "store refs" + KEPT,
    "torch gloo",
)
# Campaigns do not have it with large messages.
OF_TABLES = ("rdt gloo", "rdt gloo" + KEPT)
TABLES_OF_ONE_NODE = ("configurations", "rdt")
OWN_FLOW = "own-flow"  # a table of the campaigns, with two rollouts and a trainer


def load_results(folder: FilePath) -> list[Result]:
    return group_results(files.load_all([folder]))


def path_of(configuration: str) -> Path | None:
    """Return the way of a configuration; None if it is not simulated."""
    return PATHS.get(configuration.removesuffix(KEPT))


def costs_of_ways() -> list[WayCost]:
    """Return the costs of all ways on one node."""
    stored = {}
    for cost in load_costs().costs:
        if cost.table == "headline":
            stored[cost.configuration] = cost
    ways = [way_of_campaigns(stored[name]) for name in OF_CAMPAIGNS]
    return [*ways, *(way_of_tables(name) for name in OF_TABLES)]


def way_of_campaigns(cost: StoredCost) -> WayCost:
    path = PATHS[cost.configuration.removesuffix(KEPT)]
    return WayCost(
        path=path,
        retains_memory=KEPT in cost.configuration,
        configuration=cost.configuration,
        machines=cost.machines,
        iteration_bytes=cost.iteration_bytes,
        path_bytes=bytes_on_path(online_dpo(), path),
        copies=cost.copies,
        faults=cost.faults,
        fixed_seconds=cost.fixed_seconds,
    )


def way_of_tables(name: str) -> WayCost:
    """Return the cost of a configuration on one node, by the mean over the tables that have it."""
    flow = online_dpo()
    size = flow.bytes_per_iteration
    copies = []
    faults = []
    for table in TABLES_OF_ONE_NODE:
        results = load_results(PUBLISHED / table)
        rates = rates_of(results)
        for result in results:
            is_wanted = result.label == name and result.status == "ok"
            if is_wanted and rates and result.workload.bytes_per_iteration == size:
                count = result.faults_per_iteration or 0.0
                copying = fmean(result.seconds) - count * rates.fault_seconds
                copies.append(copying / (size * rates.byte_seconds))
                faults.append(count)
    path = PATHS[name.removesuffix(KEPT)]
    return WayCost(
        path=path,
        retains_memory=KEPT in name,
        configuration=name,
        machines=len(copies),
        iteration_bytes=size,
        path_bytes=bytes_on_path(flow, path),
        copies=shorten(fmean(copies)),
        faults=shorten(fmean(faults)),
        fixed_seconds=0.0,
    )


def check_layouts(ways: Sequence[WayCost]) -> list[LayoutCheck]:
    """Return each measured layout whose configuration is simulated, beside the simulation of it."""
    by_name = {way.configuration: way for way in ways}
    checks = []
    for folder in sorted((PUBLISHED / "cluster").iterdir()):
        if folder.is_dir():
            checks += check_results(load_results(folder), by_name)
    if (PUBLISHED / "fan-in").exists():
        checks += check_results(load_results(PUBLISHED / "fan-in"), by_name)
    for campaign in load_campaigns(CAMPAIGNS).values():
        checks += check_results(campaign, by_name, table=OWN_FLOW)
    return checks


def check_results(
    results: Sequence[Result], ways: dict[str, WayCost], table: str = ""
) -> list[LayoutCheck]:
    """Return the checks of the results of one machine, or of one table of it."""
    rates = rates_of(results)
    checks = []
    for result in results:
        way = ways.get(result.configuration.name)
        is_in_table = not table or result.table == table
        if way and rates and is_in_table and result.status == "ok":
            checks.append(check_result(result, way, rates))
    return checks


def check_result(result: Result, way: WayCost, rates: Rates) -> LayoutCheck:
    """Simulate the layout of a result on its own machine."""
    nodes = nodes_of(result)
    count = len(set(nodes.values()))
    link = result.configuration.layout.link
    link_rate = parse_rate(link) if count > 1 else 0.0
    rate = 1 / rates.byte_seconds
    machine = NodeMachine(rate, rate, rates.fault_seconds, CORES)
    cluster = Cluster(machine, count, link_rate or rate, is_one_machine=True)
    outcome = simulate_flow(result.flow, nodes, cluster, way.path, way.byte_costs(machine))
    return LayoutCheck(
        layout=name_layout(count, link, result.flow),
        flow=result.workload.flow,
        configuration=result.configuration.name,
        iteration_bytes=result.workload.bytes_per_iteration,
        nodes=count,
        link_rate=link_rate,
        runs=len(result.shown_runs),
        measured_seconds=shorten(fmean(result.seconds)),
        simulated_seconds=shorten(outcome.seconds),
    )


def nodes_of(result: Result) -> dict[str, int]:
    """Return the node of each process of a result: all on one, if its runs name none."""
    nodes = dict.fromkeys([DRIVER, *result.flow.actors], 0)
    named = result.shown_runs[0].nodes
    return nodes | {name: node for name, node in named.items() if name in nodes}


def name_layout(nodes: int, link: str, flow: Flow) -> str:
    actors = f"{len(flow.actors)} actors"
    if nodes == 1:
        return f"one node, {actors}"
    return f"{nodes} nodes, {link}, {actors}"


def typical_rates() -> Rates:
    """Return the median of the machines to which the costs were fitted."""
    machines = load_costs().machines
    return Rates(
        median(machine.byte_seconds for machine in machines),
        median(machine.fault_seconds for machine in machines),
    )


def make_forecast() -> ForecastFile:
    ways = costs_of_ways()
    typical = typical_rates()
    return ForecastFile(
        pair_rate=shorten(1 / typical.byte_seconds),
        fault_seconds=shorten(typical.fault_seconds),
        ways=ways,
        checks=check_layouts(ways),
    )


def main() -> None:
    """Write the file anew."""
    text = msgspec.json.format(msgspec.json.encode(make_forecast()), indent=1)
    replace(FORECAST, text + b"\n")


if __name__ == "__main__":
    main()
