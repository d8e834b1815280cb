"""Say how the loading of a model is shown: by way, with the memory that further processes add."""

from statistics import median

from dataflow.analysis.result import Result
from dataflow.analysis.statistics import interval, typical_seconds
from dataflow.report import tables
from dataflow.report.sections import Table, by_sizes
from dataflow.report.tables import Column, format_milliseconds
from dataflow.studies.model_loading import WAYS


def run_seconds(result: Result, *parts: str) -> list[float]:
    """Return the time of these parts of a load in each run: the median of its processes."""
    runs = [run.measured["model_loading"]["loads"] for run in result.shown_runs]
    return [
        median(sum(load[f"{part}_seconds"] for part in parts) for load in loads) for loads in runs
    ]


def part_column(header: str, *parts: str) -> Column:
    return Column(
        header, lambda result: format_milliseconds(typical_seconds(run_seconds(result, *parts)))
    )


def format_publish(result: Result) -> str:
    seconds = [run.measured["model_loading"]["publish_seconds"] for run in result.shown_runs]
    return format_milliseconds(typical_seconds(seconds))


def format_added_memory(result: Result) -> str:
    model_bytes = sum(field.bytes for field in result.flow.tasks[0].work)
    later = [
        load for run in result.shown_runs for load in run.measured["model_loading"]["loads"][1:]
    ]
    return f"{median(load['added_bytes'] for load in later) / model_bytes:.1%}"


COLUMNS = (
    Column("configuration", tables.marked_label),
    Column("publish ms", format_publish),
    part_column("load ms", "load"),
    part_column("first read ms", "first_read"),
    part_column("second read ms", "second_read"),
    part_column("load and first read ms", "load", "first_read"),
    Column("95 % interval of load and first read", lambda r: tables.format_ends(
        interval([1e3 * seconds for seconds in run_seconds(r, "load", "first_read")]))),
    Column("memory that each further worker adds (share of the model)", format_added_memory),
)  # fmt: skip
SECTIONS = {
    "model-loading": Table(
        "loading", columns=lambda group: COLUMNS, title=lambda result: result.flow.title, group_by=by_sizes(),
        rows=lambda group: sorted(group.done, key=lambda r: WAYS.index(r.configuration.flags["load_by"])),
    ),
}  # fmt: skip
