# SPDX-License-Identifier: Apache-2.0
"""Say how the loading of a model is shown: by way, with the memory that further processes add."""

from statistics import median
from typing import Any

from dataflow.analysis.result import Result
from dataflow.analysis.statistics import interval, typical_seconds
from dataflow.report import tables
from dataflow.report.sections import Table, by_sizes
from dataflow.report.tables import Column, format_milliseconds
from dataflow.studies.model_loading import WAYS


def run_seconds(result: Result, *parts: str) -> list[float]:
    """Return the time of these parts of a load in each run: the median of its processes."""

    def seconds_of(load: dict[str, Any]) -> float:
        return sum(load[f"{part}_seconds"] for part in parts)

    return [median(map(seconds_of, loads)) for loads in loads_of_runs(result)]


def loads_of_runs(result: Result) -> list[list[dict[str, Any]]]:
    """Return the loads of each run, one per process."""
    return [run.measured["model_loading"]["loads"] for run in result.shown_runs]


def part_column(header: str, *parts: str) -> Column:
    return Column(
        header, lambda result: format_milliseconds(typical_seconds(run_seconds(result, *parts)))
    )


def format_publish(result: Result) -> str:
    seconds = [run.measured["model_loading"]["publish_seconds"] for run in result.shown_runs]
    return format_milliseconds(typical_seconds(seconds))


def format_added_memory(result: Result) -> str:
    model_bytes = sum(field.bytes for field in result.flow.tasks[0].work)
    added = []
    for loads in loads_of_runs(result):
        added += [load["added_bytes"] for load in loads[1:]]
    return f"{median(added) / model_bytes:.1%}"


def format_interval(result: Result) -> str:
    """Return the 95 % interval of the time of a load and the first read, in milliseconds."""
    seconds = run_seconds(result, "load", "first_read")
    milliseconds = [1e3 * of_run for of_run in seconds]
    return tables.format_ends(interval(milliseconds))


def way_of(result: Result) -> int:
    """Return the position of the way to load in the list of ways."""
    return WAYS.index(result.configuration.flags["load_by"])


COLUMNS = (
    Column("configuration", tables.marked_label),
    Column("publish ms", format_publish),
    part_column("load ms", "load"),
    part_column("first read ms", "first_read"),
    part_column("second read ms", "second_read"),
    part_column("load and first read ms", "load", "first_read"),
    Column("95 % interval of load and first read", format_interval),
    Column("memory that each further worker adds (share of the model)", format_added_memory),
)
SECTIONS = {
    "model-loading": Table(
        "loading",
        columns=lambda group: COLUMNS,
        title=lambda result: result.flow.title,
        group_by=by_sizes(),
        rows=lambda group: sorted(group.done, key=way_of),
    ),
}
