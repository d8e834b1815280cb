"""The ladder as a chart: one bar a transport, the ceiling as a line, and what each rung does differently."""

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from common.analysis.statistics import Summary, change, harness_share, speedup_interval, summarise
from common.record.environment import machine_line
from common.view import tables as report

BASELINE = "store driver-queue"
Row = tuple[dict[str, Any], dict[str, Any]]  # a record and one of its cases
# The ladder from the top down. Of each rung: the rung that it is compared with, and what it does that
# that one does not. What this is worth is measured, not written here.
LADDER: dict[str, tuple[str, str]] = {
    "store payload-queue": ("", ""),
    "store driver-queue": ("store payload-queue", "no queue actor that holds the payload; the driver does"),
    "store ref-queue": ("store driver-queue", "the driver passes references on, not payloads"),
    "store refs": ("store ref-queue", "no queue actors between the roles"),
    "store bytes": ("store refs", "plain bytes: no pickle"),
    "rdt nixl": ("store refs", "tensors stay with their producer; readers fetch them by NIXL"),
    "rdt nixl --huge-pages": ("rdt nixl", "fresh memory in pages of 2 MiB: fewer page faults"),
    "rdt gloo": ("store refs", "tensors stay with their producer; sent by gloo"),
    "rdt gloo --huge-pages": ("rdt gloo", "fresh memory in pages of 2 MiB: fewer page faults"),
    "torch gloo": ("rdt gloo", "the same gloo without Ray, received into the same memory every time"),
    "graph pickle": ("store refs", "one compiled graph: no task calls, buffers reused"),
    "graph bytes": ("graph pickle", "plain bytes: no pickle, one copy more on either side"),
    "graph shm": ("graph pickle", "the type hint: tensors written once, not pickled in band"),
    "graph shm --huge-pages": ("graph shm", "fresh memory in pages of 2 MiB: fewer page faults"),
    "graph shm --reuse-buffers": ("graph shm", "readers copy into memory that they used before: no page faults"),
    "rdt nccl": ("", ""),
    "torch nccl-one-gpu": ("", ""),
    "torch nccl": ("rdt nccl", "the same NCCL without Ray"),
    "graph nccl": ("graph shm", "GPU to GPU, not through host memory"),
    "graph zero-copy --copy-out": ("graph shm", "readers copy into warm memory of their own"),
    "rdt mapped --copy-out": ("rdt gloo", "handles instead of payloads; one warm copy in each reader"),
    "torch multiprocessing --copy-out": (
        "torch gloo",
        "shared tensors, mapped anew each time; one copy in each reader",
    ),
    "graph mapped --copy-out": ("graph zero-copy --copy-out", "nothing is written into a channel: one copy an edge"),
    "torch memcpy": ("graph mapped --copy-out", "one process: no message, no other process to wake"),
    "store payload-queue --zero-copy": ("store payload-queue", "readers map tensors"),
    "store driver-queue --zero-copy": ("store driver-queue", "readers map tensors"),
    "store ref-queue --zero-copy": ("store ref-queue", "readers map tensors"),
    "store refs --zero-copy": ("store refs", "readers map the object; no copy into fresh pages"),
    "graph zero-copy": ("store refs --zero-copy", "warm channel buffers instead of new store objects"),
    "rdt cuda-ipc": ("rdt nccl", "readers map the producer's GPU memory"),
    "rdt mapped": ("graph zero-copy", "nothing is written: Ray Direct Transport carries handles"),
    "torch multiprocessing": ("graph zero-copy", "nothing is written: queues carry file descriptors"),
    "graph mapped": ("torch multiprocessing", "the graph's channels carry handles, and what is mapped stays mapped"),
    "torch multiprocessing --episode 10": ("torch multiprocessing", "trips in a row: processors' caches stay warm"),
    "graph mapped --episode 10": ("graph mapped", "trips in a row: processors' caches stay warm"),
}
# kevin85421/RayCG-ChatLearn, README.md, commit 0a603161: seconds for 100 trips of 448 MiB.
DEMO = {"object store and queues": 279.23, "compiled graph, NCCL edges": 35.37}
DEMO_TRIPS, DEMO_BYTES = 100, 448 * 2**20


