"""Draw what the records hold: the ladder of transports, the flow, and the README's table.

    python3 plot_results.py results/published/*.json              # img/*.png, and the table as text
    python3 plot_results.py results/published/*.json --readme     # the README's table too
    python3 plot_results.py results/*.json --output-dir /tmp/img

Every number comes from the records. Records of unlike machines are refused unless --mixed is given.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, NoReturn

from common.flow.flow import DRIVER, FLOWS, MICROBENCHMARKS, Flow, build_flow
from common.record import files as records
from common.record.environment import MACHINE_KEYS
from common.record.files import RecordError
from common.view import flow_picture as diagrams
from common.view import ladder_chart as chart
from common.view import markdown as readme
from common.view import small_messages as microbenchmark
from common.view import stage_chart
from common.view import tables as report

ROOT = Path(__file__).resolve().parent


def load(paths: list[Path], mixed: bool) -> list[chart.Row]:
    """The (record, case) pairs in the ladder's order.

    Raises:
        RecordError: a record cannot be read, or two are of unlike machines, or the same row comes twice.
    """
    found = [records.load(path) for path in paths]
    for path, record in zip(paths, found, strict=True):
        for key in [] if mixed else MACHINE_KEYS:
            if record["environment"].get(key) != found[0]["environment"].get(key):
                raise RecordError(f"{path} is of another machine than {paths[0]} ({key}): plot them apart, or --mixed")
        if record["arguments"].get("flow") not in [*FLOWS, *MICROBENCHMARKS]:
            raise RecordError(f"{path} is of a flow that is unknown here: update the suite, or leave it out")
        for case in record["cases"]:
            if case["status"] == "ok" and not (case["seconds"] and case["harness_seconds"] is not None):
                raise RecordError(f"{path} has a row that is ok and has no trips: run its script again")
    pairs = [(record, case) for record in found for case in record["cases"]]
    names = [(report.label(*pair), pair[1]["flow"], str(pair[1]["edges"]), is_traced(pair)) for pair in pairs]
    for name in names:
        if names.count(name) > 1:
            raise RecordError(f"{name[0]} has {names.count(name)} records: name one of them")
    return sorted(pairs, key=lambda pair: chart.place(report.label(*pair)))


def is_traced(row: chart.Row) -> bool:
    return bool(row[1].get("spans"))


def ladder_of(rows: list[chart.Row]) -> list[chart.Row]:
    """The rows of the ladder: one flow at one size, without tracing.

    Raises:
        RecordError: there are several, or none that is ok.
    """
    ladder = [row for row in rows if not is_traced(row) and row[0]["arguments"]["flow"] in FLOWS]
    for record, case in ladder:
        first = ladder[0][1]
        if (case["flow"], case["edges"]) != (first["flow"], first["edges"]):
            name = report.label(record, case)
            raise RecordError(
                f"{name} moves another flow or other sizes than {report.label(*ladder[0])}: plot them apart"
            )
    return readme.on_one_ceiling(ladder) if ladder else []


def draw_flows(flow: Flow, folder: Path) -> None:
    """The three pictures of the flow: as ChatLearn moves it, as one graph, and as simulated."""
    queues = {str(edge): "queue" for edge in flow.edges}
    graph = {str(edge): "shared memory" if DRIVER in (edge.source, edge.reader) else "NCCL" for edge in flow.edges}
    mebibytes = {str(edge): f"{edge.bytes / 2**20:,.4g} MiB" for edge in flow.edges}
    diagrams.draw(
        flow,
        folder / "chatlearn_data_flow.png",
        f"ChatLearn: {flow.title} over queues and the object store",
        queues,
        "A queue actor for each edge carries references; each reader fetches the payload from the object store.",
    )
    diagrams.draw(
        flow,
        folder / "chatlearn_with_raycg.png",
        f"The same flow as one Ray compiled graph, with a GPU for each role: {flow.title}",
        graph,
        "The driver is never an NCCL rank, so the first and the last edge go through host memory.",
    )
    diagrams.draw(
        flow,
        folder / "simulation.png",
        f"What is simulated: {flow.title}, {flow.bytes_per_trip / 2**20:,.4g} MiB a trip",
        mebibytes,
        "The clock runs from the query in the driver's hand until its result is there. No model computes.",
    )


def parse(argv: list[str] | None) -> argparse.Namespace:
    class OneLineParser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise RecordError(f"{message} (--help lists the flags)")

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
        rows = load(arguments.records, arguments.mixed)
        if not any(case["status"] == "ok" for _, case in rows):
            raise RecordError("none of the records holds a row that is ok: run the scripts again")
        ladder = ladder_of(rows)
        traced = [row for row in rows if is_traced(row)]
        hops = [row for row in rows if row[0]["arguments"]["flow"] in MICROBENCHMARKS and row[1]["status"] == "ok"]
        hops.sort(key=lambda row: (row[1]["flow"], row[1]["edges"][0]["bytes"]))
        for problem in stage_chart.problems(traced):
            raise RecordError(f"{problem}: trace it again on a machine that does nothing else")
        arguments.output_dir.mkdir(parents=True, exist_ok=True)
        if any(case["status"] == "ok" for _, case in ladder):
            chart.draw_ladder(ladder, arguments.output_dir / "benchmark_result.png")
            draw_flows(flow_of(ladder[0][0]), arguments.output_dir)
        if traced:
            stage_chart.draw(traced, ladder, arguments.output_dir / "stages.png")
        if arguments.readme:
            texts = {"results": readme.markdown(ladder) if ladder else None}
            texts["advice"] = readme.advice_markdown(ladder) if ladder else None
            texts["microbenchmarks"] = readme.hops_markdown(hops) if hops else None
            readme.rewrite(arguments.readme, texts)
    except RecordError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        place = f"{error.filename} ({error.strerror})"
        print(f"error: cannot write {place}: give --output-dir another place", file=sys.stderr)
        return 2
    if ladder:
        header, cells = readme.table_rows(ladder)
        print(report.table(cells, header))
        for row in ladder:
            if row[1]["reason"]:
                print(f"{report.label(*row)}: {row[1]['status']}, {row[1]['reason']}")
        print(chart.caption(ladder))
    if hops:
        header, cells = microbenchmark.table(hops)
        print(report.table(cells, header))
    print(f"pictures: {arguments.output_dir}")
    return 0


def flow_of(record: dict[str, Any]) -> Flow:
    """The flow at the sizes that the record was made with.

    Raises:
        RecordError: this version has no such flow.
    """
    given = record["arguments"]
    try:
        return build_flow(given)
    except (KeyError, TypeError, ValueError):
        raise RecordError(f"the records' flow {given.get('flow')!r} is unknown here: update the suite") from None


if __name__ == "__main__":
    sys.exit(main())
