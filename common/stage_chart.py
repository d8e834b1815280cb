"""Where a trip's time goes: one bar a transport, its stages as shares of the trip."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from common import report
from common.environment import machine_line
from common.stages import attribute
from common.statistics import summarise

# A grey and a hatch for each stage, so that the picture survives a printer.
STYLES = {
    "make": ("0.98", "++"), "device to host": ("0.85", "oo"), "submit": ("0.9", "--"), "serialise": ("0.35", ""),
    "write": ("0.6", ""), "wait": ("1.0", ""), "transfer": ("0.72", "//"), "deserialise": ("0.8", "xx"),
    "host to device": ("0.85", "OO"), "copy": ("0.7", "\\\\"), "stamp": ("0.0", ""), "synchronise": ("0.5", ".."),
    "loop": ("0.95", "||"),
}  # fmt: skip
Row = tuple[dict[str, Any], dict[str, Any]]


def draw(traced: list[Row], untraced: list[Row], path: Path) -> None:
    """One bar a traced record; the caption says what tracing cost, where the same row was measured without."""
    figure = Figure(figsize=(12.5, 2.6 + 0.42 * len(traced)), dpi=140, layout="constrained")
    axes = figure.subplots()
    for index, (_, case) in enumerate(traced):
        seconds, _ = attribute(case)
        left = 0.0
        for stage, value in seconds.items():
            share = value * len(case["seconds"]) / sum(case["seconds"])
            grey, hatch = STYLES[stage]
            axes.barh(
                index, share, left=left, height=0.62, facecolor=grey, hatch=hatch, edgecolor="black", linewidth=0.6
            )
            if share > 0.06:
                white = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
                text = f"{stage} {report.milliseconds(value)}"
                if share > 0.012 * len(text):
                    axes.text(left + share / 2, index, text, ha="center", va="center", fontsize=8, bbox=white)
            left += share
        mean = report.milliseconds(sum(case["seconds"]) / len(case["seconds"]))
        axes.text(1.012, index, f"{mean} ms a trip", va="center", fontsize=9, transform=axes.get_yaxis_transform())
    axes.set_yticks(range(len(traced)), [report.label(*row) for row in traced])
    axes.set_ylim(len(traced) - 0.5, -0.5)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.set_xlabel("share of the trip")
    handles = [
        axes.barh([-9], [0], facecolor=grey, hatch=hatch, edgecolor="black", label=stage)
        for stage, (grey, hatch) in STYLES.items()
        if any(stage in attribute(case)[0] for _, case in traced)
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=10, fontsize=8.5, frameon=False)
    figure.supxlabel(caption(traced, untraced), fontsize=8, x=0.01, ha="left")
    figure.savefig(path)


def caption(traced: list[Row], untraced: list[Row]) -> str:
    """How much of the trips the stages explain, and what tracing cost."""
    explained = {report.label(*row): attribute(row[1])[1] for row in traced}
    worst = max(explained, key=lambda name: abs(1 - explained[name]))
    medians = {report.label(*row): summarise(row[1]["seconds"]).median for row in untraced if row[1]["status"] == "ok"}
    costs = [
        f"{report.label(*row)} {summarise(row[1]['seconds']).median / medians[report.label(*row)]:.2f}"
        for row in traced
        if report.label(*row) in medians
    ]
    record, case = traced[0]
    return "\n".join([
        machine_line(record["environment"]),
        f"{case['flow']}, {case['bytes_per_trip'] / 2**20:,.4g} MiB a trip, mean of the traced trips, milliseconds. "
        f"The stages add up to {explained[worst]:.1%} of the trip where they fit worst ({worst}).",
        "wait: nobody works as far as Python can see: messages, scheduling, wake-ups, and what Ray's C++ writes.",
        "Median with tracing over median without, of another run: " + (", ".join(costs) or "not measured") + ".",
    ])  # fmt: skip


def problems(traced: list[Row]) -> list[str]:
    """Traces whose stages miss the trip by more than 5 %: they must not be drawn."""
    return [
        f"{report.label(*row)}: the stages add up to {attribute(row[1])[1]:.1%} of the trip"
        for row in traced
        if abs(1 - attribute(row[1])[1]) > 0.05
    ]
