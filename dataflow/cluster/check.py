# SPDX-License-Identifier: Apache-2.0
"""Simulate the layouts that were measured, and keep both times.

python3 -m dataflow.cluster.check      writes results/evidence/cluster.json anew (make publish)

No number is fitted to these times, but copies are fitted to the demo's flow on one node, which some of them have, and
two assumptions were chosen after a comparison with them (docs/cluster.md). The costs come from one node: those of
campaigns, and for Ray Direct Transport with gloo those of tables of one node. What copies and page faults take comes
from the runs themselves, and the rate of a link is the one that was set. Calls take the same time on all machines.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean, median

import msgspec

from common.record import replace
from dataflow.analysis.campaigns import Campaigns, boot_of, keep_newest, load_campaigns
from dataflow.analysis.machine_costs import Rates, rates_of
from dataflow.analysis.result import Result
from dataflow.analysis.stored_costs import StoredCost, load_costs, shorten
from dataflow.cluster.costs import (
    COPIES,
    FORECAST,
    ForecastFile,
    LayoutCheck,
    WayCalls,
    WayCost,
)
from dataflow.cluster.hardware import UNLIMITED, Cluster, NodeMachine, parse_rate
from dataflow.cluster.measured_apart import (
    KEPT,
    PUBLISHED,
    calls_of_direct,
    calls_of_store,
    driver_seconds_at_most,
    faults_of_smaller,
    load_results,
    load_table,
)
from dataflow.cluster.ways import (
    Path,
    Places,
    bytes_on_path,
    process_seconds,
    seconds_of_calls,
    simulate_flow,
)
from dataflow.flows.catalogue import online_dpo
from dataflow.flows.flow import DRIVER, Flow
from dataflow.plan.options import CAMPAIGNS

BOOT_LENGTH = 4  # of its name in a table
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


@dataclass(frozen=True)
class MeasuredLayout:
    """A flow with the nodes and the network on which it was measured, to simulate it there."""

    name: str
    flow: Flow
    places: Places  # process -> node
    cluster: Cluster
    link_rate: float  # bytes per second, as set; 0 on one node

    def simulate_seconds(self, way: WayCost) -> float:
        """Return the seconds of an iteration in one way."""
        costs = way.costs_on(self.cluster.machine)
        return simulate_flow(self.flow, self.places, self.cluster, way.path, costs).seconds


def costs_of_ways() -> list[WayCost]:
    """Return the costs of all ways on one node."""
    stored = {}
    for cost in load_costs().costs:
        if cost.table == "headline":
            stored[cost.configuration] = cost
    of_store = calls_of_store()
    calls = {
        "store driver-queue": of_store,
        "store refs": of_store,
        "rdt gloo": calls_of_direct(),
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
        path_copies=bytes_on_path(flow, path, *COPIES[path]),
        copies=shorten(copies),
        faults=shorten(faults),
        fixed_seconds=fixed_seconds,
        smallest_bytes=smallest,
        smaller=smaller,
        calls=calls,
    )


def time_of_calls(path: Path, calls: WayCalls | None) -> float:
    """Return what the calls of the demo's flow take."""
    if calls is None:
        return 0.0
    call = calls.call.to_call()
    reading_call = calls.reading_call.to_call()
    return seconds_of_calls(online_dpo(), path, call, reading_call)


def check_layouts(ways: Sequence[WayCost]) -> list[LayoutCheck]:
    """Return each measured layout whose configuration is simulated, beside the simulation of it."""
    by_name = {way.configuration: way for way in ways}
    checks = []
    for folder in sorted((PUBLISHED / "cluster").iterdir()):
        if folder.is_dir():
            checks += check_results(load_results(folder), by_name)
    for name in ("fan-in", "cluster-driver"):
        if (PUBLISHED / name).exists():
            checks += check_results(load_results(PUBLISHED / name), by_name)
    campaigns = load_campaigns(CAMPAIGNS)
    for way in ways:
        checks += check_own_flow(campaigns, way)
    return checks


def check_results(results: Sequence[Result], ways: dict[str, WayCost]) -> list[LayoutCheck]:
    """Return the checks of the results of one machine."""
    rates = rates_of(results)
    checks = []
    for result in results:
        way = ways.get(result.configuration.name)
        if way and rates and result.status == "ok":
            checks.append(check_result(result, way, rates))
    return checks


