"""Find generators whose items are so many and so small that sending them takes the time.

Sources: ray-project/ray#59681 and ray-project/ray#52745: streams of tokens, each of which is an object of its own.
"""

from collections import defaultdict

from raymeter.causes.savings import total
from raymeter.causes.waits import Counts, ReadyTimes
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
    """Return a finding for each generator with many items, judged by what Ray takes between two of them."""
    by_line: dict[str, list[Run]] = defaultdict(list)
    for run in program.recording.runs:
        is_long = run.kind == "generator" and run.count >= MIN_ITEMS
        if is_long and steps.of(run.start) is not None:
            by_line[run.line].append(run)
    reads = reads_by_task(program) if by_line else {}
    return [make_finding(program, steps, runs, reads) for runs in by_line.values()]


def reads_by_task(program: Program) -> dict[str, list[Call]]:
    """Return the calls that wait for one object, by the task that made it."""
    reads: dict[str, list[Call]] = defaultdict(list)
    for call in program.recording.calls:
        if call.event in READS and len(call.objects) == 1:
            reads[call.objects[0][:TASK_DIGITS]].append(call)
    return reads


def make_finding(
    program: Program, steps: Steps, runs: list[Run], reads: dict[str, list[Call]]
) -> Finding:
    first = runs[0]
    batch = max(1, min(BATCH, first.count // MIN_BATCHES))
    share = 1 - 1 / batch
    savings = []
    for run in runs:
        savings += [save_item(run, item, share) for item in items_of(run)]
    ready = ReadyTimes(program)
    counts = Counts(program)
    lines = []
    for run in runs:
        for call in reads.get(run.by, []):
            factor = counts.factor(call.event, call.line)
            savings.append(save_read(call, ready, share, factor, sending_share(run)))
            lines.append(call.line)
    seconds = total(savings) / steps.count
    return Finding(
        cause=CAUSE,
        title=f"{first.by_name} gives {first.count} items, each of which is an object of its own: "
        f"{format_milliseconds(seconds)} of work to send and read them",
        line=first.line,
        change=f"Yield lists of {significant(batch)} items or more, or what has come together in a few milliseconds.",
        seconds=seconds,
        savings=savings,
        other_lines=sorted(set(lines)),
    )


def save_item(run: Run, item: Item, share: float) -> Saving:
    """Return what sending an item takes the generator."""
    seconds = share * (item.end - item.start)
    return Saving(run.process, run.thread, (item.start + item.end) / 2, seconds, "store")


def sending_share(run: Run) -> float:
    """Return the share of the time of a generator that Ray takes to send its items."""
    sending = sum(item.end - item.start for item in items_of(run))
    return min(1.0, sending / run.seconds) if run.seconds else 0.0


def save_read(call: Call, ready: ReadyTimes, share: float, factor: float, sending: float) -> Saving:
    """Return what a call takes after its item was there, and what the calls take that were only counted.

    The replay knows nothing of the waits of these, which get shorter with the time that the items take to be sent.
    """
    time = ready.of(call.objects[0]) or call.start
    begin = min(call.end, max(call.start, time))
    work = max(0.0, call.end - begin - call.own_seconds)
    unknown_waits = (factor - 1) * sending * (begin - call.start)
    seconds = share * (factor * work + unknown_waits)
    return Saving(call.process, call.thread, begin, seconds, "work")
