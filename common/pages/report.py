"""report.html: what a folder of records says, in one file that needs no network. One function a section."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import methodcaller
from typing import Any

from common.analysis.ladder import on_one_ceiling
from common.analysis.results import Result, results_of
from common.charts import ladder_chart, stage_chart
from common.errors import RecordError
from common.pages import markdown, report_charts
from common.pages.html_page import page, table, words
from common.pages.report_environment import environments, places
from common.pages.report_sweeps import sweeps
from common.record.environment import machine_line
from common.record.rows import ROWS
from common.record.schema import Record
from common.text import episodes as episode_table
from common.text.tables import COLUMNS, Column
from common.units import format_bytes

HINT = "Drag over a chart to look closer, double click to come back; a click on a name in its legend hides that."
Group = list[Result]  # rows that compare with each other


def groups_of(records: Iterable[Record]) -> list[Group]:
    """Rows of one flow with the same bytes an edge, episodes and traced ones apart, each on its own ceiling.

    The traced ones come last, and before them what moves most.
    """

    def like(result: Result) -> tuple[Any, ...]:
        record = result.record
        edges = [(edge.source, edge.reader, edge.bytes) for edge in record.edges]
        return result.traced, -record.bytes_per_trip, record.row.flow, episode_table.is_episode(result), edges

    results = sorted(results_of(records), key=like)
    return [on_one_ceiling(list(own)) for _, own in groupby(results, key=like)]


def report(records: Sequence[Record]) -> str:
    """The whole page. What the records have nothing for has no section.

    Raises:
        RecordError: none has a run.
    """
    groups = groups_of(records)
    if not groups:
        raise RecordError("none of the records holds a run: run the scripts again")
    sections = {heading: content for heading, section in SECTIONS.items() if (content := section(groups))}
    results = [result for group in groups for result in group]
    runs = [run for result in results for run in result.runs]
    counts = ", ".join(f"{sum(run.status == status for run in runs)} {status}" for status in ("ok", "failed", "waived"))
    days = sorted({run.started_at[:10] for run in runs})
    machines = sorted({machine_line(place.environment) for place in places(groups)})
    lines = [*machines, f"{len(results)} rows, {len(runs)} runs ({counts}), {' to '.join(days[:1] + days[1:][-1:])}."]
    introduction = "\n".join(f'<p class="note">{words(line)}</p>' for line in lines)
    return page("What moving messages cost", introduction, sections)


def title(group: Group) -> str:
    """What a group's rows have in common."""
    return f"{group[0].flow_name}, {format_bytes(group[0].record.bytes_per_trip)} a trip{_kind(group[0])}"


def _kind(result: Result) -> str:
    return ", episodes of ChatLearn" * episode_table.is_episode(result) + ", traced" * result.traced


def rows(groups: Sequence[Group]) -> str:
    """Every row, with the cells of the table that is printed."""
    lines: list[dict[str, str]] = []
    for group in groups:
        for result in group:
            shown = {column.header: column.cell(result) for column in markdown.ladder_columns(group)}
            counts = {"trips": str(len(result.seconds))}
            lines.append(shown | counts | {"flow": result.flow_name + _kind(result), "why": result.failure or ""})
    most = max(lines, key=len)  # a group without a baseline has no speed-up
    left = ("status", "flow", "why")
    columns = [Column(name, methodcaller("get", name, "-"), words=name in left) for name in most]
    return table(lines, columns, filterable=True)


def times(groups: Sequence[Group]) -> str:
    """A chart for each group of rows that compare, with a switch to a log axis, and what qualifies it.

    Points of sweeps have charts of their own.
    """
    parts: list[str] = []
    for index, group in enumerate([r for r in group if not r.runs[0].at] for group in groups):
        shown = report_charts.drawn(group)
        if not shown or group[0].traced:
            continue
        said = episode_table.findings(group) if episode_table.is_episode(group[0]) else markdown.headline(group)
        columns = episode_table.columns(group) if episode_table.is_episode(group[0]) else COLUMNS
        parts += [
            f"<h3>{words(title(group))}</h3><p>{words(said)}</p>",
            f'<p class="note">{HINT}</p>' * (not parts),
            f'<label><input type="checkbox" data-chart="times-{index}"> log axis</label>',
            report_charts.as_html(report_charts.trips(shown, columns), f"times-{index}"),
            "<details><summary>what qualifies these numbers</summary>",
            *(f"<p>{words(line)}</p>" for line in ladder_chart.facts(group).splitlines()),
            "</details>",
        ]
    return "\n".join(parts)


def stages(groups: Sequence[Group]) -> str:
    """Where the time of traced trips goes; a trace that is not to be believed is named, not drawn."""
    parts = []
    for index, group in enumerate(groups):
        spans = [result for result in group if any(run.spans for run in result.runs)]
        traced = [result for result in spans if result.traced_run.trips_us]
        problems = {result.name: stage_chart.problems([result]) for result in traced}
        good = [result for result in traced if not problems[result.name]]
        if not traced:
            continue
        parts.append(f"<h3>{words(title(group))}</h3>")
        parts += [report_charts.as_html(report_charts.stages(good), f"stages-{index}")] if good else []
        parts += [f'<p class="note">not drawn: {words(problem)}</p>' for own in problems.values() for problem in own]
    return "\n".join(parts)


def episodes(groups: Sequence[Group]) -> str:
    """ChatLearn's episodes: the table of docs/chatlearn.md."""
    parts = []
    for group in groups:
        done = [result for result in group if result.status == "ok" and episode_table.is_episode(result)]
        if done and not group[0].traced:
            parts += [f"<h3>{words(title(group))}</h3>", table(done, episode_table.columns(done))]
    return "\n".join(parts)


def advice(groups: Sequence[Group]) -> str:
    """The README's table, with what the largest flow of the records took."""
    return f"<h3>{words(title(groups[0]))}</h3>" + table(
        [row for row in ROWS if row.take], markdown.advice_columns(groups[0])
    )


SECTIONS = {
    "Rows": rows, "Times": times, "Stages": stages, "Episodes": episodes, "Sweeps": sweeps, "Advice": advice,
    "Environment": environments,
}  # fmt: skip
