"""Which transport should I take for my flow on this machine? An answer from records; nothing is measured.

    python3 choose_transport.py --flow grpo --rows 256
    python3 choose_transport.py --flow "rollout -> trainer: tokens int64 8MB, logprobs float32 4MB" --reads some
    python3 choose_transport.py --check results/evidence/held-out      the fits beside flows they do not know

The flow, its sizes and its message are given as to the scripts (--flow, --preset, --message, --payload, --rows, ...;
their --help has them all). Where records have just this flow, its newest time
counts; else the cost model that is fitted to this machine's sweeps (python3 benchmark.py sweeps makes them).
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from common.analysis.machine import known
from common.analysis.results import Result, results_of
from common.cost.choice import ENOUGH, Wanted, check, choices
from common.cost.costs import Costs, costs_of
from common.errors import SuiteError, UsageError
from common.flow.catalogue import build_flow
from common.plan.command_line import OneLineParser, parse
from common.plan.options import FIELDS, RESULTS, SIZES, Options
from common.text import answer
from common.text.pipe import outlast_reader
from common.text.screen import print_table

TOLD = ("flow", "preset", "scale", "message", *SIZES)  # of the scripts' flags, those that say what is sent


def parse_command(argv: Sequence[str]) -> tuple[argparse.Namespace, Options]:
    """This script's own flags, and what is sent."""
    parser = OneLineParser(
        description=__doc__, usage="%(prog)s [flags]", allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--reads", choices=("all", "some"), default="all",
                        help="readers end with all bytes as their own, or look at some of another's memory and never "
                             "write (default: %(default)s)")  # fmt: skip
    parser.add_argument("--nodes", type=int, default=1, help="machines that the actors are on (default: %(default)s)")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs that payloads live on (default: %(default)s)")
    parser.add_argument("--records", type=Path, nargs="+", default=[RESULTS], metavar="PATH",
                        help="records, or folders of them (default: results/, with the published ones)")  # fmt: skip
    parser.add_argument("--any-machine", action="store_true", help="where none is of this machine, those of another")
    parser.add_argument("--check", type=Path, metavar="FOLDER", help="records of flows that the fits shall not know: "
                        "is what they foretell the best? (exit code 1: in too few)")  # fmt: skip
    own, rest = parser.parse_known_args(argv)
    options = parse("", "graph", rest)  # whose transport is not set unless it is given
    for field in FIELDS:
        if options.given(field) and field.name not in (*TOLD, "placement"):
            raise UsageError(f"--{field.name.replace('_', '-')} does not say what is sent: leave it out")
    if options.placement == "spread":
        raise UsageError("--placement spread is a run's: give --nodes 2")
    if own.nodes < 1 or own.gpus < 0:
        raise UsageError(f"--nodes {own.nodes} --gpus {own.gpus}: give at least 1, and 0")
    return own, options


def wanted_of(own: argparse.Namespace, options: Options) -> Wanted:
    try:
        flow = build_flow(options.flow, options.sizes, options.message)
    except ValueError as error:
        raise UsageError(str(error)) from None
    suffix = " --message packed" * (options.message == "packed") + " --as-shipped" * bool(options.as_shipped)
    return Wanted(flow, suffix, own.reads == "all", own.nodes, own.gpus)


def checked(results: Sequence[Result], costs: dict[str, Costs]) -> int:
    """--check: what was foretold beside what was measured; exit code 0 where it is right often enough."""
    flows = list(check(results, costs))
    if not flows:
        raise UsageError("--check: no flow of these records was carried by two transports that have a fit")
    print_table(flows, answer.CHECKED)
    print(answer.checked_words(flows))
    return 0 if sum(c.right for c in flows) >= ENOUGH * len(flows) else 1


def main(argv: Sequence[str]) -> int:
    """Exit code 0, 1 (--check: too few are right), 2 (refused)."""
    own, options = parse_command(argv)
    wanted = wanted_of(own, options)
    records = known(own.records, own.any_machine, leave_out=own.check)
    results = [result for record in records.records for result in results_of([record])]  # apart: the newest counts
    costs = costs_of(results_of(record for record in records.records if record.sweep))
    if own.check:
        return checked(results_of(known([own.check], own.any_machine).records), costs)
    found = choices(wanted, results, costs)
    print(answer.sentence(wanted, found))
    answer.print_ranking(found)
    answer.print_unknown(wanted, found, records.notes)
    return 0


if __name__ == "__main__":
    outlast_reader()
    try:
        sys.exit(main(sys.argv[1:]))
    except SuiteError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
