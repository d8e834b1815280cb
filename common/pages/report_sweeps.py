"""The report's rows that were measured at several sizes of one flow, or with more and more trips under way."""

import html
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from common.analysis.results import Result
from common.charts import in_flight
from common.charts.sweep_chart import AXES, place_of, rate_of, swept_of
from common.cost.costs import transport_of
from common.pages.html_page import words
from common.pages.report_charts import GRID, RUN_COLOURS, as_html, framed
from common.units import format_bytes

Lines = dict[str, list[Result]]  # of transports, by their places on the axis


def sweeps(groups: Sequence[Sequence[Result]]) -> str:
    """A chart for each flow and each thing that was swept; sizes of separate records are one, too."""
    found: dict[tuple[str, str], Lines] = {}
    for result in [result for group in groups for result in group if result.status == "ok" and not result.traced]:
        swept = axis(result)
        name = in_flight.transport_of(result) if swept == "in_flight" else transport_of(result)
        found.setdefault((result.record.row.flow, swept), {}).setdefault(name, []).append(result)
    parts: list[str] = []
    for (flow, swept), lines in sorted(found.items()):
        several = {name: sorted(own, key=place) for name, own in lines.items() if len(set(map(place, own))) > 1}
        if several:
            parts += [f"<h3>{words(flow)}, by {AXES[swept]}</h3>", as_html(chart(several), f"sweep-{len(parts) // 2}")]
    return "\n".join(parts)


def axis(result: Result) -> str:
    """What was swept; a record that is no sweep has the bytes of its trip."""
    return swept_of(result) if result.runs[0].at else "payload"


def place(result: Result) -> int:
    return place_of(result) if result.runs[0].at else result.record.bytes_per_trip


def chart(lines: Mapping[str, Sequence[Result]]) -> go.Figure:
    """Time and rate, with the ceiling; mapped rows have no rate, for nobody moved those bytes."""
    figure = make_subplots(1, 2, horizontal_spacing=0.12)
    quantities: list[tuple[str, Callable[[Result], float | None], Callable[[Result], float | None]]] = [
        ("milliseconds a trip", _milliseconds, lambda result: (result.ceiling_seconds or 0) * 1e3 or None),
        ("GB/s, copied rows", _rate, _ceiling_rate),
    ]
    swept = axis(next(iter(lines.values()))[0])
    for panel, (quantity, value, limit) in enumerate(quantities, 1):
        for index, (name, results) in enumerate(lines.items()):
            dash = ("solid", "dot", "dash")[index // len(RUN_COLOURS) % 3]
            figure.add_scatter(
                row=1, col=panel, x=list(map(place, results)), y=list(map(value, results)),
                name=html.escape(name), legendgroup=name, showlegend=panel == 1, mode="lines+markers",
                line={"color": RUN_COLOURS[index % len(RUN_COLOURS)], "dash": dash},
                customdata=[_shown(swept, place(result)) for result in results],
                hovertemplate=f"{html.escape(name)}<br>%{{customdata}}: %{{y:,.4~r}} {quantity}<extra></extra>",
            )  # fmt: skip
        at: dict[int, list[float]] = {}
        for result in [result for own in lines.values() for result in own]:
            at.setdefault(place(result), []).extend([found] if (found := limit(result)) else [])
        x = sorted(where for where, own in at.items() if own)
        if x:
            figure.add_scatter(
                row=1, col=panel, x=x, y=[float(np.median(at[where])) for where in x], name="ceiling", mode="lines",
                legendgroup="ceiling", showlegend=panel == 1, line={"color": "#808080", "width": 3}, hoverinfo="name",
            )  # fmt: skip
        figure.update_yaxes(title=quantity, col=panel)
    ticks = {"exponentformat": "SI", "dtick": 1} if swept == "payload" else {}
    figure.update_xaxes(type="log", title=AXES[swept], gridcolor=GRID, **ticks)
    figure.update_yaxes(type="log", gridcolor=GRID, exponentformat="none", automargin=True, dtick="D2")
    return framed(figure, 460)


def _shown(swept: str, where: int) -> str:
    return format_bytes(where) if swept == "payload" else f"{where} {AXES[swept]}"


def _milliseconds(result: Result) -> float:
    """By whole episodes, where trips are in a row."""
    return (result.paced_seconds if result.episode > 1 else result.summary.median) * 1e3


def _rate(result: Result) -> float | None:
    return rate_of(result) / 1e9 if result.payload_copied else None


def _ceiling_rate(result: Result) -> float | None:
    return result.record.bytes_per_trip / result.ceiling_seconds / 1e9 if result.ceiling_seconds else None
