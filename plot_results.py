"""Draw what records hold, and print their table: the ladder of transports, the flow, where the time goes.

    python3 plot_results.py results/*.json                     the table; pictures beside the first record
    python3 plot_results.py results/*.json --format csv        the table for a spreadsheet
    python3 plot_results.py results --html                     report.html of a folder: rows to sort, charts to point at
    python3 plot_results.py results/published --publish        img/, README.md, docs/

Every number comes from the records; several records of one row are runs of it. Records of unlike machines are refused
unless --mixed is given.
"""

import argparse
import sys
from pathlib import Path

from common.analysis.ladder import on_one_ceiling
from common.analysis.results import Result, results_of
from common.errors import RecordError, SuiteError
from common.flow.catalogue import MICROBENCHMARKS, build_flow
from common.plan.command_line import OneLineParser
from common.record import files
from common.record.environment import MACHINE_KEYS
from common.record.points import points
from common.record.schema import Record
from common.units import format_bytes
from common.view import episodes as episode_table
from common.view import (
    flow_picture,
    headline,
    ladder_chart,
    markdown,
    pages,
    small_messages,
    stage_chart,
    sweep_chart,
    sweep_table,
)
from common.view.pipe import outlast_reader
from common.view.screen import print_table
from common.view.tables import csv_table, markdown_table

ROOT = Path(__file__).resolve().parent
Records = dict[Path, Record]


def load(paths: list[Path], mixed: bool) -> Records:
    """The records, by their files.

    Raises:
        RecordError: one cannot be read, or two are of unlike machines.
    """
    records = {path: files.load(path) for path in files.below(paths)}
    machines = {}
    for path, record in records.items():
        try:
            for point in points(record) if ".py:" not in record.row.flow else ():
                if point is record or point.edges:  # a point of a sweep that cannot be has none
                    build_flow(point.row.flow, point.row.sizes, point.row.message)
        except (TypeError, ValueError):
            raise RecordError(f"{path} is of a flow that is unknown here: update the suite, or leave it out") from None
        done = [run for run in record.runs if run.status == "ok"]
        if not all(run.seconds and run.processes for run in done):
            raise RecordError(f"{path} has a row that is ok and has no trips: run its script again")
        if done:
            machines[path] = record.environments.get("0", {})
    first, expected = next(iter(machines.items()), (None, {}))
    for path, machine in {} if mixed else machines.items():
        for key in MACHINE_KEYS:
            if machine.get(key) != expected.get(key):
                raise RecordError(f"{path} is of another machine than {first} ({key}): plot them apart, or --mixed")
    return records


def parted(records: Records) -> tuple[list[Result], list[Result], list[Result], list[Result]]:
    """The rows of a ladder, those of the microbenchmarks, the traced ones, and ChatLearn's episodes.

    One flow at one size is a ladder, whichever it is; where there are several, the microbenchmarks have a table of
    their own, and so have episodes.

    Raises:
        RecordError: none has a run that is ok, or what remains is of several flows or sizes.
    """
    if records and not any(run.status == "ok" for record in records.values() for run in record.runs):
        raise RecordError("none of the records holds a row that is ok: run the scripts again")
    traced = {path: record for path, record in records.items() if any(run.spans for run in record.runs)}
    episodes = {path: record for path, record in records.items() if episode_table.is_episode(Result((record,)))}
    others = {path: record for path, record in records.items() if path not in traced and path not in episodes}
    small = {}
    if len({_moved(record) for record in others.values()}) > 1:
        small = {path: record for path, record in others.items() if record.row.flow in MICROBENCHMARKS}
    ladder = {path: record for path, record in others.items() if path not in small}
    pictured = {**ladder, **traced}
    for path, record in pictured.items():
        first, other = next(iter(pictured.items()))
        if _moved(record) != _moved(other):
            raise RecordError(f"{path} moves {_words(record)}, {first} {_words(other)}: plot them apart")
    hops = results_of(small.values())
    hops.sort(key=lambda result: (result.flow.name, result.record.edges[0].bytes))
    moved = [on_one_ceiling(group) for group in episode_table.groups(results_of(episodes.values()))]
    rows = on_one_ceiling(results_of(ladder.values()))
    return rows, hops, results_of(traced.values()), [result for group in moved for result in group]


def _moved(record: Record) -> tuple[str, tuple[tuple[str, str, int], ...]]:
    return record.row.flow, tuple((edge.source, edge.reader, edge.bytes) for edge in record.edges)


def _words(record: Record) -> str:
    return f"{format_bytes(record.bytes_per_trip)} of {record.row.flow}"


