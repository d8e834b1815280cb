"""What a script prints: before its trips, and after them."""

import sys
from pathlib import Path

import msgspec

from common.analysis.results import Result, ceiling_of
from common.flow.flow import Flow
from common.record.schema import Record, Run
from common.view.tables import UNSTABLE, mebibytes, milliseconds, table


def print_start(flow: Flow, threads: int, run: Run) -> None:
    """The edges and the ceiling, before anything is measured."""
    print(f"{flow.title}: {mebibytes(flow.bytes_per_trip)} MiB a trip")
    for edge in flow.edges:
        print(f"  {edge!s:24} {mebibytes(edge.bytes):>10} MiB")
    seconds = ceiling_of([run])
    if seconds:
        print(
            f"ceiling: {milliseconds(seconds)} ms, one warm copy an edge by {threads} thread{'s' * (threads > 1)} "
            f"({flow.bytes_per_trip / seconds / 1e9:.3g} GB/s); "
            f"{milliseconds(min(run.ceiling_all_cores_seconds))} ms by all cores at best",
            flush=True,
        )


def print_end(record: Record, output: Path) -> None:
    """The last run's row, what a reader must know about it, and the demo's last line."""
    run = record.runs[-1]
    result = Result((msgspec.structs.replace(record, runs=[run]),))
    print(table([result]))
    if record.row.flags.get("in_flight") and run.episode_seconds:
        seconds = sum(run.episode_seconds) / len(run.seconds)
        rate = record.bytes_per_trip / seconds / 1e9
        print(f"throughput: a trip every {milliseconds(seconds)} ms, {rate:.3g} GB/s, with its episode's start and end")
    for what, seconds in run.setup_seconds.items():
        print(f"once, before the first trip: {what} {milliseconds(seconds)} ms")
    for warning in warnings(result):
        print(f"warning: {warning}")
    if run.status != "ok":
        print(f"error: {run.reason}", file=sys.stderr, flush=True)
    print(f"record: {output}")
    print(f"Execution time: {sum(run.seconds, 0.0)} seconds")


def warnings(result: Result) -> list[str]:
    """What makes a row less than it seems, with what to do about it."""
    found = []
    if result.spilled_bytes:
        spilled = f"{result.spilled_bytes / 2**20:,.0f}"
        found.append(f"{spilled} MiB were spilled to disk and slowed the trips: raise --object-store-bytes")
    if result.seconds and result.summary.variation > UNSTABLE:
        variation = f"{result.summary.variation:.0%}"
        found.append(f"trips vary by {variation} and may be unstable: close other programs, raise --iterations")
    return found
