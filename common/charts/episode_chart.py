"""ChatLearn's own episodes over every transport, a bar each; and labels for the picture of their messages."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from common.analysis.results import Result
from common.charts import png
from common.flow.flow import Flow
from common.text.episodes import baseline, described, facts, groups, short_name
from common.text.tables import milliseconds, three_digits
from common.units import format_bytes


def draw(results: Sequence[Result], path: Path) -> None:
    """A panel for each group: one bar a transport, slowest first, on a log axis; hatched where readers hold views."""
    found = groups([result for result in results if result.status == "ok"])
    heights = [1.0 + 0.36 * len(group) for group in found]
    figure = Figure(figsize=(12, 1.0 + sum(heights)), dpi=140, layout="constrained")
    panels = figure.subplots(len(found), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, group in zip(panels, found, strict=True):
        _draw_group(axes, sorted(group, key=lambda result: result.paced_seconds, reverse=True))
    figure.suptitle("ChatLearn's own messages and episodes over every transport", fontsize=12, x=0.01, ha="left")
    figure.supxlabel(facts(results), fontsize=8, x=0.01, ha="left")
    png.save(figure, path)


def _draw_group(axes: Any, done: list[Result]) -> None:
    shipped, rows = baseline(done), int(done[0].record.row.sizes["rows"])
    for index, result in enumerate(done):
        seconds = result.paced_seconds
        style: dict[str, Any] = {"facecolor": "0.6"} if result.payload_copied else {"facecolor": "0.93", "hatch": "///"}
        axes.barh(index, seconds, 0.62, edgecolor="black", linewidth=0.8, **style)
        text = f"{milliseconds(seconds)} ms, {rows / seconds:,.0f} samples/s"
        if shipped and result is not shipped:
            text += f", {three_digits(shipped.paced_seconds / seconds)}×"
        axes.text(1.01, index, text, va="center", fontsize=9, transform=axes.get_yaxis_transform())
    limit = done[0].ceiling_seconds
    if limit:
        axes.axvline(limit, color="black", linewidth=1.4)
        axes.text(limit, -0.75, " ceiling: one warm copy an edge", fontsize=8.5, va="center")
    names = [f"{short_name(result)}, {result.in_flight} in flight" for result in done]
    axes.set_yticks(range(len(done)), names)
    axes.set_ylim(len(done) - 0.4, -1.1)
    axes.set_xscale("log")
    axes.set_title(described(done), fontsize=10, loc="left")
    axes.set_xlabel("milliseconds a message (log); hatched: readers hold views of another's memory")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds * 1e3:,.4g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def message_labels(flow: Flow) -> dict[str, str]:
    """For a picture of the flow: what an edge carries."""
    labels = {}
    for edge in flow.edges:
        strings = sum(len(field.lengths) for field in edge.message.fields if field.dtype == "str")
        numbers = sum(len(field.lengths) for field in edge.message.fields if field.python) - strings
        tensors = len(edge.message.leaves) - strings - numbers
        counts = {"tensor": tensors, "string": strings, "list": numbers}
        parts = [f"{count} {what}{'s' * (count > 1)}" for what, count in counts.items() if count]
        labels[str(edge)] = "\n".join([format_bytes(edge.bytes), *parts])
    return labels
