"""Draw what the records hold: the ladder of transports, the flow, and the README's table.

    python3 plot_results.py results/published/*.json              # img/*.png, and the table as text
    python3 plot_results.py results/published/*.json --readme     # the README's table too
    python3 plot_results.py results/*.json --output-dir /tmp/img

Every number comes from the records. Records of unlike machines are refused unless --mixed is given.
"""

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from common.analysis.ladder import on_one_ceiling
from common.analysis.results import Result, results_of
from common.errors import RecordError, SuiteError, UsageError
from common.flow.catalogue import MICROBENCHMARKS, build_flow
from common.flow.flow import DRIVER, Flow
from common.record import files
from common.record.environment import MACHINE_KEYS
from common.view import flow_picture, ladder_chart, markdown, small_messages, stage_chart
from common.view.tables import mebibytes, table

ROOT = Path(__file__).resolve().parent


def load(paths: list[Path], mixed: bool) -> list[Result]:
    """What the records hold, in the ladder's order; several records of one row are runs of it.

    Raises:
        RecordError: a record cannot be read, or two are of unlike machines, or none has a run that is ok.
    """
    records = [files.load(path) for path in paths]
    machines = []
    for path, record in zip(paths, records, strict=True):
        try:
            build_flow(record.row.flow, record.row.sizes)
        except (KeyError, ValueError):
            raise RecordError(f"{path} is of a flow that is unknown here: update the suite, or leave it out") from None
        done = [run for run in record.runs if run.status == "ok"]
        if not all(run.seconds and run.processes for run in done):
            raise RecordError(f"{path} has a row that is ok and has no trips: run its script again")
        if done:
            machines.append((path, record.environments.get("0", {})))
    if not machines:
        raise RecordError("none of the records holds a row that is ok: run the scripts again")
    first, expected = machines[0]
    for path, machine in [] if mixed else machines:
        for key in MACHINE_KEYS:
            if machine.get(key) != expected.get(key):
                raise RecordError(f"{path} is of another machine than {first} ({key}): plot them apart, or --mixed")
    return results_of(records)


def ladder_of(results: list[Result]) -> list[Result]:
    """The rows of the ladder: one flow at one size, without tracing.

    Raises:
        RecordError: there are several.
    """
    ladder = [r for r in results if not r.traced and r.record.row.flow not in MICROBENCHMARKS]
    for result in ladder:
        first = ladder[0]
        if (result.flow.name, result.record.edges) != (first.flow.name, first.record.edges):
            raise RecordError(f"{result.name} moves another flow or other sizes than {first.name}: plot them apart")
    return on_one_ceiling(ladder)


def draw_flows(flow: Flow, folder: Path) -> None:
    """The three pictures of the flow: as ChatLearn moves it, as one graph, and as simulated."""
    queues = {str(edge): "queue" for edge in flow.edges}
    graph = {str(edge): "shared memory" if DRIVER in (edge.source, edge.reader) else "NCCL" for edge in flow.edges}
    sizes = {str(edge): f"{mebibytes(edge.bytes)} MiB" for edge in flow.edges}
    for name, labels, title, note in (
        ("chatlearn_data_flow", queues, f"ChatLearn: {flow.title} over queues and the object store",
         "A queue actor for each edge carries references; each reader fetches the payload from the object store."),
        ("chatlearn_with_raycg", graph,
         f"The same flow as one Ray compiled graph, with a GPU for each role: {flow.title}",
         "The driver is never an NCCL rank, so the first and the last edge go through host memory."),
        ("simulation", sizes, f"What is simulated: {flow.title}, {mebibytes(flow.bytes_per_trip)} MiB a trip",
         "The clock runs from the query in the driver's hand until its result is there. No model computes."),
    ):  # fmt: skip
        flow_picture.draw(flow, folder / f"{name}.png", title, labels, note)


def parse(argv: list[str] | None) -> argparse.Namespace:
    class OneLineParser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise UsageError(f"{message} (--help lists the flags)")

    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", type=Path, help="records that the scripts wrote")
    parser.add_argument("--output-dir", type=Path, default=ROOT / "img", help="where the pictures go (default: img)")
    parser.add_argument("--readme", nargs="?", type=Path, const=ROOT / "README.md", help="rewrite its results table")
    parser.add_argument("--mixed", action="store_true", help="allow records of unlike machines in one chart")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Exit code 0, or 2 with one line on what to do."""
    try:
        arguments = parse(argv)
        results = load(arguments.records, arguments.mixed)
        ladder = ladder_of(results)
        traced = [result for result in results if result.traced]
        hops = [r for r in results if r.record.row.flow in MICROBENCHMARKS and r.status == "ok"]
        hops.sort(key=lambda result: (result.flow.name, result.record.edges[0].bytes))
        for problem in stage_chart.problems(traced):
            raise RecordError(f"{problem}: trace it again on a machine that does nothing else")
        arguments.output_dir.mkdir(parents=True, exist_ok=True)
        if any(result.status == "ok" for result in ladder):
            ladder_chart.draw_ladder(ladder, arguments.output_dir / "benchmark_result.png")
            draw_flows(ladder[0].flow, arguments.output_dir)
        if traced:
            stage_chart.draw(traced, ladder, arguments.output_dir / "stages.png")
        if arguments.readme:
            texts = {"results": markdown.ladder(ladder) if ladder else None}
            texts["advice"] = markdown.advice(ladder) if ladder else None
            texts["microbenchmarks"] = small_messages.markdown(hops) if hops else None
            markdown.rewrite(arguments.readme, texts)
    except SuiteError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        place = f"{error.filename} ({error.strerror})"
        print(f"error: cannot write {place}: give --output-dir another place", file=sys.stderr)
        return 2
    if ladder:
        print(table(ladder, markdown.ladder_columns(ladder)))
        for result in ladder:
            if result.failure:
                print(f"{result.name}: {result.failure}")
        print(ladder_chart.caption(ladder))
    if hops:
        print(table(hops, small_messages.columns(hops)))
    print(f"pictures: {arguments.output_dir}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
