# SPDX-License-Identifier: Apache-2.0
"""Find lines that send many messages of a middling size, each in a call that takes longer than its bytes.

Sources: reports such as Ascend/ray-ascend#55 and meta-pytorch/torchstore#113. Calls without such messages are in
`causes.calls`.
"""

from collections import defaultdict
from statistics import mean

from raymeter.causes.calls import savings_of_phases
from raymeter.causes.savings import spread_over_later, total
from raymeter.findings import Finding, Saving
from raymeter.profile.events import Call
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
            place = call.line, call.name
            lines[place].append(message)
    return [Group(messages) for messages in lines.values()]


def is_many(group: Group, steps: Steps) -> bool:
    """Return whether there are many messages, whose calls take much longer than copying their bytes."""
    min_messages = MIN_MESSAGES * steps.count
    if group.count < min_messages or group.bytes > MAX_BYTES:
        return False
    saved = 0.0
    for message in group.messages:
        weight = message.sent.weight
        saved += weight * call_seconds_without_bytes(message)
    return saved > MIN_SHARE * call_seconds(group)


def call_seconds(group: Group) -> float:
    """Return what the calls with these messages take."""
    return sum(message.sent.weight * own_call_seconds(message) for message in group.messages)


def call_seconds_without_bytes(message: Message) -> float:
    """Return what a call takes besides serialising and copying its message."""
    sent = message.sent
    copy = sent.bytes / COPY_BYTES_PER_SECOND
    needed = sent.seconds + copy
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
    if not times:
        return 0.0
    return mean(times)


def make_finding(program: Program, steps: Steps, group: Group) -> Finding:
    """Return the finding for messages whose calls take long for so few bytes. It saves most of these calls."""
    savings = save_messages(program, group)
    count = significant(group.count / steps.count, 3)
    size = format_bytes(group.bytes)
    calls = format_milliseconds(call_seconds(group) / steps.count)
    sent = [message.sent for message in group.messages]
    return Finding(
        cause=CAUSE,
        title=f"{count} messages of {size} per step take {calls} of calls, most of it not for their bytes",
        line=group.line,
        change=f"Send {BATCH} or more of them in one call, as one array or a list: a call of Ray takes about as long "
        "whatever it brings.",
        seconds=total(savings) / steps.count,
        savings=savings,
        messages=[(message.process, message.number) for message in sent],
    )


def save_messages(program: Program, group: Group) -> list[Saving]:
    """Return the time of the calls, and of their tasks around the user's function, that batches would not take."""
    share = 1 - 1 / BATCH
    savings = []
    for message in group.messages:
        call = message.call
        if call is None:
            continue
        weight = message.sent.weight
        share_of_all = weight * share
        found = [save_call(call, message, share_of_all)]
        task = program.tasks.get(call.task)
        if task is not None:
            process = program.process_of(task)
            found += savings_of_phases(task, process, share_of_all)
        if weight > 1:  # the others are in later events
            found = [spread_over_later(saving, message) for saving in found]
        savings += found
    return savings


def save_call(call: Call, message: Message, share: float) -> Saving:
    """Return what a call takes besides the bytes of its message, times a share."""
    seconds = share * call_seconds_without_bytes(message)
    middle_of_call = call.start + call.seconds / 2
    return Saving(call.process, call.thread, middle_of_call, seconds, "call")
