"""Which transport should I take for my flow on this machine? An answer from records; nothing is measured.

    python3 choose_transport.py --flow grpo --rows 256
    python3 choose_transport.py --flow "rollout -> trainer: tokens int64 8MB, logprobs float32 4MB" --reads some
    python3 choose_transport.py --check results/published/held-out         the fits beside flows they do not know

The flow, its sizes and its message are given as to the scripts. Where records have just this flow, its newest time
counts; else the cost model that is fitted to this machine's sweeps (python3 benchmark.py sweeps makes them).
"""

import argparse
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from common.analysis.choice import ENOUGH, Choice, Wanted, check, choices, reason, ruled_out
from common.analysis.costs import Costs, costs_of
from common.analysis.machine import Known, known
from common.analysis.results import Result, results_of
from common.errors import SuiteError, UsageError
from common.flow.catalogue import build_flow
from common.plan.command_line import OneLineParser, parse
from common.plan.options import FIELDS, RESULTS, SIZES, Options
from common.record.rows import LADDER, ROWS
from common.units import format_bytes
from common.view.pipe import outlast_reader
from common.view.screen import print_table
from common.view.tables import Column, milliseconds

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


def _time(choice: Choice) -> str:
    """What was measured, and what is expected."""
    words = [f"{milliseconds(choice.measured.summary.median)} ms measured"] if choice.measured else []
    if choice.predicted:
        low, high = choice.predicted.low, choice.predicted.high
        interval = (
            f" (95 %: {milliseconds(low)} to {milliseconds(high)})" if low is not None and high is not None else ""
        )
        outside = f", beyond what was swept in {' and '.join(choice.beyond)}" if choice.beyond else ""
        words.append(f"{milliseconds(choice.predicted.value)} ms expected{interval}{outside}")
    return ", ".join(words)


def answer(wanted: Wanted, found: Sequence[Choice]) -> str:
    """The sentence that comes first.

    Raises:
        UsageError: nothing is known of any row.
    """
    best = found[0] if found and found[0].seconds else None
    if best is None:
        raise UsageError("no record tells anything of such rows: run python3 benchmark.py sweeps, or the rows "
                         "themselves (benchmark.py --flow ... --rows ...)")  # fmt: skip
    ends = "readers end with bytes of their own" if wanted.own_bytes else "readers may hold views"
    return (f"Take `{best.row.name}{wanted.suffix}`: {_time(best)} a trip of {wanted.flow.name} "
            f"({format_bytes(wanted.flow.bytes_per_trip)}; {ends}).")  # fmt: skip


def print_ranking(found: Sequence[Choice]) -> None:
    """Each row with its times, its needs, what breaks it, and what the next faster one does that it does not."""
    for place, choice in enumerate(found):
        slower = f", {choice.seconds / found[0].seconds:.2g} times" if place else ""  # type: ignore[operator]
        print(f"{place + 1:3}. {choice.row.name}: {_time(choice)}{slower}")
        lines, usual = [], LADDER[f"{choice.row.runtime} {choice.row.transport}"]
        if take := choice.row.take or usual.take:
            like = "" if choice.row.take else f"as {usual.name}: "
            lines = [f"{like}needs {take.needs}; breaks: {take.breaks}"]
        why = [(other.row.name, why) for other in reversed(found[:place]) if (why := reason(choice.row, other.row))]
        lines += [f"slower than {name}; there: {because}" for name, because in why[:1]]
        lines += ["why it is slower is not known: no faster row here is above it in the ladder"] * (
            place > 0 and not why
        )
        for line in lines:
            print(textwrap.fill(line, 110, initial_indent=" " * 5, subsequent_indent=" " * 5))


def print_unknown(wanted: Wanted, found: Sequence[Choice], records: Known) -> None:
    """What this answer does not say."""
    unknown = [choice.row.name for choice in found if not choice.seconds]
    out: dict[str, list[str]] = {}
    for row in ROWS:
        if why := ruled_out(row, wanted):
            out.setdefault(why, []).append(row.name)
    notes = [f"ruled out, {why}: {', '.join(names)}" for why, names in out.items()]
    notes += [f"not known, no record: {', '.join(unknown)}"] * bool(unknown)
    for note in [*notes, *records.notes]:
        print(textwrap.fill(note, 115, subsequent_indent="    ", break_on_hyphens=False))


def checked(results: Sequence[Result], costs: dict[str, Costs]) -> int:
    """--check: what was foretold beside what was measured; exit code 0 where it is right often enough."""
    flows = list(check(results, costs))
    if not flows:
        raise UsageError("--check: no flow of these records was carried by two transports that have a fit")
    print_table(flows, [
        Column("flow", lambda c: f"{c.flow.title[:44]}, {format_bytes(c.flow.bytes_per_trip)}"),
        Column("reads", lambda c: "all" if c.own_bytes else "some"),
        Column("foretold best", lambda c: c.foretold, words=True),
        Column("measured best", lambda c: c.best, words=True),
        Column("times the best", lambda c: f"{c.times:.3f}"), Column("", lambda c: "right" if c.right else "WRONG"),
    ])  # fmt: skip
    right = sum(c.right for c in flows)
    print(f"{right} of {len(flows)} right: the best, or within 10 % of it")
    return 0 if right >= ENOUGH * len(flows) else 1


def main(argv: Sequence[str]) -> int:
    """Exit code 0, 1 (--check: too few are right), 2 (refused)."""
    own, options = parse_command(argv)
    wanted = wanted_of(own, options)
    records = known(own.records, own.any_machine, leave_out=own.check)
    results = [result for record in records.records for result in results_of([record])]  # apart: the newest counts
    costs = costs_of(results_of(record for record in records.records if record.sweep))
    if own.check:
        return checked(results_of(known([own.check], True).records), costs)
    found = choices(wanted, results, costs)
    print(answer(wanted, found))
    print_ranking([choice for choice in found if choice.seconds])
    print_unknown(wanted, found, records)
    return 0


if __name__ == "__main__":
    outlast_reader()
    try:
        sys.exit(main(sys.argv[1:]))
    except SuiteError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