def place(name: str) -> tuple[int, str]:
    """Where a row stands in the ladder; one with flags that are no rung follows the rung without them."""
    order = list(LADDER)
    known = name if name in LADDER else name.partition(" --")[0]
    return (order.index(known) if known in LADDER else len(order), name)


def causes(samples: dict[str, list[float]]) -> dict[str, str]:
    """For each row whose rung above was measured too: how it compares with it, and why."""
    found = {}
    for name, seconds in samples.items():
        above, cause = LADDER.get(name, ("", ""))
        if above in samples:
            found[name] = f"{change(samples[above], seconds)} {above}: {cause}"
    return found


def draw_ladder(pairs: list[Row], path: Path) -> None:
    """One bar a transport, its median trip on a log axis, copied and mapped apart; below, the demo's numbers."""
    measured = [(record, case, summarise(case["seconds"])) for record, case in pairs if case["status"] == "ok"]
    samples = {report.label(record, case): case["seconds"] for record, case, _ in measured}
    baseline, notes = samples.get(BASELINE), causes(samples)
    groups = [[row for row in measured if row[1]["payload_copied"] is copied] for copied in (True, False)]
    titles = ("readers end with bytes of their own", "mapped: readers end with a view of another's memory")
    shown = [(rows, title) for rows, title in zip(groups, titles, strict=True) if rows]
    demo_shown = measured[0][1]["bytes_per_trip"] == DEMO_BYTES
    heights = [len(rows) + 0.6 for rows, _ in shown] + [1.9] * demo_shown
    figure = Figure(figsize=(12.5, 2.2 + 0.62 * sum(heights)), dpi=140, layout="constrained")
    panels = figure.subplots(len(heights), 1, height_ratios=heights, sharex=True, squeeze=False)[:, 0]
    for (rows, title), axes in zip(shown, panels, strict=False):
        for index, (record, case, summary) in enumerate(rows):
            name = report.label(record, case)
            comparable = record["arguments"].get("episode", 1) == 1  # the baseline is checked after each trip
            _bar(axes, index, case, summary, baseline if comparable else None, notes.get(name, ""))
        axes.set_yticks(range(len(rows)), [report.label(record, case) for record, case, _ in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_title(title, fontsize=10, loc="left")
        _ceiling_lines(axes, [record for record, _, _ in measured])
    panels[0].legend(loc="lower left", bbox_to_anchor=(0.42, 0.997), ncols=2, fontsize=8.5, frameon=False)
    figure.suptitle(
        f"One trip of {measured[0][1]['flow']}, {measured[0][1]['bytes_per_trip'] / 2**20:,.4g} MiB: "
        "median time" + (f", and speed-up over {BASELINE}, the demo's baseline" if baseline else ""),
        fontsize=12, x=0.01, ha="left",
    )  # fmt: skip
    if demo_shown:
        _demo(panels[-1])
    shortest = min(summary.min for *_, summary in measured)
    longest = max(*(summary.p95 for *_, summary in measured), *(s / DEMO_TRIPS for s in DEMO.values() if demo_shown), 0)
    last = panels[-1]
    last.set_xlabel("milliseconds a trip (log)")
    last.set_xscale("log")
    last.set_xlim(shortest / 1.6, longest * 1.4)
    last.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    last.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds * 1e3:,.4g}"))
    last.xaxis.set_minor_locator(NullLocator())
    figure.supxlabel(caption([(record, case) for record, case, _ in measured]), fontsize=8, x=0.01, ha="left")
    figure.savefig(path)


def _demo(axes: Any) -> None:
    for index, seconds in enumerate(DEMO.values()):
        rate = DEMO_BYTES * DEMO_TRIPS / seconds / 1e9
        axes.barh(index, seconds / DEMO_TRIPS, height=0.5, facecolor="white", edgecolor="0.3", linestyle="--")
        axes.text(1.012, index, f"{seconds} s / {DEMO_TRIPS} trips, {rate:.2f} GB/s", va="center", fontsize=9,
                  transform=axes.get_yaxis_transform())  # fmt: skip
    axes.set_yticks(range(len(DEMO)), [f"demo: {name}" for name in DEMO])
    axes.set_ylim(len(DEMO) - 0.5, -0.5)
    axes.set_title("published by the demo on its own GPUs, not measured here", fontsize=10, loc="left")


def _bar(
    axes: Any, index: int, case: dict[str, Any], summary: Summary, baseline: list[float] | None, note: str
) -> None:
    """Grey where bytes were copied, hatched where they were mapped; the whisker goes from minimum to p95."""
    style = {"facecolor": "0.6"} if case["payload_copied"] else {"facecolor": "0.93", "hatch": "///"}
    axes.barh(index - 0.12, summary.median, height=0.36, edgecolor="black", linewidth=0.8, **style)
    spread = [[summary.median - summary.min], [summary.p95 - summary.median]]
    axes.errorbar(summary.median, index - 0.12, xerr=spread, color="black", capsize=3, linewidth=1)
    rate = f", {case['bytes_per_trip'] / summary.median / 1e9:.3g} GB/s" if case["payload_copied"] else ""
    text = f"{report.milliseconds(summary.median)} ms{rate}" + (", spilled" if case["spilled_bytes"] else "")
    if baseline and case["seconds"] is not baseline:
        ratio, low, high = speedup_interval(case["seconds"], baseline)
        text += f"; {report.three_digits(ratio)}×"
        text += f" ({report.three_digits(low)} to {report.three_digits(high)})" if low != high else ""
    axes.text(1.012, index - 0.12, text, va="center", fontsize=9, transform=axes.get_yaxis_transform())
    where = axes.get_yaxis_transform()
    white = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    axes.text(0.008, index + 0.27, note, transform=where, fontsize=8, style="italic", va="center", bbox=white, zorder=5)


def _ceiling_lines(axes: Any, found: list[dict[str, Any]]) -> None:
    one = float(np.median([record["ceiling_seconds"] for record in found]))
    every = min(min(record["ceiling_all_cores_samples_seconds"]) for record in found)
    axes.axvline(one, color="black", linewidth=1.4, label=f"ceiling: one warm copy an edge, {one * 1e3:.3g} ms")
    axes.axvline(
        every, color="black", linewidth=1, linestyle=":", label=f"the same by all cores, at best {every * 1e3:.3g} ms"
    )


def caption(pairs: list[Row]) -> str:
    """Machine, versions, counts: what a reader needs to weigh the chart."""
    first = pairs[0][0]
    machines = {machine_line(record["environment"]) for record, _ in pairs}
    counts = ", ".join(f"{report.label(record, case)} {len(case['seconds'])}" for record, case in pairs)
    commits = sorted({(record["environment"].get("git_commit") or "unknown")[:10] for record, _ in pairs})
    variable = [f"{report.label(record, case)} ({summarise(case['seconds']).variation:.0%})" for record, case in pairs
                if case["status"] == "ok" and summarise(case["seconds"]).variation > report.UNSTABLE]  # fmt: skip
    unstable = ", ".join(variable) or "none"
    ceilings = [1e3 * float(np.median(record["ceiling_samples_seconds"])) for record, _ in pairs]
    shares = []
    for copied, words in ((True, "where bytes are copied"), (False, "where they are mapped")):
        found = [(harness_share(case), report.label(record, case)) for record, case in pairs
                 if case["status"] == "ok" and case["payload_copied"] is copied]  # fmt: skip
        if found:
            shares.append(f"{max(found)[0]:.2%} of a trip {words} ({max(found)[1]})")
    return "\n".join([
        *sorted(machines),
        *textwrap.wrap(f"Timed trips: {counts}.", 190),
        "Whiskers: fastest trip to p95. Brackets: 95 % interval of the speed-up within these runs. "
        "Hatched: readers hold views of shared memory, not bytes of their own.",
        *textwrap.wrap(f"Standard deviation over {report.UNSTABLE:.0%} of the mean: {unstable}.", 190),
        f"Ceiling: the median of the runs' own, which range from {min(ceilings):.3g} to {max(ceilings):.3g} ms.",
        f"The suite's own work inside the clock, all processes together: at most {', '.join(shares)}.",
        f"{first['started_at'][:10]}, commit {', '.join(commits)}.",
    ])  # fmt: skip
