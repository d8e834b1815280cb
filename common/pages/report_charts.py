"""The charts of the report, in milliseconds a trip; a browser shows what is under the pointer."""

import html
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from common.analysis.results import Result
from common.analysis.stages import STAGES, attribute, trip_seconds
from common.charts.ladder_chart import limits
from common.record.schema import Run
from common.text.episodes import is_episode, short_name
from common.text.tables import Column, milliseconds

POINTS_SHOWN = 100  # of a run's samples; where there are more, its box and what lies outside its whiskers
ROW_PIXELS = 36
RUN_COLOURS = ("#3a8fd0", "#d95f02", "#2a9d6f", "#a05195", "#b08900")
STAGE_COLOURS = (
    "#8cd17d", "#f1ce63", "#499894", "#86bcb6", "#e15759", "#f28e2b", "#d0d0d0", "#4e79a7",
    "#b07aa1", "#59a14f", "#b6992d", "#ffbe7d", "#d37295", "#79706e", "#a0cbe8", "#bab0ac", "#fabfd2",
)  # fmt: skip
KINDS = {"copied": ("#9db4c8", ""), "mapped, as views": ("#9db4c8", "/"), "failed; what it finished": ("#d9877f", "x")}
CLEAR = "rgba(0,0,0,0)"
GRID = "rgba(128,128,128,0.3)"


def drawn(results: Sequence[Result]) -> list[Result]:
    """Those that have samples to draw."""
    return [result for result in results if any(_samples(result, run) for run in result.shown)]


def trips(results: Sequence[Result], columns: Sequence[Column]) -> go.Figure:
    """A bar a row, its median or, of episodes, the time a message; on it the samples of each run, and the ceilings.

    columns: what is told of a bar.
    """
    figure = go.Figure()
    for kind, (colour, pattern) in KINDS.items():
        own = [(place, result) for place, result in enumerate(results) if _kind(result) == kind]
        if own:
            figure.add_bar(
                orientation="h", name=kind, width=0.8, x=[_typical(result) * 1e3 for _, result in own],
                y=[place for place, _ in own], hovertext=[_told(result, columns) for _, result in own],
                hoverinfo="text", marker={"color": colour, "pattern": {"shape": pattern, "fgcolor": "#4b5b69"}},
            )  # fmt: skip
    named: set[int] = set()
    for place, result in enumerate(results):
        runs = [(index, run) for index, run in enumerate(result.shown) if _samples(result, run)]
        for line, (index, run) in enumerate(runs):
            box = _box(result, run, index, place - 0.4 + 0.8 * (line + 0.5) / len(runs), 0.7 / len(runs))
            figure.add_trace(box.update(showlegend=index not in named))
            named.add(index)
    for (what, seconds), dash in zip(limits(results).items(), ("solid", "dot", "dash"), strict=False):
        figure.add_scatter(
            x=[seconds * 1e3] * 2, y=[-0.5, len(results) - 0.5], mode="lines", hoverinfo="name",
            name=f"{what} {seconds * 1e3:.3g} ms", line={"color": "#808080", "width": 1.6, "dash": dash},
        )  # fmt: skip
    labels = [_label(_name(result), _typical(result)) for result in results]
    figure.update_layout(barmode="overlay", boxmode="overlay")
    return _styled(figure, labels, "milliseconds a message" if is_episode(results[0]) else "milliseconds a trip")


def _kind(result: Result) -> str:
    return list(KINDS)[2 if result.status != "ok" else int(result.payload_copied is False)]


def _name(result: Result) -> str:
    """Of episodes, whose length all share, with how many messages are under way."""
    in_flight = result.in_flight
    return f"{short_name(result)}, {in_flight} in flight" if is_episode(result) else result.name


def _typical(result: Result) -> float:
    """Seconds: of episodes a message's part of them, for their messages overlap; else the median trip."""
    return result.paced_seconds if is_episode(result) else result.summary.median


