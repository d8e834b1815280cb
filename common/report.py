"""What the screen shows; one function makes the row of a case for scripts and plot_results.py alike."""

import sys
from pathlib import Path
from typing import Any

from common.flows import Flow
from common.timing import summarise

COLUMNS = (
    "transport", "payload MiB", "first ms", "min ms", "median ms", "p95 ms", "max ms", "GB/s", "of ceiling", "wrong"
)  # fmt: skip
UNSTABLE = 0.10  # standard deviation / mean above which a row is called unstable


def label(record: dict[str, Any], case: dict[str, Any]) -> str:
    """The transport as it was asked for."""
    return case["transport"] + (" --zero-copy" if record["arguments"].get("zero_copy") else "")


def row(record: dict[str, Any], case: dict[str, Any]) -> list[str]:
    """One cell per column. Mapped rows have no GB/s: nobody moved the bytes."""
    name, mebibytes = label(record, case), f"{case['bytes_per_trip'] / 2**20:,.4g}"
    first = _milliseconds(case["first_seconds"]) if case["first_seconds"] else "-"
    if not case["seconds"]:
        return [name, mebibytes, first, *["-"] * 6, case["status"]]
    summary = summarise(case["seconds"])
    rate = f"{case['bytes_per_trip'] / summary.median / 1e9:.3g}" if case["payload_copied"] else "mapped"
    wrong = f"WRONG {case['wrong_bytes']:,}" if case["wrong_bytes"] else "0"
    return [
        name,
        mebibytes,
        first,
        *(_milliseconds(value) for value in (summary.min, summary.median, summary.p95, summary.max)),
        rate,
        f"{record['ceiling_seconds'] / summary.median:.1%}",
        wrong if case["status"] == "ok" or case["wrong_bytes"] else case["status"],
    ]


def table(rows: list[list[str]]) -> str:
    """Columns aligned for a terminal: names to the left, figures to the right."""
    widths = [max(len(cells[index]) for cells in [list(COLUMNS), *rows]) for index in range(len(COLUMNS))]
    lines = []
    for cells in [list(COLUMNS), *rows]:
        padded = [cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, widths))]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def print_start(flow: Flow, record: dict[str, Any]) -> None:
    """The edges and the ceiling, before anything is measured."""
    print(f"{flow.title}: {flow.bytes_per_trip / 2**20:,.4g} MiB a trip")
    for edge in flow.edges:
        print(f"  {edge!s:24} {edge.bytes / 2**20:10,.4g} MiB")
    rate = flow.bytes_per_trip / record["ceiling_seconds"] / 1e9
    print(f"ceiling: {_milliseconds(record['ceiling_seconds'])} ms, one warm copy an edge ({rate:.3g} GB/s)", flush=True)


def print_end(record: dict[str, Any], output: Path) -> None:
    """The case's row, what a reader must know about it, and the demo's last line."""
    case = record["cases"][0]
    print(table([row(record, case)]))
    for warning in warnings(case):
        print(f"warning: {warning}")
    if case["status"] != "ok":
        print(f"error: {case['reason']}", file=sys.stderr, flush=True)
    print(f"record: {output}")
    print(f"Execution time: {sum(case['seconds'])} seconds")


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


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.4g}" if seconds < 1 else f"{seconds * 1e3:,.0f}"
