"""Draw what records hold, and print their table: the ladder of transports, the flow, where the time goes.

    python3 plot_results.py results/*.json                     the table; pictures beside the first record
    python3 plot_results.py results/*.json --format csv        the table for a spreadsheet
    python3 plot_results.py results/published/*.json results/published/*/*.json --publish      img/, the README's tables

Every number comes from the records; several records of one row are runs of it. Records of unlike machines are refused
unless --mixed is given.
"""

import argparse
import sys
from pathlib import Path

from common.analysis.costs import costs_of
from common.analysis.ladder import on_one_ceiling
from common.analysis.results import Result, results_of
from common.errors import RecordError, SuiteError
from common.flow.catalogue import MICROBENCHMARKS, build_flow
from common.flow.flow import DRIVER, Flow
from common.plan.command_line import OneLineParser
from common.record import files
from common.record.environment import MACHINE_KEYS
from common.record.points import points
from common.record.schema import Record
from common.units import format_bytes
from common.view import episodes as episode_table
from common.view import flow_picture, ladder_chart, markdown, small_messages, stage_chart, sweep_chart, sweep_table
from common.view.pipe import outlast_reader
from common.view.screen import print_table
from common.view.tables import csv_table, markdown_table

ROOT = Path(__file__).resolve().parent
Records = dict[Path, Record]


def load(paths: list[Path], mixed: bool) -> Records:
    """The records, by their files.

    Raises:
        RecordError: one cannot be read, or two are of unlike machines, or none has a run that is ok.
    """
    records = {path: files.load(path) for path in paths}
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
    if not machines:
        raise RecordError("none of the records holds a row that is ok: run the scripts again")
    first, expected = next(iter(machines.items()))
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
        RecordError: what remains is of several flows or sizes.
    """
    traced = {path: record for path, record in records.items() if any(run.spans for run in record.runs)}
    episodes = {path: record for path, record in records.items() if episode_table.is_episode(Result((record,)))}
    others = {path: record for path, record in records.items() if path not in traced and path not in episodes}
    small = {}
    if len({_moved(record) for record in others.values()}) > 1:
        small = {path: record for path, record in others.items() if record.row.flow in MICROBENCHMARKS}
    ladder = {path: record for path, record in others.items() if path not in small}
    for pictured in ({**ladder, **traced}, episodes):
        for path, record in pictured.items():
            first, other = next(iter(pictured.items()))
            if _moved(record) != _moved(other):
                raise RecordError(f"{path} moves {_words(record)}, {first} {_words(other)}: plot them apart")
    hops = results_of(small.values())
    hops.sort(key=lambda result: (result.flow.name, result.record.edges[0].bytes))
    rows = [on_one_ceiling(results_of(group.values())) for group in (ladder, episodes)]
    return rows[0], hops, results_of(traced.values()), rows[1]


def _moved(record: Record) -> tuple[str, tuple[tuple[str, str, int], ...]]:
    return record.row.flow, tuple((edge.source, edge.reader, edge.bytes) for edge in record.edges)


def _words(record: Record) -> str:
    return f"{format_bytes(record.bytes_per_trip)} of {record.row.flow}"


def draw_flows(flow: Flow, folder: Path) -> list[Path]:
    """What is simulated; of the demo's flow also how ChatLearn moves it, and how one graph does."""
    queues = {str(edge): "queue" for edge in flow.edges}
    graph = {str(edge): "shared memory" if DRIVER in (edge.source, edge.reader) else "NCCL" for edge in flow.edges}
    sizes = {str(edge): format_bytes(edge.bytes) for edge in flow.edges}
    pictures = [
        ("simulation", sizes, f"What is simulated: {flow.title}, {format_bytes(flow.bytes_per_trip)} a trip",
         "The clock runs from the query in the driver's hand until its result is there. No model computes."),
    ]  # fmt: skip
    if flow.name == "online-dpo":
        pictures += [
            ("chatlearn_data_flow", queues, f"ChatLearn: {flow.title} over queues and the object store",
             "A queue actor for each edge carries references; each reader fetches the payload from the object store."),
            ("chatlearn_with_raycg", graph,
             f"The same flow as one Ray compiled graph, with a GPU for each role: {flow.title}",
             "The driver is never an NCCL rank, so the first and the last edge go through host memory."),
        ]  # fmt: skip
    for name, labels, title, note in pictures:
        flow_picture.draw(flow, folder / f"{name}.png", title, labels, note)
    return [folder / f"{name}.png" for name, *_ in pictures]