def draw(ladder: list[Result], traced: list[Result], episodes: list[Result], folder: Path) -> list[Path]:
    """Every picture that the rows are good for."""
    pictures = []
    if any(result.status == "ok" for result in ladder):
        pictures = [folder / "benchmark_result.png"]
        ladder_chart.draw_ladder(ladder, pictures[0])
        pictures += flow_picture.draw_all(ladder[0].flow, folder)
    if headline.explained(ladder, traced):
        pictures.append(folder / "headline.png")
        headline.draw(ladder, traced, pictures[-1])
    if traced:
        pictures.append(folder / "stages.png")
        stage_chart.draw(traced, ladder, pictures[-1])
    if any(result.status == "ok" for result in episodes):
        pictures += [folder / "chatlearn_episodes.png", folder / "chatlearn_messages.png"]
        episode_table.draw(episodes, pictures[-2])
        flow, rows = episodes[0].flow, episodes[0].record.row.sizes["rows"]
        title = f"What ChatLearn really moves: {flow.title}, {rows} samples a message"
        note = "A dict a message: padded tensors of all samples, and lists with a tensor or string for each sample."
        flow_picture.draw(flow, pictures[-1], title, episode_table.message_labels(flow), note)
    return pictures


def print_results(ladder: list[Result], hops: list[Result], episodes: list[Result], form: str) -> None:
    """The tables; as text also why rows have no numbers, and what qualifies those that have."""
    done = [result for result in hops if result.status == "ok"]
    found = episode_table.groups([result for result in episodes if result.status == "ok"])
    tables = [(ladder, markdown.ladder_columns(ladder)), (done, small_messages.columns(done))]
    for results, columns in (*tables, *((group, episode_table.columns(group)) for group in found)):
        if results and form == "text":
            print_table(results, columns)
        elif results:
            print((csv_table if form == "csv" else markdown_table)(results, columns))
    for result in (*ladder, *hops, *episodes) if form == "text" else ():
        if result.failure:
            print(f"{result.name}: {result.failure}")
    for group in found if form == "text" else ():
        print(f"{episode_table.described(group)}. {episode_table.findings(group)}".replace("`", ""))
    if form == "text" and ladder:
        print(markdown.headline(ladder).replace("`", ""))
        print(ladder_chart.facts(ladder))


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", type=Path, help="records that the scripts wrote, or folders of them")
    parser.add_argument("--output-dir", type=Path, help="where the pictures go (default: beside the first record)")
    parser.add_argument("--format", choices=("text", "csv", "markdown"), default="text", help="of the printed table")
    parser.add_argument("--pages", type=Path, metavar="FOLDER", help="rewrite the tables of its README.md and docs/")
    parser.add_argument("--publish", action="store_true", help="this repository's: pictures to img/, and --pages")
    parser.add_argument("--html", action="store_true", help="instead of all that one page, report.html, of any flows")
    parser.add_argument("--mixed", action="store_true", help="allow records of unlike machines in one chart")
    arguments = parser.parse_all(argv)
    if arguments.html and (arguments.publish or arguments.pages or arguments.format != "text"):
        parser.error("--html writes a page and nothing else: leave out --publish, --pages and --format")
    if arguments.publish:
        arguments.output_dir = arguments.output_dir or ROOT / "img"
        arguments.pages = arguments.pages or ROOT
    first = arguments.records[0]
    arguments.output_dir = arguments.output_dir or (first if first.is_dir() else first.parent)
    return arguments


def write_report(arguments: argparse.Namespace) -> int:
    from common.view.report import report  # plotly, which nothing else needs

    page = report(list(load(arguments.records, arguments.mixed).values()))
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    path = arguments.output_dir / "report.html"
    path.write_text(page, encoding="utf-8")
    print(f"report: {path}")
    return 0


def main(argv: list[str] | None = None) -> int:
    """Exit code 0, 1 (a row is impossible), or 2 with one line on what to do."""
    try:
        arguments = parse(argv)
        if arguments.html:
            return write_report(arguments)
        records = load(arguments.records, arguments.mixed)
        swept = results_of(record for record in records.values() if record.sweep)
        ladder, hops, traced, episodes = parted({path: r for path, r in records.items() if not r.sweep})
        for problem in stage_chart.problems(traced):
            raise RecordError(f"{problem}: trace it again on a machine that does nothing else")
        arguments.output_dir.mkdir(parents=True, exist_ok=True)
        pictures = draw(ladder, traced, episodes, arguments.output_dir)
        pictures += sweep_chart.draw_all(swept, arguments.output_dir)
        if arguments.pages:
            pages.rewrite(arguments.pages, pages.sections(ladder, hops, traced, episodes, swept))
    except SuiteError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        place = f"{error.filename} ({error.strerror})"
        print(f"error: cannot write {place}: give --output-dir another place", file=sys.stderr)
        return 2
    print_results(ladder, hops, episodes, arguments.format)
    if swept:
        sweep_table.print_costs(swept, arguments.format)
    if pictures and arguments.format == "text":
        print(f"pictures: {', '.join(map(str, pictures))}")
    return int(any(result.status == "impossible" for result in (*ladder, *hops, *traced, *episodes)))


if __name__ == "__main__":
    outlast_reader()
    sys.exit(main())
