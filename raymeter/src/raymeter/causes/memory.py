# SPDX-License-Identifier: Apache-2.0
"""Find objects that do not fit into the object store, and what keeps memory.

Sources: "Object spilling" and "Pattern: using ray.wait to limit the number of pending tasks" in Ray's documentation,
and reports such as ray#28051 (a backlog of arguments), ray#9504 (a view keeps its object), ray#31421 (spilling).
"""

from collections import Counter
from dataclasses import replace

from raymeter.causes.savings import total
from raymeter.causes.spilling import (
    multiply,
    save_all_backlogs,
    save_full_store_and_restores,
    save_spilling,
)
from raymeter.findings import Finding, Saving
from raymeter.memory.growth import Growth, find_growth
from raymeter.memory.kept_references import KeptReferences, find_kept_references
from raymeter.memory.lives import Life, Peak, by_line, find_lives, find_peak
from raymeter.memory.places import ObjectLines
from raymeter.memory.processes import Sample
from raymeter.memory.references import KeptViews, find_kept_views
from raymeter.memory.stores import Spilling, find_spilling
from raymeter.memory.streams import Lead, Streams
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.units import format_bytes, format_milliseconds

SPILLED = "the object store spills"
BACKLOG = "a backlog of large arguments"
VIEWS = "kept views hold whole objects"
REFERENCES = "kept references hold objects"
GROWTH = "private memory grows"
AHEAD = "a producer is ahead of its reader"

