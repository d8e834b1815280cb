"""What a script prints: before its trips, and after them."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.analysis.disturbances import disturbances
from common.analysis.results import Result, ceiling_of
from common.flow.flow import Flow
from common.record.points import points
from common.record.schema import Record, Run
from common.text import tables
from common.text.tables import COLUMNS, HARNESS_SHOWN, UNSTABLE, Column, milliseconds, table, three_digits
from common.units import format_bytes


def width() -> int | None:
    """Of the terminal, in characters; None in a pipe, which has no end."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_table(rows: Sequence[Any], columns: Sequence[Column] = COLUMNS, wide: int | None = None) -> None:
    """As wide as the terminal, or `wide` characters."""
    print(table(rows, columns, wide or width()))


def print_start(flow: Flow, threads: int, run: Run) -> None:
    """The edges and the ceiling, before anything is measured."""
    print(f"{flow.title}: {format_bytes(flow.bytes_per_trip)} a trip")
    for edge in flow.edges:
        print(f"  {edge!s:24} {format_bytes(edge.bytes):>10}")
    seconds = ceiling_of([run])
    if seconds:
        print(
            f"ceiling: {milliseconds(seconds)} ms, one warm copy an edge by {threads} thread{'s' * (threads > 1)} "
            f"({flow.bytes_per_trip / seconds / 1e9:.3g} GB/s); "
            f"{milliseconds(min(run.ceiling_all_cores_seconds))} ms by all cores at best",
            flush=True,
        )


def print_end(record: Record, output: Path, wide: int | None = None) -> None:
    """The row of its runs, what a reader must know about it, and the demo's last line."""
    if record.sweep:
        return _print_sweep(record, output)
    result, run = Result((record,)), record.runs[-1]
    print_table([result], wide=wide)
    if record.row.flags.get("in_flight") and result.paced_by_run:
        rate = record.bytes_per_trip / result.paced_seconds / 1e9
        every = milliseconds(result.paced_seconds)
        print(f"throughput: a trip every {every} ms, {rate:.3g} GB/s, with its episode's start and end")
    for what, seconds in run.setup_seconds.items():
        print(f"once, before the first trip: {what} {milliseconds(seconds)} ms")
    for warning in warnings(result):
        print(f"warning: {warning}")
    for run in record.runs:
        if run.status != "ok":
            print(f"error: {run.reason}", file=sys.stderr, flush=True)
    print(f"record: {output}")
    print(f"Execution time: {three_digits(sum(result.seconds, 0.0))} seconds")


def point_words(at: Mapping[str, int]) -> str:
    """Where a sweep is: `payload 1 MiB`."""
    shown = {name: format_bytes(value) if name == "payload" else f"{value}" for name, value in at.items()}
    return ", ".join(f"{name.replace('_', '-')} {value}" for name, value in shown.items())


def print_point(run: Run, at: Mapping[str, int]) -> None:
    """A line as soon as a sweep has a point, or one of several runs has ended."""
    done = f"{milliseconds(float(np.median(run.seconds)))} ms, {len(run.seconds)} trips" if run.seconds else ""
    print(f"  {point_words(at)}: {done if run.status == 'ok' else f'{run.status}, {run.reason}'}", flush=True)


def _print_sweep(record: Record, output: Path) -> None:
    """A row a point, and why points have none."""
    results = [Result((point,)) for point in points(record)]
    print_table(results, [Column("at", lambda result: point_words(result.runs[0].at)), *COLUMNS])
    for result in results:
        at = point_words(result.runs[0].at)
        if result.failure:
            print(f"{at}: {result.failure}")
        for warning in warnings(result):
            print(f"warning: {at}: {warning}")
    print(f"record: {output}")
    print(f"Execution time: {three_digits(sum((sum(run.seconds) for run in record.runs), 0.0))} seconds")


def warnings(result: Result) -> list[str]:
    """What makes a row less than it seems, with what to do about it."""
    found: list[str] = []
    if not result.seconds:
        return found
    if result.spilled_bytes:
        spilled = format_bytes(result.spilled_bytes)
        found.append(f"{spilled} were spilled to disk and slowed the trips: raise --object-store-bytes")
    if result.summary.variation > UNSTABLE:
        variation = f"{result.summary.variation:.0%}"
        found.append(f"trips vary by {variation} and may be unstable: close other programs, raise --iterations")
    environment = result.record.environments.get("0", {})
    for run in result.runs:
        found += disturbances(run, environment.get("clock_resolution_seconds", 0.0))
    if result.harness_share > HARNESS_SHOWN:
        found.append(f"{result.harness_share:.1%} of a trip is the suite's own work: its stamps")
    if result.above_ceiling:
        found.append(f"{result.above_ceiling:.0%} of its ceiling: {tables.ABOVE_CEILING}; repeat it on a quiet machine")
    return found
