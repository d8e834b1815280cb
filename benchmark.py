"""Measure many rows in one command, and draw them.

    python3 benchmark.py quick         the headline rows, a quarter of the payload, few trips
    python3 benchmark.py benchmark     every row of the ladder at the full payload (--runs 5: as published)
    python3 benchmark.py stages        where the time goes: the main rows traced, a Chrome trace each
    python3 benchmark.py hops          small messages, beside the claims of Ray's article on compiled graphs
    python3 benchmark.py chatlearn     ChatLearn's own messages and episodes over every transport
    python3 benchmark.py chatlearn-stages   where the time of such messages goes, one at a time, traced
    python3 benchmark.py sweeps        rows by bytes and tensors: what choose_transport.py reckons with
    python3 benchmark.py held-out      other flows, to check it: choose_transport.py --check FOLDER
    python3 benchmark.py in-flight     what several trips under way are worth
    python3 benchmark.py gpu           all that a machine with GPUs can run there

Or the rows that you choose, for your own messages; a row may bring flags of its own:

    python3 benchmark.py --flow "rollout-1, rollout-2 -> trainer: tokens int64 8MB, logprobs float32 4MB" \\
        --rows "store refs" "graph shm" "graph shm --message packed" "graph mapped"
    python3 benchmark.py --list        every row, what it needs, and whether this machine has it

Every other flag is the scripts' own and holds for all rows (--flow, --iterations, --duration, --device, ...; the
scripts' --rows is --message-rows here). Each run is a process of its own. With --runs, rows take turns: all of them
once, then all of them again, each time in another order, so that drift and neighbours fall on all alike. With
--alternate they are there at the same time, and take turns by the trip: a difference of a few percent shows in a few
runs, on a noisy machine too. Records and pictures go to a folder of their own, results/run-<time>/.
"""

import argparse
import random
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from common.analysis.comparison import Pair
from common.analysis.disturbances import disturbances
from common.analysis.expected import expected_seconds, published
from common.analysis.results import Result
from common.errors import SuiteError, UsageError
from common.flow.catalogue import FLOWS
from common.pages.parts import have_one_table
from common.plan.command_line import OneLineParser
from common.plan.options import RESULTS
from common.record import files
from common.record.rows import ROWS
from common.record.schema import Run
from common.record.suites import SUITES, rows_of
from common.run.alternate import groups_of, run_alternately
from common.run.item import Item, minutes, print_plans
from common.run.row_plan import plan_of
from common.run.supervisor import add_runs, write_trace
from common.text.pipe import outlast_reader
from common.text.screen import point_words, print_table
from common.text.tables import Column, milliseconds


def prepare(rows: Sequence[str], flags: Sequence[str], folder: Path, suite: str = "") -> list[Item]:
    """Everything that will run, and what this machine must waive. suite: whose rows these are, if of one."""
    items, known = [], published(RESULTS / "published")
    traced = bool(suite) and SUITES[suite].traced
    for index, text in enumerate(rows):
        output = folder / f"{index:02}-{re.sub('[^a-zA-Z0-9.]+', '-', text)[:60].strip('-')}.json"
        plan, waived = plan_of(text, flags, output.with_suffix(".trace") if traced else None, bool(suite))
        items.append(Item(plan, waived, output, 0 if waived else expected_seconds(plan, known)))
    return items


def list_rows(flags: Sequence[str]) -> None:
    """Every row, what it is for, and whether this machine can run it."""

    def here(name: str) -> str:
        try:
            return str(plan_of(name, flags)[1] or "yes").partition(":")[0]
        except UsageError as error:
            return str(error).partition(": ")[2]

    print_table(ROWS, [
        Column("row", lambda row: row.name),
        Column("here", lambda row: here(row.name), words=True),
        Column("what it is", lambda row: row.says or row.because, rank=1, words=True),
    ])  # fmt: skip
    print(f"flows: {', '.join(FLOWS)}, or one of your own (--flow 'rollout-1, rollout-2 -> trainer: 12MB')")


