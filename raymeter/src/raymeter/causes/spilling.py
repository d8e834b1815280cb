# SPDX-License-Identifier: Apache-2.0
"""What spilling costs a step: waits for objects that come back from disk, and for room in the store.

Ray says for how many seconds it has restored and spilled in all. Which waits this explains is not recorded: they are
found by what they wait for, and together they count at most as much as Ray says.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import quantiles

from raymeter.causes.savings import middle, total
from raymeter.findings import Saving
from raymeter.memory.stores import Spilling
from raymeter.profile.events import Call
from raymeter.profile.groups import group_messages, in_steps, own_call_seconds, store_seconds
from raymeter.profile.program import Message, Program
from raymeter.profile.steps import Steps
from raymeter.simulate.graph import Graph, build
from raymeter.simulate.nesting import outermost

MIN_GAPS = 16  # between the same two lines, to know what is usual
MIN_WAIT = 0.001  # seconds; shorter ones are no read from disk
STORE_SECONDS = 0.001  # that storing takes besides the copy
STORE_FACTOR = 1.5  # times a plain copy, that the copy into the store takes
EXCESS = 1.5  # times the fastest message of its kind: then, storing it has waited for room


@dataclass(frozen=True)
class Gap:
    """The time in which the user's code runs: between two calls of Ray in one thread, or in a task."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


def save_spilling(program: Program, steps: Steps, spilling: Spilling) -> list[Saving]:
    """Return the waits of the steps that a store with room would not have."""
    graph = build(program)
    restores = [*save_task_waits(graph), *save_gets(program, graph)]
    stores = save_full_store(program, steps)
    during = steps_of(steps)
    return [
        *limit(filter(during, restores), spilling.restore_seconds),
        *limit(filter(during, stores), spilling.spill_seconds),
    ]


def save_full_store_and_restores(
    program: Program, steps: Steps, spilling: Spilling
) -> list[Saving]:
    """Return what steps would not take if objects left the store as soon as they are not needed.

    Then messages are copied into memory that was used before, as fast as this was measured.
    """
    graph = build(program)
    during = steps_of(steps)
    restores = [*save_task_waits(graph), *save_gets(program, graph)]
    stores = save_full_store(program, steps, spilling.copy_rate)
    return [
        *limit(filter(during, restores), spilling.restore_seconds),
        *filter(during, stores),
    ]


def save_all_backlogs(program: Program, steps: Steps, spilling: Spilling) -> list[Saving]:
    """Return what steps would not take with fewer arguments at the same time, whichever lines send them.

    Messages are stored at once, and nothing is spilled, so that the cores are left to the program. Before an argument
    can be read from disk, there must be room for it, so that its task may wait for both: spilling and reading.
    """
    graph = build(program)
    during = steps_of(steps)
    stores = save_full_store(program, steps, spilling.copy_rate)
    waits = [*save_task_waits(graph), *save_gets(program, graph)]
    if spilling.spilled:
        waits += save_slow_work(program, steps)
        waits += save_slow_tasks(program, steps)
    disk_seconds = spilling.spill_seconds + spilling.restore_seconds
    limited = limit(filter(during, waits), disk_seconds)
    return [*filter(during, stores), *limited]


def save_slow_work(program: Program, steps: Steps) -> list[Saving]:
    """Return by how much longer the code between two calls of a step takes than it usually does between these lines.

    Code between lines that rarely come one after the other is left out.
    """
    gaps: dict[tuple[str, str], list[Gap]] = defaultdict(list)
    calls = [call for call in program.recording.calls if is_in_thread(call, steps)]
    for earlier, later in pairwise(outermost(calls)):
        step = steps.of(earlier.end)
        if step is not None and step == steps.of(later.start):
            lines = earlier.line, later.line
            gaps[lines].append(Gap(earlier.end, later.start))
    savings = []
    for group in gaps.values():
        savings += save_gaps(steps.process, steps.thread, group)
    return savings


def save_slow_tasks(program: Program, steps: Steps) -> list[Saving]:
    """Return by how much longer the functions of tasks ran in the steps than those of this name and process usually do.

    It does not look whether Ray was busy with the disk then. Tasks in processes that were not recorded are left out.
    """
    runs: dict[tuple[str, str], list[Gap]] = defaultdict(list)
    for task in program.tasks.values():
        if task.execute is None:
            continue
        start, end = task.execute
        process = program.process_of(task)
        place = process, task.name
        if process and steps.of(start) is not None:
            runs[place].append(Gap(start, end))
    savings = []
    for (process, _), group in runs.items():
        savings += save_gaps(process, 0, group)
    return savings


def is_in_thread(call: Call, steps: Steps) -> bool:
    is_process = call.process == steps.process
    return is_process and call.thread == steps.thread


