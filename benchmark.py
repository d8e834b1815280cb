"""Measure many rows of the catalogue in one command, and draw them.

    python3 benchmark.py quick         the headline rows, a quarter of the payload, few trips
    python3 benchmark.py benchmark     every row of the ladder at the full payload
    python3 benchmark.py stages        where the time goes: the main rows traced, a Chrome trace each
    python3 benchmark.py hops          small messages, beside the claims of Ray's article on compiled graphs

Each run is a process of its own. With --runs, rows take turns: all of them once, then all of them again, and each
row's record has its runs. Records and pictures go to a folder of their own, results/run-<time>/.
"""

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common.analysis.results import Result
from common.errors import SuiteError
from common.flow.catalogue import MICROBENCHMARKS
from common.plan.options import RESULTS, Options
from common.plan.plan import Plan
from common.record import files
from common.record.rows import ROWS, Row
from common.record.schema import Record
from common.run.settle import settle
from common.run.supervisor import add_run, add_waived, write_trace
from common.view.tables import milliseconds


@dataclass(frozen=True)
class Suite:
    """Rows whose `suites` name it, each with every one of these settings.

    extra: what is measured beside them: a row's name, and its settings.
    """

    settings: tuple[dict[str, Any], ...] = ({},)
    traced: bool = False
    extra: tuple[tuple[str, dict[str, Any]], ...] = ()


# Calls of small messages follow each other as in the article, so the bytes are checked after every hundredth.
HOP = {"iterations": 1000, "episode": 100}
BYTES, SPREAD = ("store bytes", "graph bytes"), {"flow": "round-trip", "placement": "spread", **HOP}
SUITES = {
    "quick": Suite(({"batch_size": 256, "warmup": 1},)),
    "benchmark": Suite(),
    "stages": Suite(traced=True),
    "hops": Suite(
        tuple({"flow": flow, "episode": 100} for flow in MICROBENCHMARKS),
        extra=(
            *((row, {"flow": "round-trip", "payload_bytes": size, **HOP}) for size in (1, 2**20) for row in BYTES),
            *((row, SPREAD) for row in BYTES),
        ),
    ),
}


@dataclass
class Item:
    """One row to be measured, and its record."""

    plan: Plan
    record: Record
    output: Path
    codes: list[int] = field(default_factory=list)

    @property
    def label(self) -> str:
        flow = self.record.row.flow
        return Result((self.record,)).name + (f", {flow}" if flow in MICROBENCHMARKS else "")


def asked_for(suite: str) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Each row of a suite with its flags."""
    settings = SUITES[suite]
    for setting in settings.settings:
        for row in ROWS:
            if suite in row.suites:
                yield row, {"iterations": row.suites[suite], **row.flags, **setting}
    for name, setting in settings.extra:
        yield next(row for row in ROWS if row.name == name), setting


def prepare(suite: str, folder: Path, arguments: argparse.Namespace) -> list[Item]:
    """Everything that will run; a row that this machine must waive is recorded, and runs no more."""
    items = []
    for index, (row, flags) in enumerate(asked_for(suite)):
        name = "-".join([f"{index:02}", *row.name.replace("--", "").split(), *(str(flags.get("flow", "")).split())])
        output = folder / f"{name}.json"
        trace = output.with_suffix(".trace") if SUITES[suite].traced else None
        options = Options(transport=row.transport, device=arguments.device, trace=trace, **flags)
        plan, waived = settle(row.runtime, options)
        item = Item(plan, plan.record(), output)
        if waived:
            add_waived(item.record, waived)
        files.create(output, item.record)
        items.append(item)
    return items


def main() -> int:
    """Exit code 0, 1 (a row failed), 2 (refused), 130 (interrupted; what was finished is kept and drawn)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=list(SUITES))
    parser.add_argument("--runs", type=int, default=1, help="processes a row (default: %(default)s)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--output-dir", type=Path, help="where records and pictures go (default: results/run-<time>)")
    arguments = parser.parse_args()
    folder = arguments.output_dir or RESULTS / f"run-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    items = prepare(arguments.suite, folder, arguments)
    waiting = [item for item in items if not item.record.runs]
    print(f"{len(waiting)} rows, {arguments.runs} run{'s' * (arguments.runs > 1)} each; records: {folder}", flush=True)
    turns, code = [(run, item) for run in range(arguments.runs) for item in waiting], 0
    for order, (_, item) in enumerate(turns):
        begin = time.monotonic()
        code = add_run(item.plan, item.record, item.output, order=order)
        write_trace(item.plan, item.record)
        item.codes.append(code)
        run = item.record.runs[-1]
        median = sorted(run.seconds)[len(run.seconds) // 2] if run.seconds else 0
        said = f"{milliseconds(median)} ms a trip, {len(run.seconds)} trips" if run.status == "ok" else f"{run.reason}"
        print(f"{order + 1:3} of {len(turns)}  {item.label}: {said} ({time.monotonic() - begin:.0f} s)", flush=True)
        if code == 130:
            break
    import plot_results  # matplotlib is not for the runs

    plotted = plot_results.main([*map(str, sorted(folder.glob("*.json"))), "--output-dir", str(folder)])
    return code if code == 130 else max([plotted, *(code for item in items for code in item.codes)])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SuiteError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
