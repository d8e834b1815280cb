# SPDX-License-Identifier: Apache-2.0
"""Show what clusters are forecast to do, and how the simulation compares with what was measured."""

from collections.abc import Sequence

from dataflow.cluster.costs import LayoutCheck
from dataflow.cluster.forecast import Forecast
from dataflow.cluster.presets import ClusterPreset
from dataflow.report.tables import Column, TextTable, format_milliseconds, make_table

GOAL = 0.2  # of the measured time, within which the simulation should be


def say_checks(checks: Sequence[LayoutCheck]) -> str:
    """Return how many measured layouts the simulation is near, and that larger ones were not measured."""
    near = [check for check in checks if abs(check.error) <= GOAL]
    nodes = max(check.nodes for check in checks)
    return (
        f"Not measured: a simulation. It is within {GOAL:.0%} of {len(near)} of {len(checks)} measured layouts, of up "
        f"to {nodes} nodes (docs/cluster.md)."
    )


def say_assumptions(preset: ClusterPreset) -> str:
    return f"Source: {preset.source}. Assumed: {preset.assumed}."


def format_full(item: Forecast) -> str:
    """Return from how many rollouts on a resource is full."""
    point = item.full_from
    if point is None:
        return "-"
    if point.case.rollouts is None:
        return "yes"
    nodes = point.case.cluster.nodes
    return f"{point.case.rollouts} on {nodes} {'node' if nodes == 1 else 'nodes'}"


COLUMNS = (
    Column("way", lambda item: item.way.label),
    Column("memory kept", lambda item: "yes" if item.way.retains_memory else "no", is_text=True),
    Column("ms per iteration", lambda item: format_milliseconds(item.asked.seconds, 3)),
    Column("longest in use", lambda item: item.asked.limit, is_text=True),
    Column("in use", lambda item: f"{item.asked.share:.0%}"),
    Column("full from rollouts", format_full, is_text=True),
)


def forecast_table(forecasts: Sequence[Forecast]) -> TextTable:
    return make_table(forecasts, COLUMNS)
