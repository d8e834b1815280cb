"""The ladder as a chart: one bar a transport, the ceiling as a line, the cause between neighbours."""

import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from common import report
from common.environment import machine_line
from common.flows import FLOWS
from common.sizing import Sizes
from common.statistics import Summary, change, harness_share, speedup_interval, summarise

BASELINE = "driver-queue"
Row = tuple[dict[str, Any], dict[str, Any]]  # a record and one of its cases
# The ladder from the top down, and what each rung does that the one above it does not. What that is
# worth is measured, not written here.
LADDER = {
    "payload-queue": "",
    "payload-queue --zero-copy": "readers map tensors",
    "driver-queue": "no queue actor that holds the payload; the driver does",
    "driver-queue --zero-copy": "readers map tensors",
    "ref-queue": "the driver passes references on, not payloads",
    "ref-queue --zero-copy": "readers map tensors",
    "refs": "no queue actors between the roles",
    "pickle": "one compiled graph: no task calls, buffers reused",
    "shm": "the type hint: tensors written once, not pickled in band",
    "refs --zero-copy": "readers map the object; no copy into fresh pages",
    "zero-copy": "warm channel buffers instead of new store objects",
    "nccl": "GPU to GPU, not through host memory",
}
# kevin85421/RayCG-ChatLearn, README.md, commit 0a603161: seconds for 100 trips of 448 MiB.
DEMO = {"object store and queues": 279.23, "compiled graph, NCCL edges": 35.37}
DEMO_TRIPS, DEMO_BYTES = 100, 448 * 2**20


def causes(names: list[str]) -> list[str]:
    """Between each two neighbours of `names`, what the lower one no longer pays for; left-out rungs count."""
    order = list(LADDER)
    between = []
    for upper, lower in pairwise(names):
        passed = order[order.index(upper) + 1 : order.index(lower) + 1]
        # A --zero-copy twin is a side step: it explains only itself.
        between.append("; ".join(LADDER[name] for name in passed if name == lower or "--zero-copy" not in name))
    return between


def draw_ladder(pairs: list[Row], path: Path) -> None:
    """One bar a transport, its median trip on a log axis; below it the demo's published numbers."""
    measured = [(record, case, summarise(case["seconds"])) for record, case in pairs if case["status"] == "ok"]
    baseline = next((case["seconds"] for record, case, _ in measured if report.label(record, case) == BASELINE), None)
    figure = Figure(figsize=(11.5, 3.8 + 0.8 * len(measured)), dpi=150, layout="constrained")
    ladder, demo = figure.subplots(2, 1, height_ratios=[len(measured), 1.5], sharex=True)
    names = [report.label(record, case) for record, case, _ in measured]
    for index, (_record, case, summary) in enumerate(measured):
        _bar(ladder, index, case, summary, baseline)
    for index, cause in enumerate(causes(names)):
        _note(
            ladder,
            index + 0.5,
            f"↓ {change(measured[index][1]['seconds'], measured[index + 1][1]['seconds'])}: {cause}",
        )
    ladder.set_yticks(range(len(names)), names)
    ladder.set_ylim(len(names) - 0.5, -0.6)
    _ceiling_lines(ladder, [record for record, _, _ in measured])
    ladder.set_title(f"One trip of {_flow_title(measured[0][1])}, {measured[0][1]['bytes_per_trip'] / 2**20:,.4g} MiB: "
                     "median time and speed-up over the demo's baseline", fontsize=11.5, loc="left")  # fmt: skip
    for index, seconds in enumerate(DEMO.values()):
        rate = DEMO_BYTES * DEMO_TRIPS / seconds / 1e9
        demo.barh(index, seconds / DEMO_TRIPS, height=0.5, facecolor="white", edgecolor="0.3", linestyle="--")
        demo.text(1.012, index, f"{seconds} s / {DEMO_TRIPS} trips, {rate:.2f} GB/s", va="center", fontsize=9.5,
                  transform=demo.get_yaxis_transform())  # fmt: skip
    demo.set_yticks(range(len(DEMO)), [f"demo: {name}" for name in DEMO])
    demo.set_ylim(len(DEMO) - 0.5, -0.5)
    demo.set_title("Published by the demo on its own GPUs, not measured here", fontsize=10, loc="left")
    demo.set_xlabel("milliseconds a trip (log)")
    demo.set_xscale("log")
    shortest = min(min(summary.min for *_, summary in measured), *(summarise(
        record["ceiling_all_cores_samples_seconds"]).median for record, _, _ in measured))  # fmt: skip
    longest = max(max(summary.p95 for *_, summary in measured), *(DEMO[name] / DEMO_TRIPS for name in DEMO))
    demo.set_xlim(shortest / 1.6, longest * 1.4)
    demo.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    demo.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds * 1e3:,.4g}"))
    demo.xaxis.set_minor_locator(NullLocator())
    ladder.tick_params(labelbottom=True)
    figure.supxlabel(caption([(record, case) for record, case, _ in measured]), fontsize=8, x=0.01, ha="left")
    figure.savefig(path)