def turns_of(groups: Sequence[list[Item]], runs: int, seed: int) -> list[list[Item]]:
    """Each once before any a second time, in an order that is drawn for each turn; of one run the quick ones first.

    groups: rows that are measured at the same time; most are by themselves.
    """
    drawn = random.Random(seed)
    if runs == 1:
        turns = sorted(groups, key=lambda group: sum(item.seconds for item in group))
    else:
        turns = [group for _ in range(runs) for group in drawn.sample(groups, len(groups))]
    return [drawn.sample(group, len(group)) for group in turns]


def measure(turns: Sequence[list[Item]]) -> list[int]:
    """Run them all but those that are finished; the exit code of each."""
    spent, expected, codes = 0.0, 0.0, []
    skipped = {item.output: item.finished for items in turns for item in items}
    for order, items in enumerate(turns):
        if all(skipped[item.output] for item in items):
            skipped |= {item.output: skipped[item.output] - 1 for item in items}
            continue
        begin, before = time.monotonic(), [len(item.record.runs) for item in items]
        if len(items) > 1:
            codes += run_alternately([(item.plan, item.record, item.output) for item in items], order)
        else:
            codes += [add_runs(item.plan, item.record, item.output, order=order) for item in items]
        took = time.monotonic() - begin
        spent += took
        # What is done took longer or shorter than was expected; what is left will, too.
        expected += sum(item.seconds for item in items)
        left = spent / expected * _waiting_seconds(turns[order + 1 :], skipped)
        for item, count in zip(items, before, strict=True):
            write_trace(item.plan, item.record)
            runs = item.record.runs[count:]
            if not runs:  # interrupted before it began
                continue
            told = f"{_said(item, runs)} ({took:.0f} s; {minutes(left)} left)"
            print(f"{order + 1:3} of {len(turns)}  {item.label}: {told}", flush=True)
            for own in runs:
                for line in disturbances(own):
                    print(f"         {point_words(own.at) + ': ' if own.at else ''}{line}", flush=True)
        if 130 in codes:
            if not any(item.plan.checkout for item in items):
                print(f"to go on: the same command with --continue --output-dir {items[0].output.parent}", flush=True)
            break
    return codes


def _said(item: Item, runs: Sequence[Run]) -> str:
    """What came of a turn of a row."""
    run = runs[-1]
    if item.record.sweep:
        return f"{sum(run.status == 'ok' for run in runs)} points of {item.record.sweep}"
    if run.status != "ok":
        return f"{run.reason}"
    return f"{milliseconds(sorted(run.seconds)[len(run.seconds) // 2])} ms a trip, {len(run.seconds)} trips"


def _waiting_seconds(turns: Sequence[list[Item]], skipped: Mapping[Path, int]) -> float:
    """What these turns will take, about, without those that are skipped."""
    waiting = [item for items in turns for item in items]
    items = {item.output: item for item in waiting}
    return sum(item.seconds for item in waiting) - sum(count * items[path].seconds for path, count in skipped.items()
                                                       if path in items)  # fmt: skip


def print_ratios(items: Sequence[Item]) -> None:
    """How many times as long each row takes as the first, by the trips that alternated."""
    first, *others = [(item.label, Result((item.record,))) for item in items]
    for label, result in others:
        if not first[1].status == result.status == "ok":
            continue
        found = Pair(first[1], result).ratio
        interval = f" ({found.low:.3f} to {found.high:.3f})" if found.low and found.high else ""
        print(f"{label}: {found.value:.3f} times as long as {first[0]}{interval}, {found.verdict}")


