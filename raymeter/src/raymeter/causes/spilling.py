"""What spilling costs a step: waits for objects that come back from disk, and for room in the store.

Ray says for how many seconds it has restored and spilled in all. Which waits this explains is not recorded: they are
found by what they wait for, and together they count at most as much as Ray says.
"""

from collections.abc import Callable, Iterable

from raymeter.causes.savings import middle, total
from raymeter.findings import Saving
from raymeter.memory.stores import Spilling
from raymeter.profile.events import Call
from raymeter.profile.groups import group_messages, in_steps, own_call_seconds, store_seconds
from raymeter.profile.program import Message, Program
from raymeter.profile.steps import Steps
from raymeter.simulate.graph import Graph, build

MIN_WAIT = 0.001  # seconds; shorter ones are no read from disk
EXCESS = 1.5  # times the fastest message of its kind: then, storing it has waited for room


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
    limited = []
    for saving in savings:
        shorter = share * saving.seconds
        limited.append(Saving(saving.process, saving.thread, saving.start, shorter, saving.part))
    return limited


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
    """Return the seconds of a ray.get after its last object was ready, without those for reading it."""
    points = [graph.ready_point(reference) for reference in call.objects]
    known = [graph.points[point].time for point in points if point is not None]
    if not known:
        return 0.0
    ready = max(call.start, *known)
    return call.end - ready - call.deserialise_seconds


def save_full_store(program: Program, steps: Steps) -> list[Saving]:
    """Return by how much longer messages took to be stored than the fastest one of their kind."""
    savings = []
    for group in group_messages(in_steps(program.messages, steps)):
        seconds = [sending_seconds(program, message) for message in group.messages]
        fastest = min(seconds)
        for message, taken in zip(group.messages, seconds, strict=True):
            if taken > EXCESS * fastest:
                savings.append(save_message(program, message, taken - fastest))
    return savings


def sending_seconds(program: Program, message: Message) -> float:
    if message.call is not None:
        return own_call_seconds(message)
    return store_seconds(message)


def save_message(program: Program, message: Message, seconds: float) -> Saving:
    """Return a saving of the call that sends a message, or of storing the result of a task."""
    call = message.call
    if call is not None:
        start = call.start + call.seconds / 2
        return Saving(call.process, call.thread, start, seconds, "call")
    task = program.tasks[message.sent.by]
    start = middle(task.store) if task.store else message.sent.start
    return Saving(message.sent.process, 0, start, seconds, "store")
