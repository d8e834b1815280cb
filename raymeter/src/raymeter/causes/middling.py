"""Find lines that send many messages of a middling size, each in a call that takes longer than its bytes.

Sources: reports such as Ascend/ray-ascend#55 and meta-pytorch/torchstore#113. Calls without such messages are in
`causes.calls`.
"""

from collections import defaultdict
from statistics import mean

from raymeter.causes.savings import middle, total
from raymeter.findings import Finding, Saving
from raymeter.profile.events import Task
from raymeter.profile.groups import Group, in_steps, own_call_seconds
from raymeter.profile.program import Message, Program
from raymeter.profile.steps import Steps
from raymeter.units import format_bytes, format_milliseconds, significant

CAUSE = "many small calls"
MIN_MESSAGES = 50  # per step
MAX_BYTES = 2**20  # of a message
COPY_BYTES_PER_SECOND = 2e9  # that a message takes also if it is a part of a larger one
BATCH = 50  # messages that become one
MIN_SHARE = 0.5  # of the time of a call that is not for its bytes
MAX_TASK_SECONDS = 0.01  # of a method that does so much that the call does not matter


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each line that sends many messages of less than 1 MiB, to methods that do little."""
    findings = []
    for group in find_lines(program, steps):
        if is_many(group, steps) and task_seconds(program, group) < MAX_TASK_SECONDS:
            findings.append(make_finding(program, steps, group))
    return findings


def find_lines(program: Program, steps: Steps) -> list[Group]:
    """Return the messages of each line that sends one in each call."""
    lines: dict[tuple[str, str], list[Message]] = defaultdict(list)
    for message in in_steps(program.messages, steps):
        call = message.call
        is_sent_by_call = message.how in ("argument", "put")
        if call is not None and is_sent_by_call and len(call.messages) == 1:
            lines[call.line, call.name].append(message)
    return [Group(messages) for messages in lines.values()]


def is_many(group: Group, steps: Steps) -> bool:
    """Return whether there are many messages, whose calls take much longer than copying their bytes."""
    if len(group.messages) < MIN_MESSAGES * steps.count or group.bytes > MAX_BYTES:
        return False
    calls = sum(own_call_seconds(message) for message in group.messages)
    saved = sum(call_seconds_without_bytes(message) for message in group.messages)
    return saved > MIN_SHARE * calls


def call_seconds_without_bytes(message: Message) -> float:
    """Return what a call takes besides serialising and copying its message."""
    needed = message.sent.seconds + message.sent.bytes / COPY_BYTES_PER_SECOND
    return max(0.0, own_call_seconds(message) - needed)


def task_seconds(program: Program, group: Group) -> float:
    """Return how long the methods ran in the mean; 0 for ray.put, and if Ray does not know it."""
    times = []
    for message in group.messages:
        name = message.call.task if message.call else ""
        task = program.tasks.get(name)
        if task is None or task.execute is None:
            continue
        start, end = task.execute
        times.append(end - start)
    return mean(times) if times else 0.0


def make_finding(program: Program, steps: Steps, group: Group) -> Finding:
    share = 1 - 1 / BATCH
    savings = []
    for message in group.messages:
        savings += save_message(program, message, share)
    count = len(group.messages) / steps.count
    calls = sum(own_call_seconds(message) for message in group.messages) / steps.count
    return Finding(
        cause=CAUSE,
        title=f"{significant(count, 3)} messages of {format_bytes(group.bytes)} per step take "
        f"{format_milliseconds(calls)} of calls, most of it not for their bytes",
        line=group.line,
        change=f"Send {BATCH} or more of them in one call, as one array or a list: a call of Ray takes about as long "
        "whatever it brings.",
        seconds=total(savings) / steps.count,
        savings=savings,
        messages=[(message.sent.process, message.sent.number) for message in group.messages],
    )


def save_message(program: Program, message: Message, share: float) -> list[Saving]:
    """Return the time of one call, and of its task around the user's function, that a batch would not take."""
    call = message.call
    if call is None:
        return []
    seconds = share * call_seconds_without_bytes(message)
    start = call.start + call.seconds / 2
    savings = [Saving(call.process, call.thread, start, seconds, "call")]
    task = program.tasks.get(call.task)
    if task is not None:
        savings += save_phases(program, task, share)
    return savings


def save_phases(program: Program, task: Task, share: float) -> list[Saving]:
    """Return a share of what a task takes before and after the user's function."""
    processes = {process.pid: process.process for process in program.recording.processes}
    process = processes.get(task.pid, "")
    phases = {"deserialise": task.deserialise, "store": task.store}
    savings = []
    for part, phase in phases.items():
        if phase is None:
            continue
        start, end = phase
        seconds = share * (end - start)
        savings.append(Saving(process, 0, middle(phase), seconds, part))
    return savings
