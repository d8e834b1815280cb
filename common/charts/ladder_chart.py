"""The ladder as a chart: one bar a transport, the ceiling as a line, and what each rung does differently."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from common.analysis.disturbances import disturbances
from common.analysis.ladder import baseline_of, causes
from common.analysis.results import Result, ceiling_of
from common.analysis.statistics import P95_SAMPLES, ratio
from common.charts import png
from common.record.rows import BASELINE
from common.text.tables import (
    ABOVE_CEILING,
    HARNESS_SHOWN,
    UNSTABLE,
    interval,
    milliseconds,
    provenance,
    three_digits,
)
from common.units import format_bytes

# kevin85421/RayCG-ChatLearn, README.md, commit 0a603161: seconds for 100 trips of 448 MiB.
DEMO = {"object store and queues": 279.23, "compiled graph, NCCL edges": 35.37}
DEMO_TRIPS, DEMO_BYTES = 100, 448 * 2**20
# Limits and how their lines are drawn. The last is for rows that copy nothing; it sleeps between words, so a row whose
# readers spin may take less.
LIMITS = {"ceiling: one warm copy an edge,": "-", "the same by all cores,": ":",
          "hand-over alone: a word through a pipe an edge,": "-."}  # fmt: skip


def draw_ladder(results: Sequence[Result], path: Path) -> None:
    """One bar a transport, its median trip on a log axis, copied and mapped apart; below, the demo's numbers."""
    measured = [result for result in results if result.status == "ok"]
    notes, trip_bytes = causes(measured), measured[0].record.bytes_per_trip
    titles = ((True, "readers end with bytes of their own"),
              (False, "mapped: readers end with a view of another's memory"))  # fmt: skip
    groups = [([result for result in measured if result.payload_copied is copied], title) for copied, title in titles]
    shown = [(rows, title) for rows, title in groups if rows]
    demo_shown = trip_bytes == DEMO_BYTES
    heights = [len(rows) + 0.6 for rows, _ in shown] + [1.9] * demo_shown
    # A screen or two high, however many rows.
    figure = Figure(figsize=(12.5, 1.8 + min(0.43 * sum(heights), 13.5)), dpi=104, layout="constrained")
    panels = figure.subplots(len(heights), 1, height_ratios=heights, sharex=True, squeeze=False)[:, 0]
    for (rows, title), axes in zip(shown, panels, strict=False):
        for index, result in enumerate(rows):
            _bar(axes, index, result, baseline_of(result, measured), notes.get(result.name, ""))
        axes.set_yticks(range(len(rows)), [result.name for result in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_title(title, fontsize=10, loc="left")
        _ceiling_lines(axes, measured)
    panels[0].legend(loc="lower left", bbox_to_anchor=(0.42, 0.997), ncols=2, fontsize=8.5, frameon=False)
    compared = any(result.rung == BASELINE for result in measured)
    figure.suptitle(
        f"One trip of {measured[0].flow.name}, {format_bytes(trip_bytes)}: "
        "median time" + (f", and speed-up over {BASELINE}, the demo's baseline" if compared else ""),
        fontsize=12, x=0.01, ha="left",
    )  # fmt: skip
    if demo_shown:
        _demo(panels[-1])
    drawn = [seconds / DEMO_TRIPS for seconds in DEMO.values() if demo_shown] + list(limits(measured).values())
    shortest = min([result.summary.min for result in measured] + drawn)
    longest = max([result.summary.p95 or result.summary.max for result in measured] + drawn)
    last = panels[-1]
    last.set_xlabel("milliseconds a trip (log)")
    last.set_xscale("log")
    last.set_xlim(shortest / 1.6, longest * 1.4)
    last.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    last.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds * 1e3:,.4g}"))
    last.xaxis.set_minor_locator(NullLocator())
    figure.supxlabel(caption(measured), fontsize=8, x=0.01, ha="left")
    png.save(figure, path)


def _demo(axes: Any) -> None:
    for index, seconds in enumerate(DEMO.values()):
        rate = DEMO_BYTES * DEMO_TRIPS / seconds / 1e9
        axes.barh(index, seconds / DEMO_TRIPS, height=0.5, facecolor="white", edgecolor="0.3", linestyle="--")
        axes.text(1.012, index, f"{seconds} s / {DEMO_TRIPS} trips, {rate:.2f} GB/s", va="center", fontsize=9,
                  transform=axes.get_yaxis_transform())  # fmt: skip
    axes.set_yticks(range(len(DEMO)), [f"demo: {name}" for name in DEMO])
    axes.set_ylim(len(DEMO) - 0.5, -0.5)
    axes.set_title("published by the demo on its own GPUs, not measured here", fontsize=10, loc="left")


def _bar(axes: Any, index: int, result: Result, baseline: Result | None, note: str) -> None:
    """Grey where bytes were copied, hatched where mapped; the whisker goes from minimum to p95, or to maximum."""
    summary = result.summary
    style = {"facecolor": "0.6"} if result.payload_copied else {"facecolor": "0.93", "hatch": "///"}
    axes.barh(index - 0.12, summary.median, height=0.38, edgecolor="black", linewidth=0.8, **style)
    spread = [[summary.median - summary.min], [(summary.p95 or summary.max) - summary.median]]
    axes.errorbar(summary.median, index - 0.12, xerr=spread, color="black", capsize=3, linewidth=1)
    rate = f", {result.record.bytes_per_trip / summary.median / 1e9:.3g} GB/s" if result.payload_copied else ""
    text = f"{milliseconds(summary.median)} ms{rate}" + (", spilled" if result.spilled_bytes else "")
    if baseline and baseline is not result:
        speedup = ratio(baseline.seconds_by_run, result.seconds_by_run)
        text += f"; {three_digits(speedup.value)}×{interval(speedup)}"
    where = axes.get_yaxis_transform()
    axes.text(1.012, index - 0.12, text, va="center", fontsize=9, transform=where)
    white = {"facecolor": "white", "edgecolor": "none", "pad": 0.2}
    axes.text(0.008, index + 0.28, note, transform=where, fontsize=8, style="italic", va="center", bbox=white, zorder=5)


def _ceiling_lines(axes: Any, results: Sequence[Result]) -> None:
    for words, seconds in limits(results).items():
        style = LIMITS[words]
        label = f"{words} {seconds * 1e3:.3g} ms"
        axes.axvline(seconds, color="black", linewidth=1.4 if style == "-" else 1, linestyle=style, label=label)


def limits(results: Sequence[Result]) -> dict[str, float]:
    """The ladder's shared ceiling, that of all cores, and handing over alone, in seconds.

    Medians, as a row's time is one: of all cores, of the fastest pass beside each run.
    """
    every = [min(passes) for result in results for run in result.runs if (passes := run.ceiling_all_cores_seconds)]
    handed = [seconds for result in results if (seconds := result.hand_over_seconds)]
    found = (
        results[0].ceiling_seconds,
        float(np.median(every)) if every else None,
        float(np.median(handed)) if handed else None,
    )
    return {words: seconds for words, seconds in zip(LIMITS, found, strict=True) if seconds}


def caption(results: Sequence[Result]) -> str:
    """What a reader needs to weigh the chart: how to read it, the machine, and the day; the rest is the table's."""
    return "\n".join([
        f"Whiskers: fastest trip to p95, of fewer than {P95_SAMPLES} trips to the slowest. Hatched: readers hold views "
        "of another's memory. Brackets: 95 % interval of the speed-up, from run to run.",
        *provenance(results),
    ])  # fmt: skip


def _times(result: Result) -> str:
    runs = len(result.seconds_by_run)
    return f"{len(result.seconds)}" + (f" in {runs} runs" if runs > 1 else "")


def facts(results: Sequence[Result]) -> str:
    """Machine, versions, counts, commits, and what makes some rows less than they seem."""
    done = [result for result in results if result.status == "ok"]
    *machines, day = provenance(results)
    counts = ", ".join(f"{result.name} {_times(result)}" for result in results)
    variable = [f"{result.name} ({result.summary.variation:.0%})" for result in done
                if result.summary.variation > UNSTABLE]  # fmt: skip
    ceilings = [1e3 * seconds for result in results for run in result.runs if (seconds := ceiling_of([run]))]
    ceilings_range = f"range from {min(ceilings):.3g} to {max(ceilings):.3g} ms" if ceilings else "are unknown"
    own = [f"{result.name} ({result.harness_share:.1%})" for result in done if result.harness_share > HARNESS_SHOWN]
    disturbed = [f"{result.name} ({count} of {len(result.shown)})" for result in done
                 if (count := sum(bool(disturbances(run)) for run in result.shown))]  # fmt: skip
    above = [f"{result.name} ({share:.0%})" for result in done if (share := result.above_ceiling)]
    return "\n".join([
        *machines,
        *textwrap.wrap(f"Timed trips: {counts}.", 190),
        *textwrap.wrap(f"Standard deviation over {UNSTABLE:.0%} of the mean: {', '.join(variable) or 'none'}.", 190),
        f"Ceiling: the median of the runs' own, which {ceilings_range}.",
        *textwrap.wrap("The suite's own work inside the clock, all processes together, is under "
                       f"{HARNESS_SHOWN:.0%} of a trip{' but for ' * bool(own)}{', '.join(own)}.", 190),
        *textwrap.wrap(f"Runs beside which the machine did something else, or changed its speed by a quarter: "
                       f"{', '.join(disturbed) or 'none'}.", 190),
        *["Trips alternated with those of other rows: such times compare with each other alone."]
        * any(result.alternated for result in done),
        *[f"Faster than the ceiling of its own run: {', '.join(above)}; {ABOVE_CEILING}." for _ in above[:1]],
        day,
    ])  # fmt: skip
