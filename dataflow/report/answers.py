# SPDX-License-Identifier: Apache-2.0
"""Build the answers of docs/choosing.md: a table of copies to keep, and a list of what else readers get, and where."""

from collections.abc import Sequence

from dataflow.analysis.campaigns import Row
from dataflow.analysis.links import link_seconds
from dataflow.analysis.result import Result
from dataflow.records.schema import Run
from dataflow.report import tables
from dataflow.report.campaign_tables import format_memory
from dataflow.report.gpu_tables import answer_gpus
from dataflow.report.machine_columns import boots_of_rows, format_factors, list_means, order_of
from dataflow.report.suite_tables import describe_layout
from dataflow.report.tables import Column, Section, format_milliseconds, make_table
from dataflow.units import format_bytes

NO_FAILURE = "-"
ENDED_BY_USER = "interrupted"  # beginning of the reason of a run that its user ended
IS_OVERWRITTEN = "The next message overwrites the buffer, so no page of it is new."
NO_PRODUCER = "The times have no copy by the producer."
# What readers get besides copies to keep, and why that takes less time.
OTHER_READERS = {
    tables.REUSED_BUFFER: IS_OVERWRITTEN,
    tables.KEPT_IN_PLACE: NO_PRODUCER,
    tables.REUSED_IN_PLACE: f"{IS_OVERWRITTEN} {NO_PRODUCER}",
    tables.VIEW: "No reader copies the bytes, or reads them while the clock runs.",
}


def build_answers(results: Sequence[Result], headline: Sequence[Row]) -> list[Section]:
    """Return the table of one node with copies to keep, and the list of the other answers."""
    on_ray = [row for row in headline if row.newest.transport.runtime.uses_ray]
    boots = boots_of_rows(on_ray)
    answers = []
    for readers, reason in OTHER_READERS.items():
        rows = [row for row in on_ray if tables.readers_of(row.newest) == readers]
        if rows:
            answers.append(answer_other_readers(readers, rows, reason, len(boots)))
    for readers in (tables.COPY_TO_KEEP, tables.REUSED_BUFFER):
        on_several_nodes = []
        for result in results:
            is_alike = tables.readers_of(result) == readers
            if result.table == "cluster" and is_alike and link_seconds(result):
                on_several_nodes.append(result)
        if on_several_nodes:
            answers.append(answer_several_nodes(readers, on_several_nodes))
    answers.append(answer_gpus(results))
    others = "\n".join(f"* {answer}" for answer in answers)
    return [build_one_node(on_ray), Section("answers", "", others)]


def build_one_node(rows: Sequence[Row]) -> Section:
    """Return the configurations whose readers may keep their copy, the fastest first, without producers in place.

    Each has its factor, its memory, and failed runs if there are any.
    """
    copies = [row for row in rows if tables.readers_of(row.newest) == tables.COPY_TO_KEEP]
    copies.sort(key=order_of)
    boots = boots_of_rows(rows)
    columns = (
        Column("configuration", lambda row: f"`{row.newest.name}`"),
        Column("times as fast", lambda row: format_factors(row, boots)),
        Column("peak memory GiB", format_memory),
        Column("failed runs", count_failures, is_optional=True),
    )
    table = make_table(copies, columns)
    size = format_bytes(rows[0].newest.workload.bytes_per_iteration)
    parts = [
        "how many times as fast as the demo's queues a configuration is (by the means, one number per machine)",
        "the peak memory of all its processes together",
    ]
    if "failed runs" in table.headers:
        parts.append("how many of its runs failed")
    *first, last = parts
    beginning = f"On Ray, {size} per iteration; readers may keep their copy."
    sentence = f"{beginning} Each row says {', '.join(first)}, and {last}."
    return Section("answers", "One node", sentence, table)


def count_failures(row: Row) -> str:
    """Return how many runs of a configuration failed in all campaigns, as "1 of 15"; "-" if none did.

    Runs that their user ended are not among the 15.
    """
    ended: list[Run] = []
    for pair in row.pairs.values():
        ended += [run for run in pair.new.runs if not was_ended_by_user(run)]
    failed = [run for run in ended if run.status == "failed"]
    return f"{len(failed)} of {len(ended)}" if failed else NO_FAILURE


def was_ended_by_user(run: Run) -> bool:
    reason = run.reason or ""
    return reason.startswith(ENDED_BY_USER)


def answer_other_readers(readers: str, rows: Sequence[Row], reason: str, machines: int) -> str:
    """Return the mean times of configurations of one group, by machine, and how many runs failed.

    machines: how many have measured any of the answers. A configuration that fewer have measured says how many have.
    """
    times = []
    boots = boots_of_rows(rows)
    for row in rows:
        text = f"`{row.newest.name}` takes {list_means(row, boots)} ms"
        measured = len(row.boots)
        if measured < machines:
            text += " (one machine)" if measured == 1 else f" ({measured} machines)"
        failures = count_failures(row)
        if failures != NO_FAILURE:
            text += f" (failed runs: {failures})"
        times.append(text)
    return f"**One node, {readers}.** {'; '.join(times)}. {reason}"


def answer_several_nodes(readers: str, results: Sequence[Result]) -> str:
    """Return the times of the largest workload of one group on several nodes, the fastest configuration first."""
    workloads = [result.workload for result in results]
    largest = max(workloads, key=lambda workload: workload.bytes_per_iteration)
    shown = [result for result in results if result.workload == largest]
    shown.sort(key=lambda result: result.typical_seconds)
    times = []
    for result in shown:
        milliseconds = format_milliseconds(result.typical_seconds)
        times.append(f"`{result.name}` {milliseconds} ms ({tables.LINK.cell(result)} x)")
    layout = describe_layout(shown[0])
    size = format_bytes(largest.bytes_per_iteration)
    note = "x: the time of the network alone for the bytes that cross it"
    return f"**Several nodes, {readers}** ({layout}, {size} per iteration; {note}). {', '.join(times)}."
