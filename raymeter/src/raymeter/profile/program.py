"""Join the events of a program: each message with its sender and readers, each task with the call that submitted it."""

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace

from raymeter.profile.events import Call, Received, Sent, Task
from raymeter.profile.reader import Recording

TaskKey = tuple[str, int]  # task, and bytes of the message
TASK_DIGITS = 48  # of the id of an object, which begins with that of the task that made it


@dataclass
class Message:
    """A large message from one sender to its readers."""

    sent: Sent
    call: Call | None  # in which it was sent; None for the result of a task
    received: list[Received] = field(default_factory=list)

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
        return call if call.end >= time else None


def join(recording: Recording) -> Program:
    """Return the program of a recording."""
    calls = {(call.process, call.number): call for call in recording.calls}
    program = Program(
        recording=recording,
        messages=[Message(sent, calls.get((sent.process, sent.scope))) for sent in recording.sent],
        tasks=join_tasks(recording),
        submissions={call.task: call for call in recording.calls if call.event == "call"},
        calls=calls,
    )
    join_readers(program)
    return program


def join_tasks(recording: Recording) -> dict[str, Task]:
    """Return the tasks by id, those in an event loop with the times of the user's function.

    Of tasks that run at the same time in one thread, Ray mixes up the phases.
    """
    tasks = {task.task: task for task in recording.tasks}
    for run in recording.runs:
        task = tasks.get(run.by)
        if run.has_event_loop and task is not None:
            tasks[run.by] = replace(
                task,
                deserialise=(min(run.start, task.running or run.start), run.start),
                execute=(run.start, run.end),
                store=(run.end, max(run.end, task.finished or run.end)),
            )
    return tasks


def join_readers(program: Program) -> None:
    """Add each received message to the message that it was."""
    index = SenderIndex()
    for message in program.messages:
        index.add(message)
    for received in program.recording.received:
        sender = index.sender_of(received)
        if sender is not None:
            sender.received.append(received)


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