def save_gaps(process: str, thread: int, gaps: list[Gap]) -> list[Saving]:
    """Return the time of long gaps of a thread above the lower quartile of all; none if there are few gaps.

    Long gaps are those above EXCESS times this quartile.
    """
    if len(gaps) < MIN_GAPS:
        return []
    lengths = [gap.seconds for gap in gaps]
    usual, _, _ = quantiles(lengths, n=4)
    savings = []
    for gap in gaps:
        if gap.seconds > EXCESS * usual:
            middle_of_gap = (gap.start + gap.end) / 2
            excess = gap.seconds - usual
            savings.append(Saving(process, thread, middle_of_gap, excess, "execute"))
    return savings


def steps_of(steps: Steps) -> Callable[[Saving], bool]:
    """Return a function that says whether a saving is in a step."""

    def is_in_step(saving: Saving) -> bool:
        return steps.of(saving.start) is not None

    return is_in_step


def limit(savings: Iterable[Saving], most_seconds: float) -> list[Saving]:
    """Return savings that are together at most so long."""
    savings = list(savings)
    seconds = total(savings)
    if seconds <= most_seconds:
        return savings
    share = most_seconds / seconds
    return multiply(savings, share)


def multiply(savings: Iterable[Saving], share: float) -> list[Saving]:
    """Return a share of each saving."""
    smaller = []
    for saving in savings:
        seconds = share * saving.seconds
        smaller.append(replace(saving, seconds=seconds))
    return smaller


def save_task_waits(graph: Graph) -> list[Saving]:
    """Return the time before each task with references, in which nothing else is known to happen."""
    savings = []
    for wait in graph.argument_waits:
        if wait.seconds >= MIN_WAIT:
            start = (wait.start + wait.end) / 2
            savings.append(Saving(wait.process, 0, start, wait.seconds, "restore"))
    return savings


def save_gets(program: Program, graph: Graph) -> list[Saving]:
    """Return the time of each ray.get after its objects were ready, without reading them."""
    savings = []
    for call in program.recording.calls:
        if call.event == "get":
            seconds = wait_after_ready(graph, call)
            if seconds >= MIN_WAIT:
                start = call.end - seconds / 2
                savings.append(Saving(call.process, call.thread, start, seconds, "wait"))
    return savings


def wait_after_ready(graph: Graph, call: Call) -> float:
    """Return the seconds of a ray.get after its last object was ready, without those for reading it.

    That is 0 if nothing is known of its objects. It can be negative.
    """
    points = [graph.ready_point(reference) for reference in call.objects]
    known = [graph.points[point].time for point in points if point is not None]
    if not known:
        return 0.0
    ready = max(call.start, *known)
    return call.end - ready - call.deserialise_seconds


def save_full_store(program: Program, steps: Steps, copy_rate: float = 0.0) -> list[Saving]:
    """Return by how much longer messages took to be stored than the fastest one of their kind.

    With a measured rate, the fastest one is not slower than a copy into memory that was used before. A call with a slow
    message is always written, so its saving has no weight. Calls whose large messages were left out count as well, once
    and with the messages of their line that take most time; also those outside of the steps, which the caller leaves
    out.
    """
    savings = []
    without_messages = calls_without_messages(program)
    for group in group_messages(in_steps(program.messages, steps)):
        seconds = [sending_seconds(message) for message in group.messages]
        fastest = min(seconds)
        if copy_rate:
            fastest = min(fastest, STORE_SECONDS + STORE_FACTOR * group.bytes / copy_rate)
        for message, taken in zip(group.messages, seconds, strict=True):
            if taken > EXCESS * fastest:
                savings.append(save_message(message, taken - fastest))
        place = group.first.process, group.line
        calls = without_messages.pop(place, [])  # which count once, for several kinds of one line
        savings += save_slow_calls(calls, fastest)
    return savings


def save_slow_calls(calls: list[Call], fastest: float) -> list[Saving]:
    """Return by how much longer calls took than the fastest one."""
    savings = []
    for call in calls:
        taken = call.seconds - call.own_seconds
        excess = taken - fastest
        if taken > EXCESS * fastest:
            savings.append(save_call(call, excess))
    return savings


def calls_without_messages(program: Program) -> dict[tuple[str, str], list[Call]]:
    """Return the calls whose large messages were left out, by their process and line."""
    calls: dict[tuple[str, str], list[Call]] = defaultdict(list)
    for call in program.recording.calls:
        if call.left_out_messages:
            place = call.process, call.line
            calls[place].append(call)
    return calls


def sending_seconds(message: Message) -> float:
    if message.call is not None:
        return own_call_seconds(message)
    return store_seconds(message)


def save_message(message: Message, seconds: float) -> Saving:
    """Return a saving of the call that sends a message, or of storing the result of a task, and of others like it."""
    if message.call is not None:
        return save_call(message.call, seconds)
    start = middle(message.stored) if message.stored else message.sent.start
    weight = message.sent.weight
    process = message.sent.process
    all_seconds = weight * seconds
    is_spread = weight > 1
    return Saving(process, 0, start, all_seconds, "store", is_spread)


def save_call(call: Call, seconds: float) -> Saving:
    start = call.start + call.seconds / 2
    return Saving(call.process, call.thread, start, seconds, "call")
