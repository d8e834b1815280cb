"""Where a trip's time goes: one bar a transport, its stages and its edges as shares of the trip."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from common.analysis.results import Result
from common.analysis.stages import CAUSES, STAGES, attribute, by_cause, by_edge, defect, trip_seconds
from common.charts import png
from common.record.environment import machine_line
from common.text.tables import Column, markdown_table, milliseconds
from common.units import format_bytes

# A grey and a hatch for each stage, so that the picture survives a printer.
STYLES = {
    "make": ("0.98", "++"), "pack": ("0.5", "//"), "device to host": ("0.85", "oo"), "submit": ("0.9", "--"),
    "serialise": ("0.35", ""), "write": ("0.6", ""), "wait": ("1.0", ""), "transfer": ("0.72", "//"),
    "deserialise": ("0.8", "xx"), "host to device": ("0.85", "OO"), "unpack": ("0.65", "\\\\"),
    "copy": ("0.7", "\\\\"), "compute": ("0.9", "xx"), "train": ("0.4", "++"), "stamp": ("0.0", ""),
    "synchronise": ("0.5", ".."), "loop": ("0.95", "||"),
}  # fmt: skip
EDGE_GREYS = ("0.35", "0.55", "0.72", "0.86", "0.95")


def draw(traced: Sequence[Result], untraced: Sequence[Result], path: Path) -> None:
    """One bar a traced row, of its first traced run, by stage and by edge; the caption says what tracing cost."""
    figure = Figure(figsize=(12.5, 3 + 0.36 * len(traced)), dpi=140, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.35, 1], sharey=True)
    for index, result in enumerate(traced):
        trip, edges = trip_seconds(result.traced_run), _edges(result)
        stages = attribute(result.traced_run)[0]
        _stack(left, index, trip, {name: (value, *STYLES[name]) for name, value in stages.items()})
        _stack(right, index, trip, {name: (value, *_edge_style(name, result)) for name, value in edges.items()})
        text = f"{milliseconds(trip)} ms a trip"
        right.text(1.012, index, text, va="center", fontsize=9, transform=right.get_yaxis_transform())
    left.set_yticks(range(len(traced)), [result.name for result in traced])
    left.set_ylim(len(traced) - 0.5, -0.5)
    for axes, title in ((left, "by stage"), (right, "by edge (all that moves or serves it)")):
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        axes.set_xlabel("share of the trip")
        axes.set_title(title, fontsize=10, loc="left")
    handles = [
        left.barh([-9], [0], facecolor=grey, hatch=hatch, edgecolor="black", label=stage)
        for stage, (grey, hatch) in STYLES.items()
        if any(stage in attribute(result.traced_run)[0] for result in traced)
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=6, fontsize=8.5, frameon=False)
    greys = zip(map(str, traced[0].flow.edges), EDGE_GREYS, strict=False)
    keys = [right.barh([-9], [0], facecolor=grey, edgecolor="black", label=name) for name, grey in greys]
    keys.append(right.barh([-9], [0], facecolor="0.35", hatch="..", edgecolor="black", label="several edges at once"))
    figure.legend(handles=keys, loc="outside upper right", ncols=3, fontsize=8.5, frameon=False)
    figure.supxlabel(caption(traced, untraced), fontsize=8, x=0.01, ha="left")
    png.save(figure, path)


def _stack(axes: Any, index: int, trip: float, parts: dict[str, tuple[float, str, str]]) -> None:
    """One bar; parts that are wide enough bear their name and their milliseconds."""
    start = 0.0
    for name, (value, grey, hatch) in parts.items():
        share = value / trip
        axes.barh(index, share, 0.62, start, facecolor=grey, hatch=hatch, edgecolor="black", linewidth=0.6)
        text = f"{name} {milliseconds(value)}"
        if share > 0.018 * len(text):
            white = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
            axes.text(start + share / 2, index, text, ha="center", va="center", fontsize=7.5, bbox=white)
        start += share


def _edges(result: Result) -> dict[str, float]:
    """The time of each edge in the order of the flow; what serves several edges before the first of them."""
    order = list(map(str, result.flow.edges))
    found = by_edge(result.traced_run)
    return {name: found[name] for name in sorted(found, key=lambda name: (_place(name, order), name))}


def _place(name: str, order: list[str]) -> float:
    matching = [index for index, edge in enumerate(order) if name in edge]
    return len(order) if name == "wait" or not matching else matching[0] - 0.5 * (name not in order)


def _edge_style(name: str, result: Result) -> tuple[str, str]:
    if name == "wait":
        return STYLES["wait"]
    order = list(map(str, result.flow.edges))
    index = order.index(name) if name in order else len(order)
    return EDGE_GREYS[index % len(EDGE_GREYS)], "" if name in order else ".."


def caption(traced: Sequence[Result], untraced: Sequence[Result]) -> str:
    """How much of the trips the stages explain, and what tracing cost."""
    explained = {result.name: attribute(result.traced_run)[1] for result in traced}
    worst = max(explained, key=lambda name: abs(1 - explained[name]))
    medians = {result.name: result.summary.median for result in untraced if result.status == "ok"}
    costs = [f"{result.name} {result.summary.median / medians[result.name]:.2f}" for result in traced
             if result.name in medians]  # fmt: skip
    record = traced[0].record
    return "\n".join([
        machine_line(record.environments.get("0", {})),
        f"{traced[0].flow.name}, {format_bytes(record.bytes_per_trip)} a trip, the middle half of the traced trips, "
        f"ms. The stages add up to {explained[worst]:.1%} of the trip where they fit worst ({worst}).",
        "wait: nobody works as far as Python can see: messages, scheduling, wake-ups, and what Ray's C++ writes.",
        *textwrap.wrap(f"Median with tracing over median without, another run: {', '.join(costs) or 'unknown'}.", 190),
    ])  # fmt: skip


def markdown(traced: Sequence[Result], untraced: Sequence[Result]) -> str:
    """A table of the same trips by cause, in milliseconds, and the caption."""

    def of(cause: str) -> Column:
        found = {result.name: by_cause(result, traced).get(cause) for result in traced}
        return Column(cause, lambda result: "-" if (own := found[result.name]) is None else milliseconds(own))

    trip = Column("a trip, ms", lambda result: milliseconds(trip_seconds(result.traced_run)))
    columns = [Column("transport", lambda result: result.name), trip, *map(of, [*CAUSES, "other"])]
    return f"{markdown_table(traced, columns)}\n\n{caption(traced, untraced)}"


def stages_markdown(traced: Sequence[Result]) -> str:
    """A table of the stages themselves, in milliseconds, and the caption."""
    found = {result.name: attribute(result.traced_run)[0] for result in traced}

    def of(stage: str) -> Column:
        return Column(stage, lambda result: milliseconds(found[result.name].get(stage, 0.0)))

    trip = Column("a trip, ms", lambda result: milliseconds(trip_seconds(result.traced_run)))
    seen = [stage for stage in STAGES if any(stage in own for own in found.values())]
    columns = [Column("transport", lambda result: result.name), trip, *map(of, seen)]
    return f"{markdown_table(traced, columns)}\n\n{caption(traced, [])}"


def problems(traced: Sequence[Result]) -> list[str]:
    """Traces that must not be drawn: the stages miss the trip by more than 5 %, or an edge was not seen rightly."""
    found = []
    for result in traced:
        run = result.traced_run
        explained, wrong = attribute(run)[1], defect(run, result.record.edges)
        if abs(1 - explained) > 0.05:
            found.append(f"{result.name}: the stages add up to {explained:.1%} of the trip")
        if wrong:
            found.append(f"{result.name}: {wrong}")
    return found
