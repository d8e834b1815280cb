# SPDX-License-Identifier: Apache-2.0
"""Simulate the layouts that were measured, and keep both times.

python3 -m dataflow.cluster.check      writes results/evidence/cluster.json anew (make publish)

Nothing is fitted to these layouts. The costs come from one node: those of campaigns, and for Ray Direct Transport with
gloo those of tables of one node. What copies and page faults take comes from the runs themselves, and the rate of a
link is the one that was set. Calls take as much longer or shorter as the round trips of the same campaign did.
"""

from collections.abc import Sequence
from math import inf
from statistics import fmean, median

import msgspec

from common.record import replace
from dataflow.analysis.campaigns import boot_of, load_campaigns
from dataflow.analysis.machine_costs import Rates, rates_of
from dataflow.analysis.result import Result
from dataflow.analysis.stored_costs import StoredCost, load_costs, shorten
from dataflow.cluster.costs import (
    FORECAST,
    ForecastFile,
    LayoutCheck,
    WayCalls,
    WayCost,
)
from dataflow.cluster.hardware import Cluster, NodeMachine, parse_rate
from dataflow.cluster.measured_apart import (
    KEPT,
    PUBLISHED,
    call_factor,
    calls_of_direct,
    calls_of_store,
    driver_seconds_at_most,
    faults_of_smaller,
    load_results,
    load_table,
    typical_round_trip,
)
from dataflow.cluster.ways import Path, bytes_on_path, seconds_of_calls, simulate_flow
from dataflow.flows.catalogue import online_dpo
from dataflow.flows.flow import DRIVER, Flow
from dataflow.plan.options import CAMPAIGNS

CORES = 2  # of each machine with these records
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


def costs_of_ways(round_trip: float) -> list[WayCost]:
    """Return the costs of all ways on one node. `round_trip`: its seconds on the median machine."""
    stored = {}
    for cost in load_costs().costs:
        if cost.table == "headline":
            stored[cost.configuration] = cost
    of_store = calls_of_store()
    calls = {
        "store driver-queue": of_store,
        "store refs": of_store,
        "rdt gloo": calls_of_direct(round_trip),
    }
    of_campaigns = [
        way_of_campaigns(stored[name], calls.get(base_of(name))) for name in OF_CAMPAIGNS
    ]
    of_tables = [way_of_tables(name, calls.get(base_of(name))) for name in OF_TABLES]
    return [*of_campaigns, *of_tables]


def base_of(configuration: str) -> str:
    return configuration.removesuffix(KEPT)


def way_of_campaigns(cost: StoredCost, calls: WayCalls | None) -> WayCost:
    """Return the cost of a configuration of the campaigns, whose copies don't explain the time of its calls."""
    path = PATHS[base_of(cost.configuration)]
    byte_seconds = typical_rates().byte_seconds
    of_calls = time_of_calls(path, calls) / (cost.iteration_bytes * byte_seconds)
    return make_way(
        cost.configuration,
        machines=cost.machines,
        copies=cost.copies - of_calls,
        faults=cost.faults,
        fixed_seconds=cost.fixed_seconds,
        calls=calls,
    )


def way_of_tables(name: str, calls: WayCalls | None) -> WayCost:
    """Return the cost of a configuration on one node, by the mean over the tables that have it."""
    size = online_dpo().bytes_per_iteration
    of_calls = time_of_calls(PATHS[base_of(name)], calls)
    copies = []
    faults = []
    for table in TABLES_OF_ONE_NODE:
        results = load_table(table)
        rates = rates_of(results)
        for result in results:
            is_wanted = result.label == name and result.status == "ok"
            if is_wanted and rates and result.workload.bytes_per_iteration == size:
                count = result.faults_per_iteration or 0.0
                copying = fmean(result.seconds) - count * rates.fault_seconds - of_calls
                copies.append(copying / (size * rates.byte_seconds))
                faults.append(count)
    return make_way(
        name,
        machines=len(copies),
        copies=fmean(copies),
        faults=fmean(faults),
        fixed_seconds=0.0,
        calls=calls,
    )


