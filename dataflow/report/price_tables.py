# SPDX-License-Identifier: Apache-2.0
"""Show what keeping freed memory gains as a function of what a page fault takes (docs/page-faults.md).

Gains of the machines of the campaigns are measured. Those of other prices are predicted with the costs that were fitted
to these machines (cost_model.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import geometric_mean

from dataflow.analysis.campaigns import Row
from dataflow.analysis.cost_model import MachineCosts
from dataflow.analysis.stored_costs import CostFile, StoredCost
from dataflow.report.machine_columns import NAME_LENGTH, divide_means
from dataflow.report.tables import (
    Column,
    Section,
    format_microseconds,
    format_significant,
    make_table,
)
from dataflow.units import GB, MICROSECOND

NAME = "fault-price"
TABLE = "headline"
KEPT = " --retain-memory"
COMPARED = ("store driver-queue", "store refs", "graph shm")
PRICES = (0.1e-6, 0.25e-6, 0.5e-6, 1e-6, 2e-6, 4e-6, 8e-6)  # seconds of a page fault
PREDICTED = "predicted"


@dataclass(frozen=True)
class PricedGains:
    """How many times as fast configurations are if memory is kept, where a page fault takes so many seconds."""

    place: str
    fault_seconds: float
    gains: Mapping[str, float]  # by the name without kept memory


def build_prices(by_name: Mapping[str, Row], stored: CostFile) -> Section:
    """Return a table of `list_priced_gains`. The section is empty without them."""
    rows = list_priced_gains(by_name, stored)
    if not rows:
        return Section(NAME, "")
    columns = [
        Column("µs per page fault", lambda row: format_microseconds(row.fault_seconds)),
        Column("where", lambda row: row.place, is_text=True),
        *map(column_of, COMPARED),
    ]
    byte_seconds = average_byte_seconds(stored)
    lowest = min(machine.fault_seconds for machine in stored.machines) / MICROSECOND
    note = (
        "How many times as fast each configuration is with the four variables, by the means. Predicted: for a machine "
        f"whose cores copy {format_significant(1 / byte_seconds / GB)} GB/s together, as those of the campaigns do on "
        "average, with the page faults that were counted there. No campaign had page faults of less than "
        f"{format_significant(lowest)} µs."
    )
    return Section(NAME, "", "", make_table(rows, columns), notes=[note])


def list_priced_gains(by_name: Mapping[str, Row], stored: CostFile) -> list[PricedGains]:
    """Return the measured gains of each machine, and the predicted ones of other prices, the lowest price first.

    Return [] if a configuration was not measured, or has no costs.
    """
    costs = {cost.configuration: cost for cost in stored.costs if cost.table == TABLE}
    needed = {*COMPARED, *(name + KEPT for name in COMPARED)}
    if not (by_name.keys() >= needed and costs.keys() >= needed):
        return []
    rows = measured_gains(by_name, stored)
    rows += predicted_gains(costs, average_byte_seconds(stored))
    return sorted(rows, key=lambda row: row.fault_seconds)


def average_byte_seconds(stored: CostFile) -> float:
    """Return what all cores together take to copy a byte, on the machines to which the costs are fitted."""
    return geometric_mean(machine.byte_seconds for machine in stored.machines)


def column_of(name: str) -> Column:
    def cell(row: PricedGains) -> str:
        gain = row.gains.get(name)
        return "-" if gain is None else format_significant(gain)

    return Column(f"`{name}`", cell)


def measured_gains(by_name: Mapping[str, Row], stored: CostFile) -> list[PricedGains]:
    """Return what the campaigns of each machine have measured."""
    gains = {name: divide_means(by_name[name + KEPT], by_name[name]) for name in COMPARED}
    rows = []
    for machine in stored.machines:
        of_machine = {}
        for name, by_boot in gains.items():
            if machine.boot in by_boot:
                of_machine[name] = by_boot[machine.boot]
        place = f"measured on {machine.boot[:NAME_LENGTH]}"
        rows.append(PricedGains(place, machine.fault_seconds, of_machine))
    return rows


def predicted_gains(costs: Mapping[str, StoredCost], byte_seconds: float) -> list[PricedGains]:
    """Return what the costs predict for each of PRICES. byte_seconds: of a byte that all cores copy together."""
    rows = []
    for price in PRICES:
        gains = {}
        for name in COMPARED:
            plain = seconds_of(costs[name], byte_seconds, price)
            kept = seconds_of(costs[name + KEPT], byte_seconds, price)
            gains[name] = plain / kept
        rows.append(PricedGains(PREDICTED, price, gains))
    return rows


def seconds_of(cost: StoredCost, byte_seconds: float, fault_seconds: float) -> float:
    """Return the seconds of an iteration of the fitted messages, where a byte and a page fault take so many seconds."""
    copy_seconds = cost.iteration_bytes * byte_seconds
    machine = MachineCosts("an assumed machine", copy_seconds, fault_seconds)
    return cost.seconds_on(machine, cost.iteration_bytes)
