"""What the screen shows; one function makes the row of a case for scripts and plot_results.py alike."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.analysis.statistics import summarise
from common.flow.flow import Flow
from common.record.files import RUNTIMES

COLUMNS = (
    "transport", "payload MiB", "stored MiB", "first ms", "min ms", "median ms", "p95 ms", "max ms",
    "GB/s", "of ceiling", "wrong",
)  # fmt: skip
ROW_FLAGS = ("zero_copy", "copy_out", "huge_pages", "reuse_buffers")  # which make another row of a transport
UNSTABLE = 0.10  # standard deviation / mean above which a row is called unstable


def label(record: dict[str, Any], case: dict[str, Any]) -> str:
    """Runtime and transport as they were asked for."""
    flags = [f"--{flag.replace('_', '-')}" for flag in ROW_FLAGS if record["arguments"].get(flag)]
    episode = record["arguments"].get("episode", 1)
    flags += [f"--episode {episode}"] * (episode > 1)
    threads = record["arguments"].get("threads", 1)
    flags += [f"--threads {threads}"] * (threads > 1)
    elsewhere, spread = record["arguments"].get("address"), record["arguments"].get("placement") == "spread"
    flags += ["--address"] if elsewhere else ["--placement spread"] * spread
    return " ".join([RUNTIMES.get(record["script"], record["script"]), case["transport"], *flags])


def row(record: dict[str, Any], case: dict[str, Any]) -> list[str]:
    """One cell per column: payload a trip, what of it and its copies went into the object store, times.

    Mapped rows have no GB/s and no share of the ceiling, which copies: their readers hold views.
    """
    name = label(record, case) + (" (spilled)" if case["spilled_bytes"] else "")
    mebibytes = f"{case['bytes_per_trip'] / 2**20:,.4g}"
    first = milliseconds(case["first_seconds"]) if case["first_seconds"] else "-"
    if not case["seconds"]:
        return [name, mebibytes, "-", first, *["-"] * 6, case["status"]]
    stored = case["stored_bytes"] / len(case["seconds"]) / 2**20
    summary = summarise(case["seconds"])
    rate = f"{case['bytes_per_trip'] / summary.median / 1e9:.3g}" if case["payload_copied"] else "mapped"
    wrong = f"WRONG {case['wrong_bytes']:,}" if case["wrong_bytes"] else "0"
    return [
        name,
        mebibytes,
        f"{stored:,.0f}" if case["status"] == "ok" else "-",
        first,
        *(milliseconds(value) for value in (summary.min, summary.median, summary.p95, summary.max)),
        rate,
        f"{record['ceiling_seconds'] / summary.median:.1%}" if case["payload_copied"] else "-",
        wrong if case["status"] == "ok" or case["wrong_bytes"] else case["status"],
    ]


def table(rows: list[list[str]], header: Sequence[str] = COLUMNS) -> str:
    """Columns aligned for a terminal: names to the left, figures to the right."""
    widths = [max(len(cells[index]) for cells in [header, *rows]) for index in range(len(header))]
    lines = []
    for cells in [header, *rows]:
        pairs = zip(cells, widths, strict=True)
        padded = [cell.rjust(width) if index else cell.ljust(width) for index, (cell, width) in enumerate(pairs)]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def print_start(flow: Flow, record: dict[str, Any]) -> None:
    """The edges and the ceiling, before anything is measured."""
    print(f"{flow.title}: {flow.bytes_per_trip / 2**20:,.4g} MiB a trip")
    for edge in flow.edges:
        print(f"  {edge!s:24} {edge.bytes / 2**20:10,.4g} MiB")
    seconds, threads = record["ceiling_seconds"], record["arguments"]["threads"]
    all_cores = min(record["ceiling_all_cores_samples_seconds"])
    print(
        f"ceiling: {milliseconds(seconds)} ms, one warm copy an edge by {threads} thread{'s' * (threads > 1)} "
        f"({flow.bytes_per_trip / seconds / 1e9:.3g} GB/s); {milliseconds(all_cores)} ms by all cores at best",
        flush=True,
    )


def print_end(record: dict[str, Any], output: Path) -> None:
    """The case's row, what a reader must know about it, and the demo's last line."""
    case = record["cases"][0]
    print(table([row(record, case)]))
    for what, seconds in case["setup_seconds"].items():
        print(f"once, before the first trip: {what} {milliseconds(seconds)} ms")
    for warning in warnings(case):
        print(f"warning: {warning}")
    if case["status"] != "ok":
        print(f"error: {case['reason']}", file=sys.stderr, flush=True)
    print(f"record: {output}")
    print(f"Execution time: {sum(case['seconds'], 0.0)} seconds")


def warnings(case: dict[str, Any]) -> list[str]:
    """What makes a row less than it seems, with what to do about it."""
    found = []
    if case["spilled_bytes"]:
        mebibytes = case["spilled_bytes"] / 2**20
        found.append(f"{mebibytes:,.0f} MiB were spilled to disk and slowed the trips: raise --object-store-bytes")
    if case["seconds"] and summarise(case["seconds"]).variation > UNSTABLE:
        variation = summarise(case["seconds"]).variation
        found.append(f"trips vary by {variation:.0%} and may be unstable: close other programs, raise --iterations")
    return found


def three_digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{float(f'{value:.3g}'):,.10g}"


def milliseconds(seconds: float) -> str:
    """Four significant digits; whole milliseconds from a second up."""
    return f"{seconds * 1e3:,.4g}" if seconds < 1 else f"{seconds * 1e3:,.0f}"