def check_own_flow(campaigns: Campaigns, way: WayCost) -> list[LayoutCheck]:
    """Return the checks of OWN_FLOW in one way: of each boot only those with its newest code, as in other tables."""
    by_campaign = {}
    for name, results in campaigns.items():
        for result in results:
            is_wanted = (result.table, result.configuration.name) == (OWN_FLOW, way.configuration)
            if is_wanted and result.status == "ok":
                by_campaign[name] = result
    checks = []
    if by_campaign:
        for name, result in keep_newest(by_campaign).items():
            rates = rates_of(campaigns[name])
            if rates:
                checks.append(check_result(result, way, rates))
    return checks


def check_result(result: Result, way: WayCost, rates: Rates) -> LayoutCheck:
    """Simulate a result on its own machine, with the predicted page faults and with those that its runs counted."""
    layout = layout_of(result, rates)
    simulated_faults = count_simulated_faults(result.flow, way)
    counted_faults = result.faults_per_iteration
    return LayoutCheck(
        layout=layout.name,
        flow=result.workload.flow,
        configuration=result.configuration.name,
        iteration_bytes=result.workload.bytes_per_iteration,
        nodes=layout.cluster.nodes,
        link_rate=layout.link_rate,
        runs=len(result.shown_runs),
        measured_seconds=shorten(fmean(result.seconds)),
        simulated_seconds=shorten(layout.simulate_seconds(way)),
        simulated_faults=shorten(simulated_faults),
        counted_faults=None if counted_faults is None else shorten(counted_faults),
        seconds_with_counted_faults=simulate_counted_faults(
            layout, way, simulated_faults, counted_faults
        ),
    )


def simulate_counted_faults(
    layout: MeasuredLayout, way: WayCost, simulated_faults: float, counted_faults: float | None
) -> float | None:
    """Return the seconds of an iteration with as many page faults as counted.

    It is None if they were not counted, or if the simulation has none that could be multiplied.
    """
    if counted_faults is None or simulated_faults == 0:
        return None
    scaled = way.multiply_faults(counted_faults / simulated_faults)
    return shorten(layout.simulate_seconds(scaled))


def count_simulated_faults(flow: Flow, way: WayCost) -> float:
    """Return the page faults of all processes in a simulated iteration."""
    # Here a page fault takes one second, and nothing else takes any, so seconds are page faults.
    machine = dataclasses.replace(UNLIMITED, fault_seconds=1.0)
    only_faults = msgspec.structs.replace(way, fixed_seconds=0.0, calls=None)
    return process_seconds(flow, way.path, only_faults.costs_on(machine))


def layout_of(result: Result, rates: Rates) -> MeasuredLayout:
    """Return the layout on which a result was measured, with the rates of its machine."""
    places = places_of(result)
    nodes = len(set(places.values()))
    link = result.configuration.layout.link
    copy_rate = 1 / rates.byte_seconds
    machine = NodeMachine(
        pair_rate=copy_rate,
        memory_rate=copy_rate,  # two cores are all cores of these machines
        fault_seconds=rates.fault_seconds,
        cores=CORES,
    )
    set_rate = parse_rate(link) if nodes > 1 else 0.0
    # Nothing crosses a link on one node.
    link_rate = set_rate if nodes > 1 else inf
    cluster = Cluster(machine, nodes, link_rate, is_one_machine=True)
    name = f"{name_layout(nodes, link, result.flow)}, {boot_of(result)[:BOOT_LENGTH]}"
    return MeasuredLayout(name, result.flow, places, cluster, set_rate)


def places_of(result: Result) -> Places:
    """Return the node of each process of a result: all on one, if its runs name none."""
    places = dict.fromkeys([DRIVER, *result.flow.actors], 0)
    named = result.shown_runs[0].nodes
    return places | {name: node for name, node in named.items() if name in places}


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
        call=calls_of_store().call,
        driver_seconds_at_most=driver_seconds_at_most(),
        ways=ways,
        checks=check_layouts(ways),
    )


def main() -> None:
    """Write the file anew."""
    text = msgspec.json.format(msgspec.json.encode(make_forecast()), indent=1)
    replace(FORECAST, text + b"\n")


if __name__ == "__main__":
    main()
