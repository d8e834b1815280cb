# SPDX-License-Identifier: Apache-2.0
"""Find generators whose items are so many and so small that sending them takes the time.

Sources: ray-project/ray#59681 and ray-project/ray#52745: streams of tokens, each of which is an object of its own.
"""

from collections import defaultdict

from raymeter.causes.savings import middle, total
from raymeter.causes.waits import ReadyTimes
from raymeter.findings import Finding, Saving
from raymeter.profile.events import Call, Run
from raymeter.profile.program import TASK_DIGITS, Program
from raymeter.profile.steps import Steps
from raymeter.simulate.items import Item, items_of
from raymeter.units import format_milliseconds, significant

CAUSE = "many small items of a generator"
MIN_ITEMS = 50  # of one generator
BATCH = 50  # items that become one
MIN_BATCHES = 5  # that are left, so that the reader can still begin early
READS = ("next", "get")


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each line with generators of MIN_ITEMS items or more that run inside of the steps."""
    by_line: dict[str, list[Run]] = defaultdict(list)
    for run in program.recording.runs:
        if has_many_items(run) and steps.of(run.start) is not None:
            by_line[run.line].append(run)
    if not by_line:
        return []
    reads = reads_by_task(program)
    findings = []
    for runs in by_line.values():
        finding = make_finding(program, steps, runs, reads)
        findings.append(finding)
    return findings


def has_many_items(run: Run) -> bool:
    if run.kind != "generator":
        return False
    return run.count >= MIN_ITEMS


def reads_by_task(program: Program) -> dict[str, list[Call]]:
    """Return the calls that wait for one object, by the task that made it."""
    reads: dict[str, list[Call]] = defaultdict(list)
    for call in program.recording.calls:
        if call.event in READS and len(call.objects) == 1:
            item = call.objects[0]
            task = item[:TASK_DIGITS]
            reads[task].append(call)
    return reads


def make_finding(
    program: Program, steps: Steps, runs: list[Run], reads: dict[str, list[Call]]
) -> Finding:
    """Return the finding for the generators of one line: with the items of the first one, and the time of all."""
    first = runs[0]
    batch = batch_of(first)
    share = 1 - 1 / batch
    savings = save_items(runs, share)
    savings += save_reads(program, runs, reads, share)
    seconds = total(savings) / steps.count
    work = format_milliseconds(seconds)
    return Finding(
        cause=CAUSE,
        title=f"{first.by_name} gives {first.count} items, each of which is an object of its own: "
        f"{work} of work to send and read them",
        line=first.line,
        change=f"Yield lists of {significant(batch)} items or more, or what has come together in a few milliseconds.",
        seconds=seconds,
        savings=savings,
        other_lines=lines_of_reads(runs, reads),
    )


def batch_of(run: Run) -> int:
    """Return how many items of a generator may become one, with enough of them left to begin early."""
    max_batch = run.count // MIN_BATCHES
    return max(1, min(BATCH, max_batch))


def lines_of_reads(runs: list[Run], reads: dict[str, list[Call]]) -> list[str]:
    """Return the lines that read the items of these generators."""
    lines = set()
    for run in runs:
        for call in reads.get(run.by, []):
            lines.add(call.line)
    return sorted(lines)


def save_items(runs: list[Run], share: float) -> list[Saving]:
    """Return what sending their items takes the generators, times a share."""
    savings = []
    for run in runs:
        for item in items_of(run):
            saving = save_item(run, item, share)
            savings.append(saving)
    return savings


def save_item(run: Run, item: Item, share: float) -> Saving:
    """Return what sending an item takes the generator, times a share."""
    phase = item.start, item.end
    seconds = share * sending_seconds(item)
    return Saving(run.process, run.thread, middle(phase), seconds, "store")


def sending_seconds(item: Item) -> float:
    return item.end - item.start


def sending_share(run: Run) -> float:
    """Return the share of the time of a generator that Ray takes to send its items."""
    if not run.seconds:
        return 0.0
    sending = sum(sending_seconds(item) for item in items_of(run))
    return min(1.0, sending / run.seconds)


def save_reads(
    program: Program, runs: list[Run], reads: dict[str, list[Call]], saved_share: float
) -> list[Saving]:
    """Return what each read of these generators' items takes once its item is there, times the share that is saved.

    `reads` are by the id of the task that gives the items. Reads that were only counted also save a part of their
    waits, because Ray sends the items in less time.
    """
    ready = ReadyTimes(program)
    savings = []
    for run in runs:
        share_of_sending = sending_share(run)
        generator_task = run.by
        for call in reads.get(generator_task, []):
            savings.append(save_read(call, ready, saved_share, share_of_sending))
    return savings


def save_read(call: Call, ready: ReadyTimes, saved_share: float, share_of_sending: float) -> Saving:
    """Return what a call takes after its item was there, and what the calls take that were only counted.

    The replay knows nothing of the waits of these, which get shorter with the time that the items take to be sent.
    """
    begin = begin_reading(call, ready)
    work = max(0.0, call.end - begin - call.own_seconds)
    all_work = call.weight * work
    wait = begin - call.start
    unknown_waits = (call.weight - 1) * share_of_sending * wait
    seconds = saved_share * (all_work + unknown_waits)
    return Saving(call.process, call.thread, begin, seconds, "work")


def begin_reading(call: Call, ready: ReadyTimes) -> float:
    """Return when a call could read its item: the time at which it was ready, or the call's start if not known."""
    item = call.objects[0]
    time = ready.of(item) or call.start
    earliest = max(call.start, time)
    return min(call.end, earliest)
