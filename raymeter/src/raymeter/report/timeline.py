# SPDX-License-Identifier: Apache-2.0
"""Put what the processes of a program did on lanes: tasks, calls of Ray, waits, and the messages between them."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from raymeter.profile.events import Call, Received, Task
from raymeter.profile.program import Message, Program
from raymeter.report.words import DRIVER, name_place, relative
from raymeter.simulate.graph import WAITING, outermost
from raymeter.units import format_bytes, format_milliseconds

CALL_NAMES = {  # by event; a submission has the name of its task
    "get": "ray.get",
    "wait": "ray.wait",
    "put": "ray.put",
    "next": "wait for the next item of a generator",
    "channel": "write to a channel",
}


@dataclass(eq=False)
class Span:
    """What a process does from `start` to `end`. `kind` is "task", "phase", "call", "wait", "send" or "read"."""

    process: str
    thread: int
    kind: str
    name: str
    start: float
    end: float
    line: str = ""
    bytes: float = 0

    def describe(self) -> str:
        """Return a text for people: what, how long, where."""
        text = f"{self.name}: {format_milliseconds(self.end - self.start)}"
        if self.bytes:
            text += f", {format_bytes(self.bytes)}"
        if self.line:
            text += f", {relative(self.line)}"
        return text


@dataclass(frozen=True)
class Arrow:
    """A message from its sender to a reader."""

    source: Span
    target: Span

    @property
    def name(self) -> str:
        return self.source.name


@dataclass
class Row:
    """Spans of one kind that do not overlap."""

    name: str
    spans: list[Span] = field(default_factory=list)

    @property
    def end(self) -> float:
        return self.spans[-1].end if self.spans else 0.0


@dataclass
class Lane:
    """The rows of a process."""

    process: str
    name: str
    rows: list[Row] = field(default_factory=list)


@dataclass
class Timeline:
    """All spans of a program, in the order of time, and its messages."""

    spans: list[Span]
    arrows: list[Arrow]
    names: dict[str, str]  # of processes

    def between(self, start: float, end: float) -> "Timeline":
        """Return what happens at least partly between two times. An arrow is left out if one of its ends does not."""
        spans = [span for span in self.spans if span.end >= start and span.start <= end]
        kept = set(map(id, spans))
        arrows = [arrow for arrow in self.arrows if {id(arrow.source), id(arrow.target)} <= kept]
        return Timeline(spans, arrows, self.names)

    def lanes(self) -> list[Lane]:
        """Return a lane for each process, the driver first."""
        by_process: dict[str, list[Span]] = defaultdict(list)
        for span in self.spans:
            by_process[span.process].append(span)
        lanes = []
        for process, name in self.names.items():
            lanes.append(Lane(process, name, place_spans(by_process[process])))
        return lanes


def make_timeline(program: Program) -> Timeline:
    """Return the timeline of a program."""
    spans = spans_of_calls(program)
    spans += spans_of_tasks(program)
    arrows: list[Arrow] = []
    for message in program.messages:
        source = span_of_sent(message)
        spans.append(source)
        for received in message.received:
            target = span_of_received(received)
            spans.append(target)
            arrows.append(Arrow(source, target))
    spans.sort(key=lambda span: (span.start, -span.end))
    return Timeline(spans, arrows, name_processes(program))


def spans_of_calls(program: Program) -> list[Span]:
    """Return the calls of each thread, without those inside of another one."""
    threads: dict[tuple[str, int], list[Call]] = defaultdict(list)
    for call in program.recording.calls:
        threads[call.process, call.thread].append(call)
    spans: list[Span] = []
    for calls in threads.values():
        spans += map(span_of_call, outermost(calls))
    return spans


def span_of_call(call: Call) -> Span:
    return Span(
        process=call.process,
        thread=call.thread,
        kind="wait" if call.event in WAITING else "call",
        name=CALL_NAMES.get(call.event) or name_place(call.name),
        start=call.start,
        end=call.end,
        line=call.line,
    )


def spans_of_tasks(program: Program) -> list[Span]:
    """Return a span for each task that ran in a known process, and for the phases before and after its code."""
    spans: list[Span] = []
    for task in program.tasks.values():
        process = program.process_of(task)
        if process and task.execute and task.type != "DRIVER_TASK":
            call = program.submissions.get(task.task)
            spans += spans_of_task(task, process, call)
    return spans


def spans_of_task(task: Task, process: str, call: Call | None) -> list[Span]:
    """Return a span for each phase of a task that Ray knows. Its line is that of `call`, which submitted it."""
    name = name_place(task.name)
    line = call.line if call else ""
    phases = [
        ("task", name, task.execute),
        ("phase", f"{name} reads its arguments", task.deserialise),
        ("phase", f"{name} stores its results", task.store),
    ]
    spans = []
    for kind, text, times in phases:
        if times is not None:
            start, end = times
            spans.append(Span(process, 0, kind, text, start, end, line))
    return spans


def span_of_sent(message: Message) -> Span:
    sent = message.sent
    return Span(
        process=sent.process,
        thread=sent.thread,
        kind="send",
        name=f"serialise {sent.type} ({message.how})",
        start=sent.start,
        end=sent.end,
        line=message.call.line if message.call else sent.line,
        bytes=sent.bytes,
    )


def span_of_received(received: Received) -> Span:
    return Span(
        process=received.process,
        thread=received.thread,
        kind="read",
        name=f"deserialise {received.type}",
        start=received.start,
        end=received.end,
        bytes=received.bytes,
    )


def name_processes(program: Program) -> dict[str, str]:
    """Return the name of each process, the driver first: what it runs most, with a number from the second one on."""
    kinds = find_kinds(program)
    names: dict[str, str] = {}
    used: Counter[str] = Counter()
    processes = sorted(program.recording.processes, key=lambda process: process.role != DRIVER)
    for process in processes:
        most = kinds[process.process].most_common(1)
        kind = most[0][0] if most else "worker"
        if process.role == DRIVER:
            kind = DRIVER
        used[kind] += 1
        names[process.process] = f"{kind} {used[kind]}" if used[kind] > 1 else kind
    return names


def find_kinds(program: Program) -> dict[str, Counter[str]]:
    """Return how often each process ran the methods of a class or a task."""
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for task in program.tasks.values():
        process = program.process_of(task)
        kinds[process][class_of(task.name)] += 1
    for sent in program.recording.sent:
        kinds[sent.process][class_of(sent.by_name)] += 1
    return kinds


def class_of(name: str) -> str:
    return name_place(name).partition(".")[0]


def place_spans(spans: Iterable[Span]) -> list[Row]:
    """Return rows of spans that do not overlap: tasks first, then the calls of each thread, then its messages."""
    groups: dict[tuple[int, str], list[Span]] = defaultdict(list)
    for span in spans:
        groups[row_of(span)].append(span)
    threads = sorted({thread for thread, _ in groups if thread})
    rows: list[Row] = []
    for thread, name in sorted(groups):
        text = name
        if thread and len(threads) > 1:
            text += f" of thread {threads.index(thread) + 1}"
        rows += fill_rows(text, groups[thread, name])
    return rows


def row_of(span: Span) -> tuple[int, str]:
    """Return the thread and the kind of row of a span. Tasks and their phases have no thread."""
    if span.kind in ("task", "phase"):
        return 0, "tasks"
    if span.kind in ("send", "read"):
        return span.thread, "messages"
    return span.thread, "calls"


def fill_rows(name: str, spans: Iterable[Span]) -> list[Row]:
    """Return as few rows as hold these spans, each in the first row that is free."""
    rows: list[Row] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        free = [row for row in rows if row.end <= span.start]
        if free:
            free[0].spans.append(span)
        else:
            rows.append(Row(name, [span]))
    return rows
