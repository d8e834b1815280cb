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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.analysis.false_alarms import PAIRED, SHUFFLES, Judged, judged
from common.analysis.results import Result, results_of
from common.charts import episode_chart, flow_picture, headline, ladder_chart, stage_chart, sweep_chart
from common.cost.choice import Checked, check
from common.cost.costs import costs_of
from common.errors import RecordError, SuiteError
from common.pages import generated, markdown
from common.pages.parts import Parts, load, parted
from common.plan.command_line import OneLineParser
from common.record import files
from common.text import episodes as episode_table
from common.text import small_messages, sweep_table
from common.text.pipe import outlast_reader
from common.text.screen import print_table
from common.text.tables import Column, csv_table, markdown_table

ROOT = Path(__file__).resolve().parent


def draw(parts: Parts, folder: Path) -> list[Path]:
    """Every picture that the rows are good for."""
    pictures, ladder, traced, episodes = [], parts.ladder, parts.traced, parts.episodes
    if any(result.status == "ok" for result in ladder):
        pictures = [folder / "benchmark_result.png"]
        ladder_chart.draw_ladder(ladder, pictures[0])
        pictures += flow_picture.draw_all(ladder[0].flow, folder)
    if headline.explained(ladder, traced):
        pictures.append(folder / "headline.png")
        headline.draw(ladder, traced, pictures[-1])
    for name, spans, untraced in (("stages", traced, ladder), ("chatlearn_stages", parts.fields, [])):
        if spans:
            pictures.append(folder / f"{name}.png")
            stage_chart.draw(spans, untraced, pictures[-1])
    if any(result.status == "ok" for result in episodes):
        pictures += [folder / "chatlearn_episodes.png", folder / "chatlearn_messages.png"]
        episode_chart.draw(episodes, pictures[-2])
        flow, rows = episodes[0].flow, episodes[0].record.row.sizes["rows"]
        title = f"What ChatLearn really moves: {flow.title}, {rows} samples a message"
        note = "A dict a message: padded tensors of all samples, and lists with a tensor or string for each sample."
        flow_picture.draw(flow, pictures[-1], title, episode_chart.message_labels(flow), note)
    return pictures


def print_results(parts: Parts, form: str) -> None:
    """The tables; as text also why rows have no numbers, and what qualifies those that have."""
    ladder, hops, episodes = parts.ladder, parts.hops, parts.episodes
    done = [result for result in hops if result.status == "ok"]
    found = episode_table.groups([result for result in episodes if result.status == "ok"])
    tables: list[tuple[Sequence[Any], list[Column]]] = [
        (ladder, markdown.ladder_columns(ladder)), (done, small_messages.columns(done)),
        *((group, episode_table.columns(group)) for group in found),
        *((episode_table.beside_flat(group, parts.flat), episode_table.BESIDE_FLAT) for group in found),
    ]  # fmt: skip
    for results, columns in tables:
        if results and form == "text":
            print_table(results, columns)
        elif results:
            print((csv_table if form == "csv" else markdown_table)(results, columns))
    for result in (*ladder, *hops, *episodes, *parts.flat) if form == "text" else ():
        if result.failure:
            print(f"{result.name}: {result.failure}")
    for group in found if form == "text" else ():
        print(f"{episode_table.described(group)}. {episode_table.findings(group)}".replace("`", ""))
    if form == "text" and ladder:
        print(markdown.headline(ladder).replace("`", ""))
        print(ladder_chart.facts(ladder))


def backed(folder: Path | None, swept: list[Result]) -> tuple[list[Judged], list[Checked]]:
    """What there is in a folder: pairs of runs that were alike, or delayed; and flows that the fits do not know."""
    alike, alternating, held_out = (folder / name if folder else None for name in ("alike", "alternating", "held-out"))
    paired = [path for path in (alike, alternating) if path and path.is_dir()]
    pairs = [one for path in paired for one in judged(path, PAIRED, SHUFFLES, 0)]
    others = results_of(map(files.load, files.below([held_out]))) if held_out and held_out.is_dir() else []
    return pairs, list(check(others, costs_of(swept)))


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", type=Path, help="records that the scripts wrote, or folders of them")
    parser.add_argument("--output-dir", type=Path, help="where the pictures go (default: beside the first record)")
    parser.add_argument("--format", choices=("text", "csv", "markdown"), default="text", help="of the printed table")
    parser.add_argument("--pages", type=Path, metavar="FOLDER", help="rewrite the tables of its README.md and docs/")
    parser.add_argument("--publish", action="store_true", help="this repository's: pictures to img/, and --pages")
    parser.add_argument("--evidence", type=Path, metavar="FOLDER", help="for --pages: how often verdicts and choices "
                        "hold (its alike/, alternating/, held-out/; with --publish: results/evidence)")  # fmt: skip
    parser.add_argument("--html", action="store_true", help="instead of all that one page, report.html, of any flows")
    parser.add_argument("--mixed", action="store_true", help="allow records of unlike machines in one chart")
    arguments = parser.parse_all(argv)
    if arguments.html and (arguments.publish or arguments.pages or arguments.format != "text"):
        parser.error("--html writes a page and nothing else: leave out --publish, --pages and --format")
    if arguments.publish:
        arguments.output_dir = arguments.output_dir or ROOT / "img"
        arguments.pages = arguments.pages or ROOT
        arguments.evidence = arguments.evidence or ROOT / "results" / "evidence"
    first = arguments.records[0]
    arguments.output_dir = arguments.output_dir or (first if first.is_dir() else first.parent)
    return arguments


def write_report(arguments: argparse.Namespace) -> int:
    from common.pages.report import report  # plotly, which nothing else needs

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
        parts = parted({path: record for path, record in records.items() if not record.sweep})
        for problem in stage_chart.problems([*parts.traced, *parts.fields]):
            raise RecordError(f"{problem}: trace it again on a machine that does nothing else")
        arguments.output_dir.mkdir(parents=True, exist_ok=True)
        pictures = draw(parts, arguments.output_dir)
        pictures += sweep_chart.draw_all(swept, arguments.output_dir)
        if arguments.pages:
            texts = generated.sections(parts, swept, *backed(arguments.evidence, swept))
            generated.rewrite(arguments.pages, texts)
    except SuiteError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        place = f"{error.filename} ({error.strerror})"
        print(f"error: cannot write {place}: give --output-dir another place", file=sys.stderr)
        return 2
    print_results(parts, arguments.format)
    if swept:
        sweep_table.print_costs(swept, arguments.format)
    if pictures and arguments.format == "text":
        print(f"pictures: {', '.join(map(str, pictures))}")
    rows = (*parts.ladder, *parts.hops, *parts.traced, *parts.episodes, *parts.fields, *parts.flat, *swept)
    return int(any(result.status == "impossible" for result in rows))


if __name__ == "__main__":
    outlast_reader()
    sys.exit(main())