def _bar(axes: Any, index: int, case: dict[str, Any], summary: Summary, baseline: list[float] | None) -> None:
    """Grey where bytes were copied, hatched where they were mapped; the whisker goes from minimum to p95."""
    style = {"facecolor": "0.55"} if case["payload_copied"] else {"facecolor": "0.93", "hatch": "///"}
    axes.barh(index, summary.median, height=0.42, edgecolor="black", linewidth=0.8, **style)
    spread = [[summary.median - summary.min], [summary.p95 - summary.median]]
    axes.errorbar(summary.median, index, xerr=spread, color="black", capsize=3, linewidth=1)
    rate = f"{case['bytes_per_trip'] / summary.median / 1e9:.3g} GB/s" if case["payload_copied"] else "mapped"
    text = f"{report.milliseconds(summary.median)} ms, {rate}" + (", spilled" if case["spilled_bytes"] else "")
    if baseline and case["seconds"] is not baseline:
        ratio, low, high = speedup_interval(case["seconds"], baseline)
        text += f"\n{ratio:.3g}× {BASELINE}" + (f" ({low:.3g} to {high:.3g})" if low != high else "")
    axes.text(1.012, index, text, va="center", fontsize=9.5, transform=axes.get_yaxis_transform())


def _note(axes: Any, height: float, text: str) -> None:
    """Text between two bars, legible over the ceiling's line; rungs that were left out make it long."""
    text = textwrap.fill(text, 88, subsequent_indent="    ")
    white = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    where = axes.get_yaxis_transform()
    axes.text(0.012, height, text, transform=where, fontsize=8.5, style="italic", va="center", bbox=white, zorder=5)


def _ceiling_lines(axes: Any, found: list[dict[str, Any]]) -> None:
    one = float(np.median([record["ceiling_seconds"] for record in found]))
    every = float(np.median([record["ceiling_all_cores_samples_seconds"] for record in found]))
    axes.axvline(one, color="black", linewidth=1.4, label=f"ceiling: one warm copy an edge, {one * 1e3:.3g} ms")
    axes.axvline(every, color="black", linewidth=1, linestyle=":", label=f"the same by all cores, {every * 1e3:.3g} ms")
    axes.legend(loc="lower right", fontsize=8.5, framealpha=1)


def _flow_title(case: dict[str, Any]) -> str:
    return FLOWS[case["flow"]](Sizes()).title if case["flow"] in FLOWS else case["flow"]


def caption(pairs: list[Row]) -> str:
    """Machine, versions, counts: what a reader needs to weigh the chart."""
    first = pairs[0][0]
    machines = {machine_line(record["environment"]) for record, _ in pairs}
    counts = ", ".join(f"{report.label(record, case)} {len(case['seconds'])}" for record, case in pairs)
    commits = sorted({(record["environment"].get("git_commit") or "unknown")[:10] for record, _ in pairs})
    finished = [(harness_share(case), report.label(record, case)) for record, case in pairs if case["status"] == "ok"]
    share, worst = max(finished)
    return "\n".join([
        *sorted(machines),
        f"Timed trips: {counts}.",
        "Whiskers: fastest trip to p95. Brackets: 95 % interval of the speed-up within these runs. "
        "Hatched: readers hold views of shared memory, not bytes of their own.",
        f"The suite's own work inside the clock: at most {share:.2%} of a trip ({worst}).",
        f"{first['started_at'][:10]}, commit {', '.join(commits)}.",
    ])  # fmt: skip