def parse_command(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """This script's own flags, and those of every row."""
    parser = OneLineParser(
        description=__doc__, usage="%(prog)s [suite] [flags]", allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--rows", nargs="+", default=[], metavar="ROW", help="rows of your choice, each in quotes")
    parser.add_argument("--runs", type=int, default=1, help="processes a row (default: %(default)s)")
    parser.add_argument("--alternate", action="store_true", help="all rows at the same time, taking turns by the trip: "
                        "each is compared with the first")  # fmt: skip
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another checkout of this project (git "
                        "worktree add ../before COMMIT): each row alternates with the same row there, by whose .venv "
                        "if it has one")  # fmt: skip
    parser.add_argument("--order-seed", type=int, default=random.randrange(2**32), metavar="N",
                        help="draws the order of the rows in each turn (default: another one each time; it is in the "
                        "records)")  # fmt: skip
    parser.add_argument("--output-dir", type=Path, help="where records and pictures go (default: results/run-<time>)")
    parser.add_argument("--continue", dest="go_on", action="store_true", help="what an earlier call with the same "
                        "flags finished in --output-dir is kept, and the rest is measured")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="the rows, and whether this machine has what they need")
    parser.add_argument("--dry-run", action="store_true", help="what would be measured, what it takes, and how long")
    suite, argv = (argv[0], argv[1:]) if argv and not argv[0].startswith("-") else ("", argv)
    arguments, flags = parser.parse_known_args(argv)
    arguments.suite = suite
    if suite and suite not in SUITES:
        raise UsageError(f"there is no suite {suite}: give {', '.join(SUITES)}, or --rows")
    if not arguments.list and bool(suite) == bool(arguments.rows):
        raise UsageError("give a suite or --rows, and not both (--help says more)")
    if arguments.go_on and not (arguments.output_dir and arguments.output_dir.is_dir()):
        raise UsageError("--continue: give the folder of the earlier call as --output-dir")
    if arguments.runs < 1:
        raise UsageError(f"--runs {arguments.runs}: give 1 or more")
    if arguments.alternate and (suite or arguments.against):
        other = f"{suite} has rows of unlike flows" if suite else "with --against each row alternates with its own"
        raise UsageError(f"--alternate is for --rows by themselves, and {other}: leave it out")
    if arguments.against and arguments.go_on:
        raise UsageError("--continue goes on with one checkout's records: leave --against out, or measure anew")
    if arguments.against and not (arguments.against / "common" / "plan" / "turn.py").is_file():
        raise UsageError(f"--against {arguments.against}: no checkout of this project that can alternate: make one by "
                         "git worktree add FOLDER COMMIT")  # fmt: skip
    return arguments, flags


def main(argv: Sequence[str]) -> int:
    """Exit code 0, 1 (a row failed), 2 (refused), 130 (interrupted; what was finished is kept and drawn)."""
    arguments, flags = parse_command(argv)
    if arguments.list:
        list_rows(flags)
        return 0
    folder = arguments.output_dir or RESULTS / f"run-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    items = prepare(arguments.rows or list(rows_of(arguments.suite)), flags, folder, arguments.suite)
    groups = groups_of([item for item in items if not item.waived], arguments.alternate, arguments.against)
    if arguments.against:
        for item in items:
            if item.waived:
                print(f"{item.label}: waived, {item.waived}", flush=True)
        if not groups:
            raise UsageError("--against: none of the rows can be measured here: give others (--list)")
        items = [item for group in groups for item in group]
    if arguments.rows and not arguments.against and not have_one_table([item.record for item in items]):
        raise UsageError("the rows move unlike messages and have no table in common: measure them apart, or by --sweep")
    if arguments.dry_run:
        print_plans(items, arguments.runs)
        return 0
    kept = [item for item in items if arguments.go_on and item.output.exists() and not item.waived]
    for item in kept:
        item.keep_finished()
    seed = next((item.record.arguments.get("order_seed") for item in kept), None) or arguments.order_seed
    for item in items:
        if not (arguments.go_on and item.output.exists()):
            item.record.arguments["order_seed"] = seed
            files.create(item.output, item.record)
    waiting = [item for group in groups for item in group]
    about = minutes(sum(max(0, arguments.runs - item.finished) * item.seconds for item in waiting))
    counts = (len(waiting), "row"), (arguments.runs, "run")
    rows, runs = (f"{count} {word}{'s' * (count > 1)}" for count, word in counts)
    print(f"{rows}, {runs} each, about {about}; records: {folder}", flush=True)
    codes = measure(turns_of(groups, arguments.runs, seed))
    if arguments.against:
        import compare_results

        sides = [str(folder / side) for side in ("old", "new")]
        compared = compare_results.main([*sides, "--mixed"])
        return 130 if 130 in codes else max(codes) or compared
    if arguments.alternate:
        print_ratios(waiting)
    import plot_results  # matplotlib is not for the runs

    plotted = plot_results.main([*map(str, sorted(folder.glob("*.json"))), "--output-dir", str(folder)])
    return 130 if 130 in codes else max(codes, default=0) or plotted  # where all failed there is nothing to draw


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    outlast_reader()
    try:
        sys.exit(main(sys.argv[1:]))
    except SuiteError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
