# SPDX-License-Identifier: Apache-2.0
"""Join the events of a program: each message with its sender and readers, each task with the call that submitted it."""

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from raymeter.profile.channels import join_polls
from raymeter.profile.counted import TASK_DIGITS, complete_objects, restore_calls
from raymeter.profile.event_loops import EventLoops
from raymeter.profile.events import Call, Received, Sent, Task
from raymeter.profile.library_threads import join_helpers
from raymeter.profile.missing_phases import complete_phases
from raymeter.profile.reader import Recording
from raymeter.profile.short_messages import complete_short
from raymeter.profile.weights import (
    leaves_out_messages,
    weigh_calls,
    weigh_messages,
    weigh_readers,
)
from raymeter.profile.workers import Workers

Phase = tuple[float, float]  # start and end
TaskKey = tuple[str, int]  # task, and bytes of the message
ArgumentKey = tuple[str, str, int]  # task that sent it, actor that reads it, and bytes
ATTEMPT_DIGITS = (
    2  # of the id of a task: in the ids of the objects that it puts, they count its attempts
)
CLOCK_SECONDS = 0.001  # by which the clocks of two events may differ


@dataclass
class Message:
    """A large message from one sender to its readers."""

    sent: Sent
    call: Call | None  # in which it was sent; None for the result of a task
    received: list[Received] = field(default_factory=list)
    stored: Phase | None = None  # when the task that returned it stored its results
    in_one_store: int = 1  # messages that were stored then, with those that were left out
    recorder_in_store: float = 0.0  # seconds of the recorder then
    is_only_read: bool = False  # in the steps: it was sent outside of them

    @property
    def how(self) -> str:
        """Return "argument", "put", "result", "channel" or "rdt"."""
        if self.sent.how:
            return self.sent.how
        if self.call is None:
            return "result"
        return {"call": "argument"}.get(self.call.event, self.call.event)


@dataclass
class Program:
    """A recording whose events are joined."""

    recording: Recording
    messages: list[Message]
    tasks: dict[str, Task]  # by id
    submissions: dict[str, Call]  # by the id of the task that was submitted
    calls: dict[tuple[str, int], Call]  # by process and number
    by_thread: dict[tuple[str, int], list[Call]] = field(default_factory=lambda: defaultdict(list))
    workers: Workers = field(init=False)
    graph: Any = None  # of simulate.graph, once it was built

    def __post_init__(self) -> None:
        self.workers = Workers(self.recording)

    def process_of(self, task: Task) -> str:
        """Return the name of the process in which a task ran; "" if it was not recorded."""
        return self.workers.process_of(task)

    def call_at(self, process: str, thread: int, time: float) -> Call | None:
        """Return the last call that a thread had begun at a time, if it had not ended then."""
        if not self.by_thread:
            for call in self.recording.calls:
                self.by_thread[call.process, call.thread].append(call)
        calls = self.by_thread.get((process, thread), [])
        position = bisect_right(calls, time, key=lambda call: call.start)
        if not position:
            return None
        call = calls[position - 1]
        if call.end < time:
            return None
        return call


def join(recording: Recording) -> Program:
    """Return the program of a recording, which is changed.

    Tasks whose phases Ray does not know get them from their states, calls that were not written are made again, polls
    of a channel become one get, calls of helping threads move to the thread that they help, and events get weights for
    those that were left out.
    """
    complete_phases(recording.tasks)
    complete_objects(recording)
    recording.calls = join_polls(recording.calls)
    restored = restore_calls(recording)
    if restored:
        recording.calls = sorted([*recording.calls, *restored], key=lambda call: call.start)
    weigh_calls(recording)
    complete_short(recording)
    weigh_messages(recording)
    name_lines_of_results(recording)
    join_helpers(recording)
    calls = number_calls(recording.calls)
    messages = []
    for sent in recording.sent:
        call = calls.get((sent.process, sent.scope))
        messages.append(Message(sent, call))
    program = Program(
        recording=recording,
        messages=messages,
        tasks=EventLoops(recording).put_right(),
        submissions=find_submissions(recording.calls),
        calls=calls,
    )
    join_stores(program)
    join_readers(program)
    if leaves_out_messages(recording):
        weigh_readers(recording.received, joined_readers(messages))
    return program


