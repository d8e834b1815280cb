# SPDX-License-Identifier: Apache-2.0
"""Print the tables of records, and draw their charts.

    python3 -m dataflow report                                your newest records in results/, or the published ones
    python3 -m dataflow report results/run-1 mine.json        records, and folders of records
    python3 -m dataflow report results/run-1 --html           also report.html: tables to sort and filter, with charts
    python3 -m dataflow report results/published --publish    img/, README.md and docs/ of this repository

Every number comes from the records. Records of different machines, and records of different boots in one table, are
rejected unless --mixed is given.
"""

import argparse
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.record_files import find_newest
from dataflow.errors import RecordError
from dataflow.plan.command_line import VerbParser
from dataflow.plan.options import CAMPAIGNS, RESULTS
from dataflow.records import files

ROOT = RESULTS.parent
COMMIT = re.compile(r'"git_commit": *"([0-9a-f]{40})"')


def parse_command(argv: Sequence[str]) -> argparse.Namespace:
    """Return the flags; raise UsageError for a wrong one. Whether the records exist is checked later.

    Without records, they are the newest own ones or the published ones, whose paths are printed.
    """
    parser = VerbParser(__doc__, "python3 -m dataflow report [RECORDS ...] [flags]")
    add = parser.add_argument
    add("records", nargs="*", type=Path, help="records, or folders of records")
    add(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="folder of the charts (default: that of the first record)",
    )
    add("--html", action="store_true", help="also write report.html")
    add(
        "--publish",
        type=Path,
        nargs="?",
        const=ROOT,
        metavar="FOLDER",
        help="write the charts of its pages to img/, and the tables into README.md and docs/, of this folder "
        "(default: this repository)",
    )
    add(
        "--columns",
        choices=["all"],
        help="print all columns of each table, and not the most important ones",
    )
    add(
        "--mixed",
        action="store_true",
        help="allow records of different machines or boots in one table",
    )
    arguments = parser.parse_all(argv)
    if not arguments.records:
        arguments.records = find_newest(RESULTS) or [RESULTS / "published"]
        print(f"records: {', '.join(map(str, arguments.records))}")
    arguments.output = arguments.output or chart_folder(arguments)
    return arguments


def chart_folder(arguments: argparse.Namespace) -> Path:
    """Return where charts are written without --output."""
    if arguments.publish:
        return arguments.publish / "img"
    first = arguments.records[0]
    return first if first.is_dir() else first.parent


def name_charts(built: Sequence[Any], shown: Collection[str] | None) -> dict[str, Any]:
    """Return the charts by the names of their files. A second one of a name has a number.

    Those of pages are the ones that are `shown` there; None: all.
    """
    named: dict[str, Any] = {}
    counts: Counter[str] = Counter()
    for section in built:
        if section.chart:
            name = section.chart.file_name
            counts[name] += 1
            number = "" if counts[name] == 1 else f"_{counts[name]}"
            file = f"{name}{number}.svg"
            if shown is None or file in shown:
                named[file] = section.chart
    return named


def write_charts(named: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write each chart as SVG; return the files."""
    written = []
    for name, chart in named.items():
        path = folder / name
        path.write_text(chart.to_svg(), encoding="utf-8")
        written.append(path)
    return written


def published_elsewhere() -> list[Any]:
    """Return the results of pages that are not in results/published: campaigns, and the agreement of the scripts."""
    from dataflow.analysis.result import group_results

    folders = [CAMPAIGNS, RESULTS / "evidence" / "agreement"]
    return group_results(files.load_all([folder for folder in folders if folder.exists()]))


def commits_of(results: Sequence[Any]) -> set[str]:
    """Return the known commits of results."""
    commits = set()
    for result in results:
        commits |= {environment.get("git_commit") for environment in result.environments}
    return {commit for commit in commits if commit}


def commits_of_evidence() -> set[str]:
    """Return the commits of what was measured beside the suite: raymeter's records, faults and puts."""
    commits = set()
    for pattern in ("*.json", "*.jsonl"):
        for path in (RESULTS / "evidence").rglob(pattern):
            commits |= set(COMMIT.findall(path.read_text(encoding="utf-8")))
    return commits


def count_ages(results: Sequence[Any], folder: Path) -> None:
    """Store how old the code of published numbers is, up to now if pages of this repository are written."""
    from dataflow.report.code_age import update_ages

    commits = commits_of(results) | commits_of(published_elsewhere()) | commits_of_evidence()
    update_ages(commits, ROOT, is_new_day_counted=folder.resolve() == ROOT)


def main(argv: Sequence[str]) -> int:
    """Print tables, write charts; return 0, or 1 for an impossible result. Raise RecordError for unusable records."""
    arguments = parse_command(argv)
    from dataflow.analysis.comparison import check_one_machine  # imports take time, as in run.py
    from dataflow.analysis.result import group_results
    from dataflow.report import render
    from dataflow.report.pages import load_rows, page_sections
    from dataflow.report.sections import measured_key, sections

    results = group_results(files.load_all(arguments.records))
    if not results:
        raise RecordError(f"{arguments.records[0]} has no runs: measure again")
    if not arguments.mixed:
        published = RESULTS / "published"
        is_published = all(path.resolve().is_relative_to(published) for path in arguments.records)
        # The tables of published records name the number of boots.
        check_one_machine(results, several_boots=is_published)
    if arguments.publish:
        count_ages(results, arguments.publish)
    rows = load_rows() if arguments.publish else []
    built = sections(results, {measured_key(row.newest) for row in rows})
    of_pages = page_sections(results, rows) if arguments.publish else []
    shown = render.charts_on_pages(arguments.publish) if arguments.publish else None
    try:
        arguments.output.mkdir(parents=True, exist_ok=True)
        written = write_charts(name_charts([*built, *of_pages], shown), arguments.output)
        if arguments.html:
            page = arguments.output / "report.html"
            page.write_text(render.to_html(built), encoding="utf-8")
            written.append(page)
    except OSError as error:
        path = error.filename or arguments.output  # a full disk names no file
        raise RecordError(
            f"cannot write {path} ({error.strerror}): give another --output"
        ) from None
    if arguments.publish:
        render.rewrite_pages(arguments.publish, [*built, *of_pages])
    render.print_sections(built, render.MORE_COLUMNS if arguments.columns else render.MAX_COLUMNS)
    render.print_text(f"charts: {', '.join(map(str, written)) or 'none'}")
    return int(any(result.status == "impossible" for result in results))
