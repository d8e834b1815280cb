# SPDX-License-Identifier: Apache-2.0
"""Predict each machine of the campaigns from the others: its times are left out of the fit, and compared with it."""

from dataclasses import dataclass

from dataflow.analysis.campaigns import Campaigns
from dataflow.analysis.cost_model import Cost, Observation, by_machine, fit
from dataflow.analysis.machine_costs import group_measured, observe


@dataclass(frozen=True)
class LeftOutTime:
    """What a configuration took on a machine, and what the costs on the other machines predict for it."""

    configuration: str
    table: str
    machine: str  # the boot
    measured_seconds: float  # mean of the timed iterations
    # None: the others do not explain this configuration, so nothing predicts it.
    predicted_seconds: float | None


def predict_left_out(campaigns: Campaigns) -> list[LeftOutTime]:
    """Return a prediction for each configuration and machine, if at least two other machines have measured it.

    What a copy and a page fault take is known of the machine that is left out. How many copies and page faults there
    are is not: both come from the others.
    """
    found = []
    for measured in group_measured(campaigns).values():
        newest, _ = measured[-1]
        size = newest.workload.bytes_per_iteration
        known = by_machine([observe(result, rates, True) for result, rates in measured])
        for position, left_out in enumerate(known):
            others = [*known[:position], *known[position + 1 :]]
            cost = fit(others, size)
            if cost is None:
                continue
            item = LeftOutTime(
                configuration=newest.label,
                table=newest.table,
                machine=left_out.costs.machine,
                measured_seconds=left_out.seconds,
                predicted_seconds=predict_seconds(cost, left_out),
            )
            found.append(item)
    return found


def predict_seconds(cost: Cost, left_out: Observation) -> float | None:
    """Return the seconds on a machine, with the page faults of the others; None if the fit does not explain them."""
    return cost.seconds_on(left_out.costs) if cost.is_explained else None