def make_way(
    name: str,
    *,
    machines: int,
    copies: float,
    faults: float,
    fixed_seconds: float,
    calls: WayCalls | None,
) -> WayCost:
    """Return the cost of a configuration with the demo's flow.

    How many page faults smaller messages have is only known of those in the object store.
    """
    flow = online_dpo()
    path = PATHS[base_of(name)]
    is_kept = name.endswith(KEPT)
    smallest = min(edge.bytes for edge in flow.edges)
    smaller = [] if path == Path.STREAM else faults_of_smaller(is_kept, smallest)
    return WayCost(
        path=path,
        retains_memory=is_kept,
        configuration=name,
        machines=machines,
        iteration_bytes=flow.bytes_per_iteration,
        path_bytes=bytes_on_path(flow, path),
        copies=shorten(copies),
        faults=shorten(faults),
        fixed_seconds=fixed_seconds,
        smallest_bytes=smallest,
        smaller=smaller,
        calls=calls,
    )


def time_of_calls(path: Path, calls: WayCalls | None) -> float:
    """Return what the calls of the demo's flow take on the median machine."""
    if calls is None:
        return 0.0
    machine = NodeMachine(pair_rate=inf, memory_rate=inf, fault_seconds=0.0, cores=inf)
    call = calls.call.on(machine)
    reading_call = calls.reading_call.on(machine)
    return seconds_of_calls(online_dpo(), path, call, reading_call)


def check_layouts(ways: Sequence[WayCost], round_trip: float) -> list[LayoutCheck]:
    """Return each measured layout whose configuration is simulated, beside the simulation of it.

    `round_trip`: its seconds on the median machine. How long calls took on a machine is known if it has a campaign.
    """
    by_name = {way.configuration: way for way in ways}
    campaigns = load_campaigns(CAMPAIGNS).values()
    factors = {}
    for campaign in campaigns:
        factors[boot_of(campaign[0])] = call_factor(campaign, round_trip)
    checks = []
    for folder in sorted((PUBLISHED / "cluster").iterdir()):
        if folder.is_dir():
            checks += check_results(load_results(folder), by_name)
    for name in ("fan-in", "cluster-driver"):
        if (PUBLISHED / name).exists():
            results = load_results(PUBLISHED / name)
            factor = factors.get(boot_of(results[0]), 1.0)
            checks += check_results(results, by_name, factor=factor)
    for campaign in campaigns:
        factor = call_factor(campaign, round_trip)
        checks += check_results(campaign, by_name, table=OWN_FLOW, factor=factor)
    return checks


def check_results(
    results: Sequence[Result], ways: dict[str, WayCost], table: str = "", factor: float = 1.0
) -> list[LayoutCheck]:
    """Return the checks of the results of one machine, or of one table of it.

    `factor`: how many times as long as on the median machine calls take there.
    """
    rates = rates_of(results)
    checks = []
    for result in results:
        way = ways.get(result.configuration.name)
        is_in_table = not table or result.table == table
        if way and rates and is_in_table and result.status == "ok":
            checks.append(check_result(result, way, rates, factor))
    return checks


def check_result(result: Result, way: WayCost, rates: Rates, factor: float) -> LayoutCheck:
    """Simulate the layout of a result on its own machine."""
    nodes = nodes_of(result)
    count = len(set(nodes.values()))
    link = result.configuration.layout.link
    link_rate = parse_rate(link) if count > 1 else 0.0
    rate = 1 / rates.byte_seconds
    machine = NodeMachine(rate, rate, rates.fault_seconds, CORES, factor)
    cluster = Cluster(machine, count, link_rate or rate, is_one_machine=True)
    outcome = simulate_flow(result.flow, nodes, cluster, way.path, way.costs_on(machine))
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
    round_trip = typical_round_trip(load_campaigns(CAMPAIGNS))
    ways = costs_of_ways(round_trip)
    typical = typical_rates()
    return ForecastFile(
        pair_rate=shorten(1 / typical.byte_seconds),
        fault_seconds=shorten(typical.fault_seconds),
        call=calls_of_store().call,
        driver_seconds_at_most=driver_seconds_at_most(round_trip),
        ways=ways,
        checks=check_layouts(ways, round_trip),
    )


def main() -> None:
    """Write the file anew."""
    text = msgspec.json.format(msgspec.json.encode(make_forecast()), indent=1)
    replace(FORECAST, text + b"\n")


if __name__ == "__main__":
    main()
