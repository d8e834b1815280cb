"""The report's rows that were measured at several sizes of one flow, against the size."""

import html
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from common.analysis.results import Result
from common.pages.html_page import words
from common.pages.report_charts import GRID, RUN_COLOURS, as_html, framed
from common.units import format_bytes


def sweeps(groups: Sequence[Sequence[Result]]) -> str:
    """A chart a flow."""
    parts: list[str] = []
    plain = [result for group in groups for result in group if result.status == "ok" and not result.traced]
    plain.sort(key=lambda result: (result.flow.name, result.name, result.record.bytes_per_trip))
    for flow, of_flow in groupby(plain, key=lambda result: result.flow.name):
        lines = {name: list(own) for name, own in groupby(of_flow, key=lambda result: result.name)}
        several = {name: own for name, own in lines.items() if len({r.record.bytes_per_trip for r in own}) > 1}
        if several:
            parts += [f"<h3>{words(flow)}</h3>", as_html(chart(several), f"sweep-{len(parts) // 2}")]
    return "\n".join(parts)


def chart(lines: Mapping[str, Sequence[Result]]) -> go.Figure:
    """Time and rate against the bytes of a trip; mapped rows have no rate, for nobody moved those bytes."""
    figure = make_subplots(1, 2, horizontal_spacing=0.12)
    quantities: list[tuple[str, Callable[[Result], float | None]]] = [
        ("milliseconds a trip", lambda result: result.summary.median * 1e3), ("GB/s, copied rows", _rate),
    ]  # fmt: skip
    for panel, (quantity, value) in enumerate(quantities, 1):
        for place, (name, results) in enumerate(lines.items()):
            dash = ("solid", "dot", "dash")[place // len(RUN_COLOURS) % 3]
            figure.add_scatter(
                row=1, col=panel, x=[result.record.bytes_per_trip for result in results], y=list(map(value, results)),
                name=html.escape(name), legendgroup=name, showlegend=panel == 1, mode="lines+markers",
                line={"color": RUN_COLOURS[place % len(RUN_COLOURS)], "dash": dash},
                customdata=[format_bytes(result.record.bytes_per_trip) for result in results],
                hovertemplate=f"{html.escape(name)}<br>%{{customdata}}: %{{y:,.4~r}} {quantity}<extra></extra>",
            )  # fmt: skip
        figure.update_yaxes(title=quantity, col=panel)
    figure.update_xaxes(type="log", title="bytes a trip", gridcolor=GRID, exponentformat="SI", dtick=1)
    figure.update_yaxes(type="log", gridcolor=GRID, exponentformat="none", automargin=True, dtick="D2")
    return framed(figure, 460)


def _rate(result: Result) -> float | None:
    return result.record.bytes_per_trip / result.summary.median / 1e9 if result.payload_copied else None