def draw(ladder: list[Result], traced: list[Result], episodes: list[Result], folder: Path) -> list[Path]:
    """Every picture that the rows are good for."""
    pictures = []
    if any(result.status == "ok" for result in ladder):
        pictures = [folder / "benchmark_result.png"]
        ladder_chart.draw_ladder(ladder, pictures[0])
        pictures += draw_flows(ladder[0].flow, folder)
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
    found = [result for result in episodes if result.status == "ok"]
    tables = [(ladder, markdown.ladder_columns(ladder)), (done, small_messages.columns(done))]
    for results, columns in (*tables, (found, episode_table.columns(found))):
        if results and form == "text":
            print_table(results, columns)
        elif results:
            print((csv_table if form == "csv" else markdown_table)(results, columns))
    for result in (*ladder, *hops, *episodes) if form == "text" else ():
        if result.failure:
            print(f"{result.name}: {result.failure}")
    if form == "text" and found:
        print(episode_table.findings(found).replace("`", ""))
    if form == "text" and ladder:
        print(markdown.headline(ladder).replace("`", ""))
        print(ladder_chart.facts(ladder))


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", type=Path, help="records that the scripts wrote")
    parser.add_argument("--output-dir", type=Path, help="where the pictures go (default: beside the first record)")
    parser.add_argument("--format", choices=("text", "csv", "markdown"), default="text", help="of the printed table")
    parser.add_argument("--readme", nargs="?", type=Path, const=ROOT / "README.md", help="rewrite its tables")
    parser.add_argument("--docs", nargs="?", type=Path, const=ROOT / "docs", help="rewrite the tables of its pages")
    parser.add_argument("--publish", action="store_true", help="pictures to img/, tables to README.md and docs/")
    parser.add_argument("--mixed", action="store_true", help="allow records of unlike machines in one chart")
    arguments = parser.parse_all(argv)
    if arguments.publish:
        arguments.output_dir = arguments.output_dir or ROOT / "img"
        arguments.readme = arguments.readme or ROOT / "README.md"
        arguments.docs = arguments.docs or ROOT / "docs"
    arguments.output_dir = arguments.output_dir or arguments.records[0].parent
    return arguments


def main(argv: list[str] | None = None) -> int:
    """Exit code 0, or 2 with one line on what to do."""
    try:
        arguments = parse(argv)
        records = load(arguments.records, arguments.mixed)
        swept = results_of(record for record in records.values() if record.sweep)
        ladder, hops, traced, episodes = parted({path: r for path, r in records.items() if not r.sweep})
        for problem in stage_chart.problems(traced):
            raise RecordError(f"{problem}: trace it again on a machine that does nothing else")
        arguments.output_dir.mkdir(parents=True, exist_ok=True)
        pictures = draw(ladder, traced, episodes, arguments.output_dir) + sweep_chart.draw_all(
            swept, arguments.output_dir
        )
        if arguments.readme:
            texts = {"results": markdown.ladder(ladder) if ladder else None}
            texts["advice"] = markdown.advice(ladder) if ladder else None
            done = [result for result in hops if result.status == "ok"]
            texts["microbenchmarks"] = small_messages.markdown(done) if done else None
            markdown.rewrite(arguments.readme, texts)
        if arguments.docs and episodes:
            markdown.rewrite(arguments.docs / "chatlearn.md", {"episodes": episode_table.markdown(episodes)})
        if arguments.docs and swept:
            markdown.rewrite(arguments.docs / "cost-model.md", {"fits": sweep_table.markdown(costs_of(swept))})
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
    return 0


if __name__ == "__main__":
    outlast_reader()
    sys.exit(main())
