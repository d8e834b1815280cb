"""The cost model of each transport that was swept over sizes: what was fitted, how far it holds, and what ends it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from common.analysis.results import Result
from common.cost.cost_model import Fit, fit
from common.cost.size import Point, Size, size_of
from common.flow.flow import packed
from common.record.rows import transports
from common.units import format_bytes

HELD_OUT_ABOVE_BYTES = 64 * 2**20  # the fit that is tested knows trips up to here, and the rounding of their messages
ROUNDING = 1.001
TOLERANCE = 0.10
PAGE_BYTES = 4096
FAULTED_MORE = 0.25  # of a trip's bytes: so many more in fresh pages, and that is what a byte costs more for
BUSY = 0.85  # of all cores, throughout the trips
HELD_TIMES = 3.4  # a trip's bytes, what a run keeps: three payloads a sender, and what each reader received


@dataclass(frozen=True)
class Costs:
    """One transport's fit, and the results that it is of, those that spilled left out.

    spilled: results that the object store spilled to disk.
    """

    name: str
    fit: Fit
    results: tuple[Result, ...]
    spilled: tuple[Result, ...]


def transport_of(result: Result) -> str:
    """The row's name, however many tensors its messages are cut into: that is a size."""
    return re.sub(r" --fields \d+", "", result.name)


def measured_size(result: Result) -> Size:
    """What the model counts of the result's trips."""
    return size_of(packed(result.flow) if result.record.row.message == "packed" else result.flow)


def point_of(result: Result) -> Point:
    return Point(measured_size(result), result.summary.median)


def steps(result: Result) -> tuple[str, ...]:
    """Which of the model's steps the row has: messages that go through the object store where smaller ones travel in
    calls, and tensors that Ray has copied by threads."""
    row = result.record.row
    known = transports(row.runtime)[row.transport]
    has = {
        "stored message": known.needs.store == "messages",
        "threaded tensor": known.buffers or "zero_copy" in row.flags,
    }
    return tuple(step for step, does in has.items() if does)


def costs_of(results: Iterable[Result]) -> dict[str, Costs]:
    """By transport, of those that were measured at three sizes or more.

    Args:
        results: of sweeps, each a point.
    """
    found: dict[str, list[Result]] = {}
    for result in results:
        if result.status == "ok" and not result.traced:
            found.setdefault(transport_of(result), []).append(result)
    costs = {}
    for name, own in found.items():
        kept = tuple(result for result in own if not result.spilled_bytes)
        if len({measured_size(result) for result in kept}) >= 3:
            fitted = fit([point_of(result) for result in kept], steps(own[0]))
            costs[name] = Costs(name, fitted, kept, tuple(result for result in own if result.spilled_bytes))
    return costs


def held_out(costs: Costs) -> str | None:
    """What a fit up to HELD_OUT_ABOVE_BYTES says of the larger sizes, beside what they took; None where none is larger.

    Where it is wrong by more than TOLERANCE, what broke the line.
    """
    known = [point for point in costs.fit.points if point.size.bytes <= HELD_OUT_ABOVE_BYTES * ROUNDING]
    beyond = [point for point in costs.fit.points if point not in known]
    if not beyond or len({point.size for point in known}) < 3:
        return None
    fitted, words, worst = fit(known, costs.fit.steps), [], 0.0
    for point in beyond:
        said = fitted.predict(point.size).value
        error = said / point.seconds - 1
        worst = max(worst, abs(error))
        times = f"{_milliseconds(said)} foretold, {_milliseconds(point.seconds)} measured"
        words.append(f"{format_bytes(point.size.bytes)}: {times} ({error:+.0%})")
    cause = f"; the line broke: {knee_cause(costs)}" if worst > TOLERANCE else ""
    return f"{costs.name}, fitted up to {format_bytes(HELD_OUT_ABOVE_BYTES)}: {', '.join(words)}{cause}"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.0f} ms" if seconds >= 0.1 else f"{1e3 * seconds:.3g} ms"


def knee_cause(costs: Costs) -> str:
    """What ends the line, as far as the records can tell."""
    knee = costs.fit.knee_bytes
    if costs.spilled:
        return f"the store spilled to disk from {format_bytes(min(map(_bytes, costs.spilled)))} on"
    if knee is None:
        worst = max(abs(costs.fit.residuals))
        found = f"no knee that the samples bear out; medians lie up to {worst:.0%} off any line"
        return f"{found}; {spinning}" if (spinning := _spinning(costs.results)) else found
    ordered = sorted(costs.results, key=_bytes)
    before = [_faulted(result) for result in ordered if _bytes(result) <= knee][-1]
    after = next(_faulted(result) for result in ordered if _bytes(result) > knee)
    if after > before + FAULTED_MORE:
        return f"fresh pages: {after:.0%} of the bytes are faulted in, {before:.0%} before it"
    cache = costs.results[0].record.environments.get("0", {}).get("cache_bytes")
    if cache and 0.25 <= HELD_TIMES * knee / cache <= 4:
        return f"the payloads outgrow the processor's cache of {format_bytes(cache)}"
    return _spinning(costs.results) or "of unknown cause"


def _spinning(results: Sequence[Result]) -> str | None:
    """Where readers of a graph spin while they wait, more of them than there are cores: what the records show of it."""
    first, cores = results[0], results[0].record.environments.get("0", {}).get("logical_cpus")
    processes = 1 + max(len(result.flow.actors) for result in results)
    if first.record.row.runtime != "graph" or not cores or processes <= cores:
        return None
    shares = [result.cpu_seconds_per_trip / float(np.mean(result.seconds)) / cores
              for result in results if result.cpu_seconds_per_trip]  # fmt: skip
    if not shares or (busy := float(np.median(shares))) < BUSY:
        return None
    many = f"{processes} processes on {cores} cores that are {min(1, busy):.0%} busy"
    return f"its readers spin, {many}, so that who has work waits for one"


def knees(costs: Mapping[str, Costs]) -> dict[str, str]:
    """Of the transports that have one, where and why the line bends."""
    return {
        name: f"{format_bytes(own.fit.knee_bytes)}: {knee_cause(own)}"
        for name, own in costs.items() if own.fit.knee_bytes
    }  # fmt: skip


def _bytes(result: Result) -> int:
    return result.record.bytes_per_trip


def _faulted(result: Result) -> float:
    """The share of a trip's bytes that were pages new to their process."""
    faults = sum(cost.minor_faults or 0 for run in result.shown for cost in run.processes.values())
    trips = len(result.seconds) + len(result.shown) * result.record.warmup
    return faults * PAGE_BYTES / trips / _bytes(result)
