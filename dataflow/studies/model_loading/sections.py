"""Say how the loading of a model is shown: by way, with the memory that further processes add."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec

from dataflow.analysis.statistics import interval, typical_seconds
from dataflow.records.machine import machine_line
from dataflow.report.charts import Dot, DotChart
from dataflow.report.groups import LOG_MILLISECONDS, Group, Table, by_sizes, provenance
from dataflow.report.tables import Column, Section, format_milliseconds, format_significant, make_table
from dataflow.studies.model_loading import WAYS, Loading, model_loading

LOAD, LOAD_AND_READ = ("load_seconds",), ("load_seconds", "first_read_seconds")


@dataclass(frozen=True)
class Line:
    """The runs of one way to load a model. Times are geometric means of the runs' medians over the processes."""

    way: str
    runs: list[Loading]
    model_bytes: int

    def medians(self, *parts: str) -> list[float]:
        """Return the milliseconds of these parts of a load, of each run."""
        return [1e3 * median(sum(getattr(load, part) for part in parts) for load in run.loads) for run in self.runs]

    def typical(self, *parts: str) -> float:
        return typical_seconds(self.medians(*parts)) / 1e3

    @property
    def added_share(self) -> str:
        later = [load.added_bytes for run in self.runs for load in run.loads[1:]]
        # Each process of a cold way has a file of its own, so that no pages can be shared.
        return f"{median(later) / self.model_bytes:.1%}" if later and "cold" not in self.way else "-"


def make_columns(lines: Sequence[Line]) -> list[Column]:
    first = lines[0]
    return [
        Column("way", lambda line: line.way),
        Column("publish ms", lambda line: format_milliseconds(typical_seconds([r.publish_seconds for r in line.runs]))),
        Column("load ms", lambda line: format_milliseconds(line.typical(*LOAD))),
        Column("first read ms", lambda line: format_milliseconds(line.typical("first_read_seconds"))),
        Column("second read ms", lambda line: format_milliseconds(line.typical("second_read_seconds"))),
        Column(f"load: times as fast as {first.way}",
               lambda line: format_significant(first.typical(*LOAD) / line.typical(*LOAD))),
        Column("load and first read: times as fast",
               lambda line: format_significant(first.typical(*LOAD_AND_READ) / line.typical(*LOAD_AND_READ))),
        Column("memory that each further worker adds (share of the model)", lambda line: line.added_share),
    ]  # fmt: skip


def draw(lines: Sequence[Line], title: str, notes: Sequence[str]) -> DotChart:
    groups: dict[str, list[Dot]] = {}
    for name, parts in {"load": LOAD, "load, and read all bytes once": LOAD_AND_READ}.items():
        for line in lines:
            times, label = line.medians(*parts), format_milliseconds(line.typical(*parts))
            low, high = interval(times) or (min(times), max(times))
            groups.setdefault(name, []).append(Dot(line.way, typical_seconds(times), low, high, label))
    return DotChart("loading", title, groups, LOG_MILLISECONDS, caption=tuple(notes))


def lines_of(group: Group) -> list[Line]:
    lines = []
    for result in sorted(group.done, key=lambda result: WAYS.index(result.configuration.flags["load_by"])):
        flags, fields = result.configuration.flags, result.flow.tasks[0].work
        way = flags["load_by"] + (" --zero-copy" if "zero_copy" in flags else "")
        runs = [msgspec.convert(run.measured["model_loading"], Loading) for run in result.shown_runs]
        lines.append(Line(way, runs, sum(field.bytes for field in fields)))
    return lines


def evidence_sections(folder: Path) -> list[Section]:
    """Return the section of the published measurement, which an earlier version has written."""
    if not (folder / "loading.json").exists():
        return []
    record = msgspec.json.decode((folder / "loading.json").read_bytes())
    runs, flow, lines = record["runs"], model_loading(record["model"], loaders=record["workers"]), []
    for way in dict.fromkeys(run["way"] for run in runs):
        runs_of_way = [msgspec.convert(run, Loading) for run in runs if run["way"] == way]
        lines.append(Line(way, runs_of_way, record["bytes"]))
    notes = [
        machine_line(record["environment"]),
        f"Runs per way: {len(lines[0].runs)}, each with {record['workers']} processes that load one after the other. "
        f"Measured on {runs[0]['ended_at'][:10]}, commit {record['environment']['git_commit'][:10]}.",
    ]
    table, chart = make_table(lines, make_columns(lines)), draw(lines, flow.title, notes)
    return [Section("loading", flow.title, "", table, chart, notes)]


SECTIONS = {
    "model-loading": Table(
        "loading",
        columns=lambda group: make_columns(lines_of(group)),
        rows=lines_of,
        title=lambda result: result.flow.title,
        chart=lambda group: draw(lines_of(group), group.done[0].flow.title, provenance(group.done)),
        group_by=by_sizes(),
    )
}