def name_lines_of_results(recording: Recording) -> None:
    """Let results without a line have that of the function which returned them: of its task, or of all of its name.

    If several functions have run under a name, as two with `.options(name="stage")`, the name does not tell which one.
    """
    lines = {run.by: run.line for run in recording.runs}
    of_names: dict[str, set[str]] = defaultdict(set)
    for run in recording.runs:
        of_names[run.by_name].add(run.line)
    for sent in recording.sent:
        if sent.line:
            continue
        line = lines.get(sent.by, "")
        of_name = of_names.get(sent.by_name, set())
        if not line and len(of_name) == 1 and not sent.has_equal_names:
            [line] = of_name
        sent.line = line


def find_submissions(calls: list[Call]) -> dict[str, Call]:
    """Return the calls that submit tasks, by the task."""
    return {call.task: call for call in calls if call.event == "call"}


def number_calls(calls: list[Call]) -> dict[tuple[str, int], Call]:
    """Return calls by their process and number."""
    return {(call.process, call.number): call for call in calls}


def join_stores(program: Program) -> None:
    """Add to each result when it was stored: the phase of its task that contains its serialisation, or of its process.

    Items of a generator have no such phase, and results of one task share theirs, also those that were left out.
    """
    by_process = find_stores(program)
    sharing: dict[tuple[str, Phase], list[Message]] = defaultdict(list)
    for message in program.messages:
        if message.call is not None:
            continue
        process = message.sent.process
        phases = by_process.get(process, [])
        phase = own_phase(program, message.sent) or phase_at(phases, message.sent)
        if phase is not None:
            message.stored = phase
            sharing[process, phase].append(message)
    usual = results_per_task(program)
    for messages in sharing.values():
        recorder_seconds = sum(message.sent.own_seconds for message in messages)
        for message in messages:
            message.in_one_store = max(len(messages), usual[message.sent.by_name])
            message.recorder_in_store = recorder_seconds


def results_per_task(program: Program) -> dict[str, int]:
    """Return how many large results a task of each name stores, with those that were left out.

    It is the largest position of those that were written. A name whose results were stored at no known time is left
    out, as that of a generator.
    """
    results: dict[str, int] = defaultdict(int)
    for message in program.messages:
        if message.stored is not None:
            name = message.sent.by_name
            results[name] = max(results[name], message.sent.position)
    return dict(results)


def own_phase(program: Program, sent: Sent) -> Phase | None:
    """Return the phase in which the task that returned a message stored it; None if it was not serialised in it."""
    task = program.tasks.get(sent.by)
    if task is None or task.store is None:
        return None
    start, end = task.store
    return phase_at([(start, end)], sent)


def phase_at(phases: list[Phase], sent: Sent) -> Phase | None:
    """Return the phase, of those in the order of time, in which a message was serialised."""
    middle = sent.start + sent.seconds / 2
    position = bisect_right(phases, (middle, middle)) - 1
    if position < 0:
        return None
    phase = phases[position]
    _, end = phase
    if middle > end + CLOCK_SECONDS:
        return None
    return phase


def find_stores(program: Program) -> dict[str, list[Phase]]:
    """Return for each process when it stored results of tasks, in the order of time."""
    phases: dict[str, list[Phase]] = defaultdict(list)
    for task in program.tasks.values():
        process = program.process_of(task)
        if task.store is not None and process:
            start, end = task.store
            phases[process].append((start, end))
    for of_process in phases.values():
        of_process.sort()
    return dict(phases)


def join_readers(program: Program) -> None:
    """Add each received message to the message that it was. One whose sender was not recorded is added to none."""
    index = SenderIndex()
    for message in program.messages:
        index.add(message)
    others = []
    for received in program.recording.received:
        sender = index.sender_of(received)
        if sender is not None:
            sender.received.append(received)
        else:
            others.append(received)
    join_arguments_of_actors(program, others)


def joined_readers(messages: list[Message]) -> set[int]:
    """Return the id() of what was received of these messages."""
    joined: set[int] = set()
    for message in messages:
        joined.update(map(id, message.received))
    return joined


def join_arguments_of_actors(program: Program, received: list[Received]) -> None:
    """Add arguments that an actor has read outside of its tasks, as async actors do, to the calls that sent them.

    The object of an argument has the id of the task that sent it, and a number that grows with each of its objects.
    If messages were left out, what was read may be one of them: then, only one counts whose task ran at that time.
    """
    take = next_running if leaves_out_messages(program.recording) else next_before
    actors = find_actors(program)
    waiting = find_waiting_arguments(program)
    for item in sorted(received, key=object_number):
        sender = item.owner_task[ATTEMPT_DIGITS:]
        actor = actors.get(item.process, "")
        messages = waiting.get((sender, actor, item.bytes), [])
        argument = take(program, messages, item)
        if argument is None or argument.call is None:
            continue
        item.by = argument.call.task
        item.by_name = argument.call.name
        argument.received.append(item)