QUEUE_ACTOR = "_QueueActor."  # of ray.util.queue.Queue
MIN_SPILLED_BYTES = 10**7
FILLED_SHARE = 0.5  # of the store, which waiting arguments or results should not exceed
ROOM = 1.3  # more than the bytes that are needed at the same time: the store has gaps
MIN_OBJECTS = 3  # that are kept, to be called a habit
MIN_KEPT_SHARE = 0.05  # of the store
MIN_FILLING_SHARE = 0.3  # of the store, which kept views fill, so that other objects do not fit
MIN_BACKLOG = 4
MIN_AHEAD = 8
FAR_AHEAD = 32  # items of generators, which are too many even if a step has as many
MIN_GROWING_SHARE = 0.01  # of the store, for a lead that grows all the time
START_SHARE = 0.3  # of a program without steps, which is left out: imports, and what is loaded once
AHEAD_FACTOR = 3  # more results than a step makes


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return findings if objects did not fit into the store; [] if they did, because other memory costs no time.

    Kept views come first, then backlogs, then spilling: only the first of these is returned that is found.
    """
    spilling = find_spilling(program.recording.stores)
    if max(spilling.spilled, spilling.fallback) < MIN_SPILLED_BYTES:
        return []
    views = find_views(program, spilling, MIN_FILLING_SHARE)
    if views:  # the first one, with most bytes, has the savings of all
        views[0].savings = save_full_store_and_restores(program, steps, spilling)
        views[0].seconds = total(views[0].savings) / steps.count
        return views
    if spilling.spilled < MIN_SPILLED_BYTES:
        return []
    lives = find_lives(program)
    return find_backlog(steps, spilling, lives, program) or [
        describe_spilling(program, steps, spilling, lives)
    ]


def find_memory(program: Program, steps: Steps, samples: list[Sample]) -> list[Finding]:
    """Return all findings about memory, for `raymeter memory`."""
    spilling = find_spilling(program.recording.stores)
    lives = find_lives(program)
    findings = find_views(program, spilling, MIN_KEPT_SHARE)
    backlog = find_backlog(steps, spilling, lives, program)
    findings += backlog
    findings += find_producers(program, steps, spilling, lives)
    if spilling.spilled >= MIN_SPILLED_BYTES and not backlog:
        findings.append(describe_spilling(program, steps, spilling, lives))
    findings += find_growing_references(program, steps, spilling)
    findings += find_growing_processes(program, steps, samples)
    return findings


def describe_spilling(
    program: Program, steps: Steps, spilling: Spilling, lives: list[Life]
) -> Finding:
    """Return the finding for a store into which the objects do not fit that are used together."""
    peak = find_peak(lives)
    line = line_with_most(steps, lives)
    needed = ROOM * max(peak.bytes, spilling.capacity)
    savings = save_spilling(program, steps, spilling)
    disk_seconds = spilling.spill_seconds + spilling.restore_seconds
    title = (
        f"{format_bytes(spilling.spilled)} were spilled to disk and {format_bytes(spilling.restored)} read back "
        f"({format_milliseconds(disk_seconds)} of work), because the store holds {format_bytes(spilling.capacity)}"
    )
    return Finding(
        cause=SPILLED,
        title=title,
        line=line,
        change=f"Give it at least {format_bytes(needed)}: ray.init(object_store_memory={round(needed)}), or keep fewer "
        "references to results.",
        seconds=total(savings) / steps.count,
        savings=savings,
        price="the store takes this memory only when it is filled.",
    )


def line_with_most(steps: Steps, lives: list[Life]) -> str:
    """Return the line whose messages of the steps fill the store most: bytes times the seconds that they are needed.

    Without messages in the steps, all messages count. Return "" if there are none.
    """
    during = [life for life in lives if steps.of(life.start) is not None]
    amounts: dict[str, float] = {}
    for life in during or lives:
        sent = life.message.sent
        amount = sent.weight * sent.bytes * life.seconds
        amounts[life.line] = amounts.get(life.line, 0.0) + amount
    return max(amounts, key=lambda name: amounts[name], default="")


def find_backlog(
    steps: Steps, spilling: Spilling, lives: list[Life], program: Program
) -> list[Finding]:
    """Return a finding for each line whose own arguments wait until they fill the store.

    They fill it together, so each line gets a share of what all of them would save: that of its bytes.
    """
    arguments = [life for life in lives if life.message.how == "argument"]
    peaks: dict[str, Peak] = {}
    for line, group in by_line(arguments).items():
        peak = find_peak(group)
        is_full = peak.bytes > FILLED_SHARE * spilling.capacity > 0
        if is_full and peak.count >= MIN_BACKLOG:
            peaks[line] = peak
    if not peaks:
        return []
    savings = save_all_backlogs(program, steps, spilling)
    all_bytes = sum(peak.bytes for peak in peaks.values())
    findings = []
    for line, peak in peaks.items():
        own_savings = multiply(savings, peak.bytes / all_bytes)
        findings.append(describe_backlog(steps, spilling, line, peak, own_savings))
    return findings


def describe_backlog(
    steps: Steps, spilling: Spilling, line: str, peak: Peak, savings: list[Saving]
) -> Finding:
    """Return the finding for a line, with the savings that are its own."""
    size = peak.bytes / peak.count
    at_most = max(1, int(FILLED_SHARE * spilling.capacity / size))
    title = f"{peak.count:.0f} arguments of {format_bytes(size)} wait in a store of {format_bytes(spilling.capacity)}"
    if spilling.spilled >= MIN_SPILLED_BYTES:
        title += f": {format_bytes(spilling.spilled)} were spilled to disk"
    return Finding(
        cause=BACKLOG,
        title=title,
        line=line,
        change=f"Keep at most {at_most} in flight: call ray.wait in the loop when {at_most} tasks have not ended.",
        seconds=total(savings) / steps.count,
        savings=savings,
    )


def find_views(program: Program, spilling: Spilling, min_share: float) -> list[Finding]:
    """Return a finding for each method that keeps values which look at many objects: a share of the store."""
    findings = []
    for views in find_kept_views(program):
        is_large = views.proven_bytes > min_share * spilling.capacity
        if views.most_of_a_process >= MIN_OBJECTS and is_large:
            is_queue = views.name.startswith(QUEUE_ACTOR)
            findings.append(describe_queue(program, views) if is_queue else describe_views(views))
    return findings


def describe_queue(program: Program, views: KeptViews) -> Finding:
    """Return the finding for a queue of Ray: its actor keeps all items that wait for their reader."""
    lines = ObjectLines(program)
    counts = Counter(lines.line_of(reference) for reference in views.objects)
    [(line, _)] = counts.most_common(1)
    return Finding(
        cause=AHEAD,
        title=f"{len(views.objects)} items ({format_bytes(views.bytes)}) wait in a queue: "
        "what puts them there is ahead of its reader",
        line=line,
        change="Make the queue with a limit, Queue(maxsize=4): then queue.put waits until there is room.",
        seconds=0.0,
    )


def describe_views(views: KeptViews) -> Finding:
    reader = views.name or "the driver"
    return Finding(
        cause=VIEWS,
        title=f"{len(views.objects)} objects ({format_bytes(views.bytes)}) stay in the store, because {reader} keeps "
        "views of them",
        line=views.line,
        change="If a part of each is enough, copy that part (array.copy(), tensor.clone()), and the store drops the "
        "rest: even a small slice keeps its whole object. If all of it is needed, the store must be larger.",
        seconds=0.0,
        price="the copy is private memory of the reader.",
    )


def find_producers(
    program: Program, steps: Steps, spilling: Spilling, lives: list[Life]
) -> list[Finding]:
    """Return a finding for each line whose results wait in the store for their reader.

    Results of tasks may wait, as long as they leave room. A generator is told to wait by one word, so it is also said
    if it is far ahead, or its lead grows all the time.
    """
    streams = Streams(program)
    results = [life for life in lives if life.message.how == "result"]
    findings = []
    for line, group in by_line(results).items():
        per_step = sum(life.message.sent.weight for life in group) / steps.count
        usual = AHEAD_FACTOR * per_step if steps.count > 1 else 0.0
        peak = find_peak(until_read(life) for life in group if life.message.received)
        lead = streams.find_lead(group)
        if is_filling(peak, spilling) and peak.count >= max(MIN_AHEAD, usual):
            findings.append(describe_producer(line, spilling, Lead(peak, lead.bytes_per_second)))
        elif is_far_ahead(lead, spilling, usual):
            findings.append(describe_producer(line, spilling, lead))
    return findings


def is_filling(peak: Peak, spilling: Spilling) -> bool:
    return peak.bytes > FILLED_SHARE * spilling.capacity > 0


def is_far_ahead(lead: Lead, spilling: Spilling, usual: float) -> bool:
    """Return whether it matters how far a generator is ahead: by the bytes, or because it is more and more.

    `usual` items may wait, since a reader may take all of a step at once; very many are said in any case.
    """
    count = lead.peak.count
    share = lead.peak.bytes / max(1, spilling.capacity)
    if spilling.capacity <= 0 or count < MIN_AHEAD:
        return False
    if count >= FAR_AHEAD:
        grows = lead.bytes_per_second > 0 and share > MIN_GROWING_SHARE
        return grows or share > MIN_KEPT_SHARE
    return count >= usual and share > MIN_KEPT_SHARE


def until_read(life: Life) -> Life:
    """Return the time of a message from its end of being sent until it is read."""
    first_read = min(received.start for received in life.message.received)
    return replace(life, start=life.message.sent.end, end=first_read)


def describe_producer(line: str, spilling: Spilling, lead: Lead) -> Finding:
    peak = lead.peak
    producer = peak.lives[0].message.sent.by_name or "the producer"
    return Finding(
        cause=AHEAD,
        title=f"{producer} is {peak.count:.0f} items ahead of its reader: {format_bytes(peak.bytes)} wait in a store "
        f"of {format_bytes(spilling.capacity)}{say_growth(lead)}",
        line=line,
        change="Let it wait: _generator_backpressure_num_objects for a generator, a queue with maxsize, or ray.wait "
        "before the next task is submitted.",
        seconds=0.0,
    )


def say_growth(lead: Lead) -> str:
    """Return by how much a lead grows; "" if it does not."""
    if not lead.bytes_per_second:
        return ""
    return f", and {format_bytes(lead.bytes_per_second)} more each second"


def find_growing_references(program: Program, steps: Steps, spilling: Spilling) -> list[Finding]:
    """Return a finding for each line whose results or objects a process keeps by references, more in each step.

    A program without steps may submit all of its tasks before it gets their results.
    """
    if steps.is_whole_program:
        return []
    begin, _ = steps.times[0]
    _, end = steps.times[-1]
    findings = []
    for kept in find_kept_references(program, begin, end):
        is_large = kept.bytes > MIN_KEPT_SHARE * spilling.capacity
        if is_large and kept.objects >= MIN_OBJECTS:
            findings.append(describe_references(program, steps, kept))
    return findings


def describe_references(program: Program, steps: Steps, kept: KeptReferences) -> Finding:
    """Return the finding for references of a process that become more in each step; it saves no time."""
    drivers = {process.process for process in program.recording.drivers}
    name = "the driver" if kept.process in drivers else "a worker"
    per_step = format_bytes(kept.bytes_per_second * steps.seconds)
    return Finding(
        cause=REFERENCES,
        title=f"{name} keeps references to {kept.objects} objects ({format_bytes(kept.bytes)}), "
        f"and {per_step} more in each step, so they stay in the store",
        line=kept.line,
        change="Drop references that are not needed any more (del, or only the last ones in a list), or keep what is "
        "needed of each object.",
        seconds=0.0,
    )


def find_growing_processes(program: Program, steps: Steps, samples: list[Sample]) -> list[Finding]:
    """Return a finding for each process of the user's code whose private memory grows during the steps.

    If the whole program is one step, its beginning is left out. So are processes that were not recorded.
    """
    recorded = {process.process: process for process in program.recording.processes}
    begin = steps.times[0][0]
    end = steps.times[-1][1]
    if steps.is_whole_program:
        begin += START_SHARE * (end - begin)
    findings = []
    for growth in find_growth(samples, begin, end):
        process = recorded.get(growth.process)
        if process is not None:
            is_driver = process.role == "driver"
            findings.append(describe_growth(program, steps, growth, process.process, is_driver))
    return findings


def describe_growth(
    program: Program, steps: Steps, growth: Growth, process: str, is_driver: bool
) -> Finding:
    """Return the finding for a process whose private memory grows; it saves no time.

    Its line is "" if no line of the process reads about as much per step as it grows.
    """
    per_step = growth.bytes_per_second * steps.seconds
    name = "the driver" if is_driver else growth.name.removeprefix("ray::")
    line = line_that_grows(program, steps, process, per_step)
    title = f"{name} grows by {format_bytes(per_step)} per step"
    if steps.is_whole_program:
        title = f"{name} grows by {format_bytes(growth.bytes_per_second)} per second"
    title += f" ({format_bytes(growth.first)} -> {format_bytes(growth.last)} of private memory)"
    change = "Look for what is kept in each step."
    if line:
        title += ", about as much as it reads there"
        change = "Keep less of these values, or drop them (del) when they are not needed any more."
    return Finding(
        cause=GROWTH,
        title=title,
        line=line,
        change=change,
        seconds=0.0,
    )


def line_that_grows(program: Program, steps: Steps, process: str, per_step: float) -> str:
    """Return the line at which a process reads about as many bytes per step as it grows; "" without one."""
    read: dict[str, float] = {}
    for received in program.recording.received:
        if received.process == process and received.line and steps.of(received.start) is not None:
            read_bytes = received.weight * received.bytes
            read[received.line] = read.get(received.line, 0.0) + read_bytes / steps.count
    alike = {line: size for line, size in read.items() if 0.5 * per_step <= size <= 2 * per_step}
    return min(alike, key=lambda line: abs(alike[line] - per_step), default="")