def _samples(result: Result, run: Run) -> list[float]:
    """Seconds of each trip, or of each message of an episode."""
    if not is_episode(result):
        return run.seconds
    return [seconds * len(run.episode_seconds) / len(run.seconds) for seconds in run.episode_seconds]


def _box(result: Result, run: Run, index: int, y: float, width: float) -> go.Box:
    samples, colour = np.array(_samples(result, run)) * 1e3, RUN_COLOURS[index % len(RUN_COLOURS)]
    what = "episode" if is_episode(result) else "trip"
    return go.Box(
        x=samples, y=np.full(len(samples), y), orientation="h", width=width, name=f"run {index + 1}",
        legendgroup=f"run {index + 1}", boxpoints="all" if len(samples) <= POINTS_SHOWN else "outliers", jitter=0,
        pointpos=0, marker={"size": 4, "color": colour, "opacity": 0.6}, line={"width": 1}, fillcolor=CLEAR,
        customdata=np.arange(1, len(samples) + 1),
        hovertemplate=f"{html.escape(result.name)}, run {index + 1}, {what} %{{customdata}}: %{{x:,.4~r}} ms"
                      f"<extra>{html.escape(run.started_at[:19])}</extra>",
    )  # fmt: skip


def _told(result: Result, columns: Sequence[Column]) -> str:
    return "<br>".join(html.escape(f"{column.header}: {column.cell(result)}") for column in columns)


def _label(name: str, seconds: float) -> str:
    return "<br>".join(map(html.escape, textwrap.wrap(name, 34))) + f"  <b>{milliseconds(seconds)} ms</b>"


def stages(results: Sequence[Result]) -> go.Figure:
    """A bar a traced row: the mean time of its middle trips, by stage."""
    found = [attribute(result.traced_run)[0] for result in results]
    totals = [trip_seconds(result.traced_run) for result in results]
    figure = go.Figure()
    for stage in (stage for stage in STAGES if any(stage in own for own in found)):
        seconds = [own.get(stage, 0.0) for own in found]
        told = [f"{stage}: {milliseconds(own)} ms, {own / total:.1%}"
                for own, total in zip(seconds, totals, strict=True)]  # fmt: skip
        figure.add_bar(
            orientation="h", name=stage, x=[own * 1e3 for own in seconds], y=list(range(len(results))), width=0.7,
            hovertext=told, hoverinfo="text", marker={"color": dict(zip(STAGES, STAGE_COLOURS, strict=True))[stage]},
        )  # fmt: skip
    labels = [_label(result.name, total) for result, total in zip(results, totals, strict=True)]
    figure.update_layout(barmode="stack")
    return _styled(figure, labels, "milliseconds a trip")


def _styled(figure: go.Figure, labels: Sequence[str], quantity: str) -> go.Figure:
    """One line a label, the first on top."""
    places: dict[str, Any] = {"tickvals": list(range(len(labels))), "ticktext": list(labels)}
    figure.update_yaxes(**places, range=[len(labels) - 0.5, -0.5], automargin=True, showgrid=False, zeroline=False,
                        ticks="outside", ticklen=6, tickcolor=CLEAR)  # fmt: skip
    figure.update_xaxes(title=quantity, gridcolor=GRID, zeroline=False, exponentformat="none", separatethousands=True)
    return framed(figure, 180 + ROW_PIXELS * len(labels))


def framed(figure: go.Figure, height: int) -> go.Figure:
    """Quiet, and in the colours of the page below it."""
    return figure.update_layout(
        template="none", height=height, paper_bgcolor=CLEAR, plot_bgcolor=CLEAR, font={"size": 12},
        margin={"l": 10, "r": 15, "t": 50, "b": 50}, hovermode="closest", showlegend=True, separators=".,",
        legend={"orientation": "h", "yanchor": "bottom", "y": 1, "x": 0, "traceorder": "normal", "maxheight": 400},
    )  # fmt: skip


def as_html(figure: go.Figure, name: str) -> str:
    """To stand in a page that has the library; `name` is that of its element."""
    config = {"displayModeBar": False, "responsive": True}
    return figure.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=config)