def find_waiting_arguments(program: Program) -> dict[ArgumentKey, list[Message]]:
    """Return the arguments of actors that nobody has read yet."""
    waiting: dict[ArgumentKey, list[Message]] = defaultdict(list)
    for message in program.messages:
        call = message.call
        if call is None or message.how != "argument" or message.received:
            continue
        sender = call.by[ATTEMPT_DIGITS:]
        key = sender, call.actor, message.sent.bytes
        waiting[key].append(message)
    return waiting


def find_actors(program: Program) -> dict[str, str]:
    """Return the actor that lives in each process."""
    actors = {}
    for task in program.tasks.values():
        if task.actor:
            process = program.process_of(task)
            actors[process] = task.actor
    return actors


def object_number(received: Received) -> tuple[str, int]:
    """Return the process that read an object, and the number of the object in the task that made it."""
    digits = received.object[TASK_DIGITS:]
    try:
        return received.process, int.from_bytes(bytes.fromhex(digits), "little")
    except ValueError:
        return received.process, 0


def next_before(_: Program, messages: list[Message], received: Received) -> Message | None:
    """Take the first message out of a list, if it was sent before another one was received."""
    if not messages:
        return None
    first = messages[0]
    if first.sent.start > received.end + CLOCK_SECONDS:
        return None
    return messages.pop(0)


def next_running(program: Program, messages: list[Message], received: Received) -> Message | None:
    """Take the first message out of a list whose task ran when another one was received, and those before it."""
    while messages:
        begin, end = time_of_reader(program, messages[0])
        if begin > received.end + CLOCK_SECONDS:
            return None
        first = messages.pop(0)
        if end >= received.start:
            return first
    return None


def time_of_reader(program: Program, argument: Message) -> Phase:
    """Return when the task of an argument ran; if Ray does not know it, a time before all others."""
    name = argument.call.task if argument.call is not None else ""
    task = program.tasks.get(name)
    if task is None or task.running is None:
        return 0.0, 0.0
    ended = task.finished or task.failed
    return task.running, ended or 0.0


class SenderIndex:
    """Find the message that was received.

    A message of ray.put has the id of its object, and one in a channel the id of the channel. A result belongs to the
    task that returned it, and an argument by value to the task that was submitted: of several with the same size, the
    order is that of their objects.
    """

    def __init__(self) -> None:
        self.puts: dict[str, Message] = {}
        self.channels: dict[str, list[Message]] = defaultdict(list)
        self.results: dict[TaskKey, list[Message]] = defaultdict(list)
        self.arguments: dict[TaskKey, list[Message]] = defaultdict(list)
        self.objects: dict[TaskKey, list[str]] = defaultdict(list)  # that were received
        self.read_from_channel: Counter[tuple[str, str]] = Counter()

    def add(self, message: Message) -> None:
        call = message.call
        size = message.sent.bytes
        if call is None:
            self.results[message.sent.by, size].append(message)
        elif call.event == "put":
            self.puts[call.object] = message
        elif call.event == "channel":
            self.channels[call.object].append(message)
        else:
            self.arguments[call.task, size].append(message)

    def sender_of(self, received: Received) -> Message | None:
        """Return the message that was received; None if its sender was not recorded."""
        if received.object in self.puts:
            return self.puts[received.object]
        if received.object in self.channels:
            return self.next_of_channel(received)
        result = received.owner_task, received.bytes
        if result in self.results:
            return self.choose(result, self.results[result], received)
        argument = received.by, received.bytes
        if argument in self.arguments:
            return self.choose(argument, self.arguments[argument], received)
        return None

    def next_of_channel(self, received: Received) -> Message:
        """Return the message that this process has not read yet: a channel has one id for all of its messages."""
        reader = received.object, received.process
        position = self.read_from_channel[reader]
        self.read_from_channel[reader] += 1
        messages = self.channels[received.object]
        last = len(messages) - 1
        return messages[min(position, last)]

    def choose(self, key: TaskKey, messages: list[Message], received: Received) -> Message:
        """Return the message with the position that the object has among those received."""
        objects = self.objects[key]
        if received.object not in objects:
            objects.append(received.object)
        position = objects.index(received.object)
        last = len(messages) - 1
        return messages[min(position, last)]
