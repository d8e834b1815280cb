"""The first picture: what a trip costs over the transports that matter, by cause, and the finding as its title."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from common.analysis.results import Result
from common.analysis.stages import WARM, by_cause
from common.analysis.statistics import ratio
from common.charts import png
from common.record.environment import machine_line
from common.record.rows import BASELINE
from common.text.tables import milliseconds, three_digits
from common.units import format_bytes

# One of each kind; what differs little from its neighbour stands in the whole ladder.
SHOWN = (
    BASELINE, "store ref-queue", "store refs", "rdt gloo", "torch gloo", "graph pickle", "graph shm",
    "graph shm --reuse-buffers", "graph zero-copy", "graph mapped --copy-out", "graph mapped",
)  # fmt: skip
# Colours that stay apart in grey, and hatches for who sees neither.
STYLES = {
    "serialisation, page faults included": ("#8c2d04", ""), "page faults": ("#fdae6b", "xxx"), "copying": ("#6baed6", "///"),
    "waiting": ("#ffffff", "..."), "other": ("#d9d9d9", ""), "not traced": ("#ffffff", ""),
}  # fmt: skip
ZOOM = 10  # what takes less than a tenth of the slowest stands in a panel of its own


def shown(ladder: Sequence[Result]) -> list[Result]:
    """The rows of the picture that were measured, slowest first."""
    found = [result for result in ladder if result.name in SHOWN and result.status == "ok"]
    return sorted(found, key=lambda result: -result.summary.median)


def explained(ladder: Sequence[Result], traced: Sequence[Result]) -> list[Result]:
    """The traced rows of the picture; a run that failed explains nothing."""
    names = {result.name for result in shown(ladder)}
    return [result for result in traced if result.name in names and result.status == "ok"]


def causes_of(result: Result, traced: Sequence[Result]) -> dict[str, float]:
    """Seconds of each cause that add up to the row's median: as the stages of its traced run share its trip."""
    median = result.summary.median
    own = next(iter(explained([result], traced)), None)
    if own is None:
        return {"not traced": median}
    found = by_cause(own, traced)
    return {cause: median * found[cause] / sum(found.values()) for cause in STYLES if cause in found}


def finding(ladder: Sequence[Result], traced: Sequence[Result]) -> str:
    """The picture in words: what most of the slowest row's time is, and how much faster the fastest ones are."""
    rows = shown(ladder)
    slowest, parts = rows[0].summary.median, causes_of(rows[0], traced)
    cause = max(parts, key=parts.__getitem__)
    share = f"{parts[cause] / slowest:.0%} of a trip over {rows[0].name} is {cause}"
    fastest = []
    for copied, words in ((True, "is"), (False, "(readers map)")):
        own = [result for result in rows[1:] if result.payload_copied is copied]
        if own:
            fastest.append(f"{own[-1].name} {words} {three_digits(_factor(rows[0], own[-1]))} times as fast")
    lines = [f"A trip takes {milliseconds(slowest)} ms over {rows[0].name}" if cause == "not traced" else share]
    return ";\n".join(lines + [", ".join(fastest)] * bool(fastest))


def draw(ladder: Sequence[Result], traced: Sequence[Result], path: Path) -> None:
    """A bar a row on linear axes, stacked by cause; the fast ones again apart, zoomed."""
    rows = shown(ladder)
    slowest = rows[0].summary.median
    slow = [result for result in rows if result.summary.median * ZOOM >= slowest]
    groups = [group for group in (slow, rows[len(slow) :]) if group]
    figure = Figure(figsize=(10, 2 + 0.3 * len(rows)), dpi=160, layout="constrained")
    panels = figure.subplots(len(groups), 1, height_ratios=[len(group) + 0.5 for group in groups], squeeze=False)[:, 0]
    for group, axes in zip(groups, panels, strict=True):
        longest = group[0].summary.median
        for index, result in enumerate(group):
            _bar(axes, index, result, causes_of(result, traced), longest, rows[0])
        names = [result.name + ("" if result.payload_copied else " *") for result in group]
        axes.set_yticks(range(len(group)), names, fontsize=10)
        axes.set_ylim(len(group) - 0.5, -0.5)
        axes.set_xlim(0, longest * 1.2)
        axes.xaxis.set_major_formatter(lambda seconds, _: f"{seconds * 1e3:,.4g}")
        axes.spines[["top", "right"]].set_visible(False)
        if group is not slow:
            axes.set_title(f"the fast ones, {three_digits(slowest / longest)} times larger", fontsize=10, loc="left")
    ceiling = rows[0].ceiling_seconds
    if ceiling and ceiling < groups[-1][0].summary.median:
        label = f"ceiling: one warm copy an edge, {milliseconds(ceiling)} ms"
        panels[-1].axvline(ceiling, color="black", linewidth=1.2, linestyle="--", label=label)
        panels[-1].legend(loc="lower right", fontsize=9.5, frameon=False)
    panels[-1].set_xlabel("milliseconds a trip; * readers end with a view of another's memory", fontsize=10)
    used = {cause for result in rows for cause, seconds in causes_of(result, traced).items() if seconds}
    handles = [Patch(label=cause, **_style(cause)) for cause in STYLES if cause in used]
    panels[0].legend(handles=handles, loc="lower right", ncols=2, fontsize=10, frameon=False)
    figure.suptitle(finding(ladder, traced), fontsize=12.5, weight="bold", x=0.01, ha="left")
    figure.supxlabel(caption(rows), fontsize=8.5, x=0.01, ha="left")
    png.save(figure, path)


def _style(cause: str) -> dict[str, Any]:
    colour, hatch = STYLES[cause]
    return {"facecolor": colour, "hatch": hatch, "edgecolor": "black", "linewidth": 0.6}


def _factor(slowest: Result, result: Result) -> float:
    """As the tables have it: by runs."""
    return ratio(slowest.seconds_by_run, result.seconds_by_run).value


def _bar(axes: Any, index: int, result: Result, parts: dict[str, float], longest: float, slowest: Result) -> None:
    start = 0.0
    for cause, seconds in parts.items():
        axes.barh(index, seconds, 0.66, start, **_style(cause))
        start += seconds
    text = f"{milliseconds(start)} ms"
    text += f", {three_digits(_factor(slowest, result))}×" if result is not slowest else ""
    white = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    axes.text(start + 0.008 * longest, index, text, va="center", fontsize=10, bbox=white)


def caption(rows: Sequence[Result]) -> str:
    """What was measured and where, and how the causes are told."""
    record = rows[0].record
    machine = machine_line(record.environments.get("0", {}))
    return "\n".join([
        f"{record.row.flow}, {format_bytes(record.bytes_per_trip)} a trip; {machine}.",
        "Medians of untraced trips, shared out as the stages of traced ones.",
        f"Page faults are told apart where the row was traced {WARM} too; elsewhere they are inside the other causes.",
    ])  # fmt: skip
