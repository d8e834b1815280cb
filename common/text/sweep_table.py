"""The cost model of each transport as a table and sentences."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from common.analysis.results import Result
from common.cost.cost_model import Estimate
from common.cost.costs import Costs, costs_of, held_out, knees
from common.text.screen import point_words, print_table
from common.text.tables import Column, csv_table, markdown_table, three_digits
from common.units import format_bytes

MIB = 2**20


def columns() -> list[Column]:
    """Of a line for each Costs: the terms of the model with their 95 % intervals, and how far medians lie off it."""
    return [
        Column("transport", lambda costs: costs.name),
        Column("µs a message", _term("message", 1e6)),
        Column("and if over 100 KiB", _term("stored message", 1e6), 4),
        Column("and a tensor over 1 MiB", _term("threaded tensor", 1e6), 4),
        Column("µs a tensor more", _term("tensor", 1e6), 1),
        Column("µs a MiB", _term("byte", 1e6 * MIB)),
        Column("B, GB/s", _rate, 2),
        Column("knee", lambda costs: format_bytes(costs.fit.knee_bytes) if costs.fit.knee_bytes else "none", 3),
        Column("µs a MiB beyond", _term("byte beyond the knee", 1e6 * MIB), 3),
        Column("residuals", lambda costs: f"{min(costs.fit.residuals):+.0%} to {max(costs.fit.residuals):+.0%}", 2),
        Column("sizes", lambda costs: f"{len(costs.fit.points)}, to {format_bytes(_largest(costs))}", 5),
    ]


def _largest(costs: Costs) -> int:
    return max(point.size.bytes for point in costs.fit.points)


def _shown(estimate: Estimate, factor: float) -> str:
    value = three_digits(estimate.value * factor)
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value} ({three_digits(estimate.low * factor)} to {three_digits(estimate.high * factor)})"


def _term(term: str, factor: float) -> Callable[[Costs], str]:
    """A term that no point has any of was not measured; one that has come out as nothing is told so."""

    def cell(costs: Costs) -> str:
        index = costs.fit.index(term)
        if not any(costs.fit.features(point.size)[index] for point in costs.fit.points):
            return "-"
        estimate = costs.fit.estimate(term)
        return _shown(estimate, factor) if estimate.value else "none seen"

    return cell


def _rate(costs: Costs) -> str:
    """Of rows that copy what is large: nobody moved the bytes of the others."""
    seconds = costs.fit.estimate("byte").value
    if not max(costs.results, key=lambda result: result.record.bytes_per_trip).payload_copied:
        return "mapped"
    return three_digits(1e-9 / seconds) if seconds else "-"


def sentences(costs: Mapping[str, Costs]) -> list[str]:
    """The knees and what they are called, and what the fits say of sizes that they do not know."""
    found = [f"{name} bends at {words}." for name, words in knees(costs).items()]
    found += [f"{words}." for own in costs.values() if (words := held_out(own))]
    worst = {name: float(np.abs(own.fit.residuals).max()) for name, own in costs.items()}
    loose = [f"{name} ({share:.0%})" for name, share in worst.items() if share > 0.25]
    if loose:
        found.append(f"Medians far off the fit: {', '.join(loose)}; repeat these sweeps on a quiet machine.")
    return found


def print_costs(results: Sequence[Result], form: str) -> None:
    """The fits of sweeps; as text also the points that have no time, knees, and what was foretold."""
    costs = costs_of(results)
    if form != "text":
        print((csv_table if form == "csv" else markdown_table)(list(costs.values()), columns()))
        return
    if costs:
        print_table(list(costs.values()), columns())
    for result in results:
        if result.failure:
            print(f"{result.name}, {point_words(result.runs[0].at)}: {result.failure}")
    for sentence in sentences(costs):
        print(sentence)


def markdown(costs: Mapping[str, Costs]) -> str:
    """For docs/."""
    return "\n".join([markdown_table(list(costs.values()), columns()), "", *(f"* {s}" for s in sentences(costs))])
