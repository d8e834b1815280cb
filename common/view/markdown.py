"""The results as text: the table of all records, and its place in the README."""

from pathlib import Path

import numpy as np

from common.analysis.statistics import speedup_interval, summarise
from common.record.files import RecordError
from common.view import ladder_chart as chart
from common.view import small_messages as microbenchmark
from common.view import tables as report
from common.view.advice import ADVICE


def markers(section: str) -> tuple[str, str]:
    """Where a section of the README begins and ends."""
    return f"<!-- {section}: written by plot_results.py --readme -->", f"<!-- end of {section} -->"


def on_one_ceiling(rows: list[chart.Row]) -> list[chart.Row]:
    """The rows with the median of their runs' ceilings, so that shares compare, and are those of the chart."""
    seconds = float(np.median([record["ceiling_seconds"] for record, _ in rows]))
    return [(record | {"ceiling_seconds": seconds}, case) for record, case in rows]


def table_rows(rows: list[chart.Row]) -> tuple[list[str], list[list[str]]]:
    """Header and cells: the scripts' own columns, peak memory, and the speed-up over the demo's baseline."""
    baseline = next((case["seconds"] for record, case in rows if report.label(record, case) == chart.BASELINE), [])
    cells = []
    for record, case in rows:
        ratio = (
            f"{report.three_digits(speedup_interval(case['seconds'], baseline)[0])}x"
            if baseline and case["seconds"] and record["arguments"].get("episode", 1) == 1  # else unlike it
            else "-"
        )
        peak = f"{case['peak_memory_bytes'] / 2**30:.1f}" if case["peak_memory_bytes"] else "-"
        cells.append([*report.row(record, case), peak, ratio])
    return [*report.COLUMNS, "peak GiB", "speed-up"], cells


CEILING = "torch memcpy"  # which is no transport


def headline(rows: list[chart.Row]) -> str:
    """The fastest row that copies and the fastest that maps, a sentence each."""
    baseline = next((c["seconds"] for r, c in rows if report.label(r, c) == chart.BASELINE), [])
    sentences = []
    for copied, where in (
        (True, "Where readers end with bytes of their own"),
        (False, "Where they map another's memory"),
    ):
        done = [(summarise(case["seconds"]).median, record, case) for record, case in rows
                if case["status"] == "ok" and case["payload_copied"] is copied
                and report.label(record, case) != CEILING
            and record["arguments"].get("episode", 1) == 1]  # fmt: skip
        if not done:
            continue
        median, record, case = min(done, key=lambda row: row[0])
        sentence = f"{where}, `{report.label(record, case)}` is the fastest: {report.milliseconds(median)} ms a trip"
        sentence += f", {median / record['ceiling_seconds']:.2f} times the ceiling" if copied else ""
        if baseline and case["seconds"] is not baseline:
            ratio, low, high = map(report.three_digits, speedup_interval(case["seconds"], baseline))
            sentence += f"; `{chart.BASELINE}` takes {ratio} times as long (95 % interval {low} to {high})"
        sentences.append(sentence + ".")
    return " ".join(sentences)


def markdown_table(header: list[str], cells: list[list[str]], left: int = 1) -> list[str]:
    """Lines of a Markdown table whose first `left` columns are words."""
    rule = "|---" * left + "|---:" * (len(header) - left) + "|"
    return ["| " + " | ".join(header) + " |", rule, *("| " + " | ".join(row) + " |" for row in cells)]


def markdown(rows: list[chart.Row]) -> str:
    """The headline and the table for the README, with the reasons of rows that have no numbers, and the caption."""
    lines = [headline(rows), "", *markdown_table(*table_rows(rows))]
    lines += [f"\n{report.label(*row)}: {row[1]['status']}, {row[1]['reason']}." for row in rows if row[1]["reason"]]
    return "\n".join([*lines, "", *(line + "  " for line in chart.caption(rows).splitlines())])


def advice_markdown(rows: list[chart.Row]) -> str:
    """Which transport when, each with what was measured here."""
    times = {report.label(record, case): case for record, case in rows}
    cells = []
    for name, (when, needs, copies, breaks) in ADVICE.items():
        case = times.get(name)
        measured = case["status"] if case else "not run"
        if case and case["status"] == "ok":
            summary = summarise(case["seconds"])
            measured = f"{report.milliseconds(summary.median)} ms, p95 {report.milliseconds(summary.p95)}"
        cells.append([f"`{name}`", when, needs, copies, breaks, measured])
    header = ["", "take it when", "needs", "copies an edge", "what breaks it", "a trip here"]
    return "\n".join(markdown_table(header, cells, 5))


def hops_markdown(rows: list[chart.Row]) -> str:
    """The microbenchmarks, a table for each flow, below the article's claim."""
    lines = []
    for flow, claim in microbenchmark.CLAIMS.items():
        own = [row for row in rows if row[0]["arguments"]["flow"] == flow]
        if own:
            header, cells = microbenchmark.table(own)
            lines += [f"**{cells[0][0]}**; the article: {claim}.", ""]
            lines += [*markdown_table(header[1:], [line[1:] for line in cells]), ""]
    large = [
        case
        for record, case in rows
        if (record["arguments"]["flow"], case["device"]) == ("round-trip", "cuda")
        and case["edges"][0]["bytes"] == microbenchmark.GPU_CLAIM_BYTES
    ]
    return "\n".join([*lines, f"{microbenchmark.GPU_CLAIM}; here: {'see above' if large else 'not measured'}."])


def rewrite(path: Path, sections: dict[str, str | None]) -> None:
    """Put each section's text between its two markers; None leaves what is there.

    Raises:
        RecordError: a marker is missing.
    """
    text = path.read_text()
    for section, body in sections.items():
        begin, end = markers(section)
        if body is None:
            continue
        if text.count(begin) != 1 or text.count(end) != 1:
            raise RecordError(f"{path} must hold each of the two markers once: {begin} and {end}")
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{body}\n{end}{rest.split(end)[1]}"
    path.write_text(text)
