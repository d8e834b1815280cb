# SPDX-License-Identifier: Apache-2.0
"""Draw the simulated times of one node over the number of its actors, with those that were measured on the lines."""

from collections.abc import Sequence

from dataflow.analysis.machine_costs import Rates, rates_of
from dataflow.analysis.result import Result
from dataflow.cluster.costs import ForecastFile
from dataflow.cluster.fan_in import (
    MESSAGE_BYTES,
    FanInLine,
    load_fan_in,
    rates_on,
    simulate_lines,
)
from dataflow.report.cluster_forecast import GOAL, GOAL_TEXT
from dataflow.report.drawing import EXPLAIN_SAMPLES, thin
from dataflow.report.line_charts import LineChart, Series
from dataflow.report.provenance import provenance
from dataflow.report.result_charts import EXPLAIN_MARK, points_of
from dataflow.report.tables import (
    Section,
    format_microseconds,
    format_significant,
)
from dataflow.units import GB, MILLISECOND, format_bytes

NAME = "cluster-chart"


def fan_in_section(stored: ForecastFile) -> Section:
    """Return the chart, and how many of the measured times the simulation is near."""
    measured = load_fan_in()
    lines = simulate_lines(measured, stored)
    rates = rates_on(measured, stored)
    is_own = rates_of(measured) is not None
    sentence = f"{describe_machine(rates, is_own)} {describe_errors(lines)}"
    return Section(NAME, "", sentence, chart=draw_fan_in(lines, measured, sentence))


def describe_machine(rates: Rates, is_own: bool) -> str:
    """Return what copies and page faults take in the simulation, and where that is from."""
    rate = format_significant(1 / rates.byte_seconds / GB)
    fault = format_microseconds(rates.fault_seconds)
    origin = "as these runs measured" if is_own else "the median machine of the campaigns"
    return (
        f"Simulated with {rate} GB/s copied by both cores and {fault} µs per page fault ({origin})."
    )


def describe_errors(lines: Sequence[FanInLine]) -> str:
    """Return how many measured times the simulation is near, and up to how many actors that is known."""
    errors = []
    largest = 0
    for line in lines:
        for actors, result in line.measured.items():
            simulated = line.simulated[actors] / MILLISECOND
            errors += [simulated / point.value - 1 for point in points_of(result)]
            largest = max(largest, actors)
    if not errors:
        return "Nothing of it was measured."
    near = [error for error in errors if abs(error) <= GOAL]
    farthest = max(errors, key=abs)
    return (
        f"{len(near)} of {len(errors)} measured times, with up to {largest} actors, are simulated within "
        f"{GOAL_TEXT}; the largest difference is {farthest * 100:+.0f} %."
    )


def draw_fan_in(lines: Sequence[FanInLine], measured: Sequence[Result], sentence: str) -> LineChart:
    """Return the chart: a line per configuration, which is dashed where nothing was measured."""
    series = [make_series(line) for line in lines]
    caption = [f"Lines: simulated. {sentence}"]
    if measured:
        caption += [f"{EXPLAIN_MARK} {EXPLAIN_SAMPLES}", *provenance(measured)]
    size = format_bytes(MESSAGE_BYTES)
    return LineChart(
        "cluster",
        f"All actors but one send {size} to the last one, on one node with two cores",
        series,
        "actors",
        str,
        caption,
    )


def make_series(line: FanInLine) -> Series:
    """Return the line of a configuration in milliseconds, with the means and the iterations that were measured."""
    simulated = [(actors, seconds / MILLISECOND) for actors, seconds in line.simulated.items()]
    means = []
    samples = []
    for actors, result in sorted(line.measured.items()):
        for point in points_of(result):
            means.append((actors, point.value))
            samples += [(actors, milliseconds) for milliseconds in thin(point.samples)]
    return Series(line.configuration, simulated, samples, measured=means)
