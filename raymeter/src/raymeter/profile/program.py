"""Join the events of a program: each message with its sender and readers, each task with the call that submitted it."""

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from raymeter.profile.events import Call, Received, Sent, Task
from raymeter.profile.reader import Recording

TaskKey = tuple[str, int]  # task, and bytes of the message
ArgumentKey = tuple[str, str, int]  # task that sent it, actor that reads it, and bytes
TASK_DIGITS = 48  # of the id of an object, which begins with that of the task that made it
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
    stored: tuple[float, float] | None = None  # when the task that returned it stored its results
    in_one_store: int = 1  # messages that were stored then

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


def join(recording: Recording) -> Program:
    """Return the program of a recording."""
    calls = {(call.process, call.number): call for call in recording.calls}
    program = Program(
        recording=recording,
        messages=[Message(sent, calls.get((sent.process, sent.scope))) for sent in recording.sent],
        tasks={task.task: task for task in recording.tasks},
        submissions={call.task: call for call in recording.calls if call.event == "call"},
        calls=calls,
    )
    join_stores(program)
    join_readers(program)
    return program


def join_stores(program: Program) -> None:
    """Add to each result when it was stored: the phase of its process that contains its serialisation.

    Ray may show a phase of an async actor with another task of the actor, so only the time counts. Items of a
    generator have no such phase, and results of one task share theirs.
    """
    by_process = find_stores(program.recording)
    sharing: dict[tuple[str, tuple[float, float]], list[Message]] = defaultdict(list)
    for message in program.messages:
        phases = by_process.get(message.sent.process, [])
        middle = message.sent.start + message.sent.seconds / 2
        position = bisect_right(phases, (middle, middle)) - 1
        is_inside = position >= 0 and middle <= phases[position][1] + CLOCK_SECONDS
        if message.call is None and is_inside:
            message.stored = phases[position]
            sharing[message.sent.process, phases[position]].append(message)
    for messages in sharing.values():
        for message in messages:
            message.in_one_store = len(messages)


def find_stores(recording: Recording) -> dict[str, list[tuple[float, float]]]:
    """Return for each process when it stored results of tasks, in the order of time."""
    names = {process.pid: process.process for process in recording.processes}
    phases: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for task in recording.tasks:
        if task.store is not None and task.pid in names:
            start, end = task.store
            phases[names[task.pid]].append((start, end))
    for of_process in phases.values():
        of_process.sort()
    return dict(phases)


def join_readers(program: Program) -> None:
    """Add each received message to the message that it was."""
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


def join_arguments_of_actors(program: Program, received: list[Received]) -> None:
    """Add arguments that an actor has read outside of its tasks, as async actors do, to the calls that sent them.

    The object of an argument has the id of the task that sent it, and a number that grows with each of its objects.
    """
    actors = find_actors(program)
    waiting: dict[ArgumentKey, list[Message]] = defaultdict(list)
    for message in program.messages:
        if message.how == "argument" and message.call is not None and not message.received:
            key = message.call.by[ATTEMPT_DIGITS:], message.call.actor, message.sent.bytes
            waiting[key].append(message)
    for item in sorted(received, key=object_number):
        sender = item.owner_task[ATTEMPT_DIGITS:]
        key = sender, actors.get(item.process, ""), item.bytes
        argument = next_before(waiting[key], item) if key in waiting else None
        if argument is not None and argument.call is not None:
            item.by = argument.call.task
            item.by_name = argument.call.name
            argument.received.append(item)


def find_actors(program: Program) -> dict[str, str]:
    """Return the actor that lives in each process."""
    actors = {task.pid: task.actor for task in program.tasks.values() if task.actor}
    processes = program.recording.processes
    return {item.process: actors[item.pid] for item in processes if item.pid in actors}


def object_number(received: Received) -> tuple[str, int]:
    """Return the process that read an object, and the number of the object in the task that made it."""
    digits = received.object[TASK_DIGITS:]
    try:
        return received.process, int.from_bytes(bytes.fromhex(digits), "little")
    except ValueError:
        return received.process, 0


def next_before(messages: list[Message], received: Received) -> Message | None:
    """Take the first message out of a list, if it was sent before another one was received."""
    is_sent = bool(messages) and messages[0].sent.start <= received.end + CLOCK_SECONDS
    return messages.pop(0) if is_sent else None


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
