"""Print the tables of records, and draw their charts.

    python3 plot_results.py                                your newest records in results/, or the published ones
    python3 plot_results.py results/run-1 mine.json        records, and folders of records
    python3 plot_results.py results/run-1 --format csv     tables for a spreadsheet
    python3 plot_results.py results/run-1 --html           also report.html: tables to sort and filter, with charts
    python3 plot_results.py results/published --publish    img/, README.md and docs/ of this repository

Every number comes from the records. Records of different machines are rejected unless --mixed is given.
"""

import argparse
import contextlib
import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from common.analysis.result import Result, group_results
from common.errors import RecordError
from common.main import run_main
from common.plan.command_line import OneLineParser
from common.records import files
from common.records.environment import MACHINE_KEYS
from common.report import console, html, markdown
from common.report.figures import to_svg
from common.report.pages import page_sections
from common.report.sections import sections
from common.report.tables import Section

ROOT = Path(__file__).resolve().parent
RESULTS = ROOT / "results"


def parse_command(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the flags, with the records and folders that are the defaults."""
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("records", nargs="*", type=Path, help="records, or folders of records")
    add("--output-dir", type=Path, help="folder of the charts (default: the folder of the first record)")
    add("--format", choices=("text", "csv", "markdown"), default="text", help="of the printed tables")
    add("--html", action="store_true", help="also write report.html")
    add("--pages", type=Path, metavar="FOLDER", help="also write the tables of its README.md and docs/")
    add("--publish", action="store_true", help="charts to img/, and --pages of this repository")
    add("--mixed", action="store_true", help="allow records of different machines")
    arguments = parser.parse_all(argv)
    if not arguments.records:
        arguments.records = find_newest(RESULTS)
        print(f"records: {', '.join(map(str, arguments.records))}")
    if arguments.publish:
        arguments.pages = arguments.pages or ROOT
        arguments.output_dir = arguments.output_dir or ROOT / "img"
        arguments.records.append(RESULTS / "evidence" / "held-out")
    first = arguments.records[0]
    arguments.output_dir = arguments.output_dir or (first if first.is_dir() else first.parent)
    return arguments


def find_newest(folder: Path) -> list[Path]:
    """Return the newest run-* folder of results/, or the single records if one of them is newer.

    Without both, return the published records.
    """
    records, runs = sorted(folder.glob("*.json")), sorted(folder.glob("run-*"))
    newest = max([*records, *runs], key=lambda path: path.stat().st_mtime, default=folder / "published")
    return records if newest in records else [newest]


def load_results(paths: Sequence[Path], mixed: bool) -> list[Result]:
    """Return the results of records and folders. Raise RecordError if machines differ, or there is no run."""
    results = group_results(map(files.load, files.record_files(paths)))
    if not results:
        raise RecordError(f"{paths[0]} has no runs: run its script again")
    environments = [environment for result in results for environment in result.environments]
    for key in MACHINE_KEYS:
        values = list(dict.fromkeys(str(environment.get(key)) for environment in environments))
        if len(values) > 1 and not mixed:
            raise RecordError(f"the records are of different machines ({key}: {values[0]} and {values[1]}): name those "
                              "of one machine, or give --mixed")  # fmt: skip
    return results


def write_charts(built: Sequence[Section], folder: Path) -> list[Path]:
    """Write each chart as SVG, with a number in the name of a second one; return the files."""
    written: list[Path] = []
    charts = [section.chart for section in built if section.chart]
    for index, chart in enumerate(charts):
        number = 1 + sum(other.file_name == chart.file_name for other in charts[:index])
        written.append(folder / f"{chart.file_name}{f'_{number}' if number > 1 else ''}.svg")
        written[-1].write_text(to_svg(chart.draw()))
    return written


def verdict_section(folder: Path) -> Section:
    """Return how often comparisons are wrong, by the records of a folder."""
    from evidence import false_alarms

    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        false_alarms.main([str(folder / "alike"), str(folder / "paired")])
    return Section("verdicts", "", output.getvalue().strip())


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if a result is impossible."""
    arguments = parse_command(argv)
    results = load_results(arguments.records, arguments.mixed)
    built = sections(results)
    try:
        arguments.output_dir.mkdir(parents=True, exist_ok=True)
        written = write_charts(built, arguments.output_dir)
        if arguments.html:
            written.append(arguments.output_dir / "report.html")
            written[-1].write_text(html.render(built), encoding="utf-8")
    except OSError as error:
        raise RecordError(f"cannot write {error.filename} ({error.strerror}): give another --output-dir") from None
    if arguments.pages:
        evidence = [verdict_section(RESULTS / "evidence")] if arguments.publish else []
        markdown.rewrite_pages(arguments.pages, [*built, *page_sections(results), *evidence])
    if arguments.format == "csv":
        for section in built:
            if section.table:
                csv.writer(sys.stdout, lineterminator="\n").writerows([section.table.headers, *section.table.cells])
    elif arguments.format == "markdown":
        print(markdown.render(built))
    else:
        console.print_sections(built)
        print(f"charts: {', '.join(map(str, written)) or 'none'}")
    return int(any(result.status == "impossible" for result in results))


if __name__ == "__main__":
    run_main(main)
