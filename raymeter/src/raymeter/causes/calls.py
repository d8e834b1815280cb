"""Find lines that make so many small calls that the calls themselves take the time.

Sources: "Anti-pattern: over-parallelizing with too fine-grained tasks harms speedup" in Ray's documentation, ray#21343,
and Ascend/ray-ascend#55 for messages of middling size. What a larger call still takes is left out of the savings: the
user's function, and the copy of the data.
"""

from collections import defaultdict
from dataclasses import dataclass

from raymeter.causes.savings import total
from raymeter.causes.waits import Counts, ReadyTimes, find_gaps
from raymeter.findings import Finding, Saving
from raymeter.profile.events import Call, Task
from raymeter.profile.program import TASK_DIGITS, Program
from raymeter.profile.steps import Steps
from raymeter.units import format_milliseconds, significant

CAUSE = "many small calls"
MIN_CALLS = 100  # per step
BATCH = 50  # calls that become one
BATCHES_PER_CORE = 4  # that are left, so that all cores still work
MAX_TASK_SECONDS = 0.01  # of a task that is so short that the call is a large part of it
MAX_BYTES = 2**20  # of the messages of a call, in the mean; larger ones take the time themselves
COPY_BYTES_PER_SECOND = 4e9


@dataclass
class Line:
    """The calls of one line, some of which may only have been counted. `factor` is how many there were per call."""

    event: str
    line: str
    name: str
    calls: list[Call]
    factor: float

    def count(self, steps: Steps) -> float:
        """Return the calls per step."""
        return self.factor * len(self.calls) / steps.count


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each line with many short calls: of tasks and methods, ray.put, or ray.get of one object."""
    finder = Finder(program, steps)
    lines = [line for line in finder.find_lines() if line.count(steps) >= MIN_CALLS]
    findings = []
    explained: set[str] = set()  # tasks whose ray.get belongs to their submission
    for line in lines:
        if line.event == "call" and finder.is_short(line):
            findings.append(finder.make_call_finding(line))
            explained.update(call.task for call in line.calls)
    for line in lines:
        if line.event == "put" and finder.mean_bytes(line) < MAX_BYTES:
            findings.append(finder.make_put_finding(line))
        if line.event == "get" and not finder.is_explained(line, explained):
            findings.append(finder.make_get_finding(line))
    return findings


def find_name(call: Call) -> str:
    return call.name if call.event == "call" else f"ray.{call.event}"


class Finder:
    """Find the lines of a program with many small calls."""

    def __init__(self, program: Program, steps: Steps) -> None:
        self.program = program
        self.steps = steps
        self.counts = Counts(program)
        self.ready = ReadyTimes(program)
        self.gaps = {gap.task: gap for gap in find_gaps(program)}
        self.gets: dict[str, list[Call]] = defaultdict(list)  # by the task of the first object
        self.sizes = {
            (message.sent.process, message.sent.number): message.sent.bytes
            for message in program.messages
        }
        for call in program.recording.calls:
            if call.event == "get" and call.objects:
                self.gets[call.objects[0][:TASK_DIGITS]].append(call)

    def find_lines(self) -> list[Line]:
        """Return the lines that submit tasks and methods, put objects, or get them one by one."""
        groups: dict[tuple[str, str, str], list[Call]] = defaultdict(list)
        for call in self.program.recording.calls:
            is_single = call.event in ("call", "put") or (call.event == "get" and call.count == 1)
            is_actor = call.kind == "actor"
            if is_single and not is_actor and self.steps.of(call.start) is not None:
                groups[call.event, call.line, find_name(call)].append(call)
        lines = []
        for (event, line, name), calls in groups.items():
            lines.append(Line(event, line, name, calls, self.counts.factor(event, line)))
        return lines

    def is_short(self, line: Line) -> bool:
        """Return whether the tasks of a line are short, and its messages small."""
        times = [seconds for call in line.calls if (seconds := self.task_seconds(call)) is not None]
        mean_seconds = sum(times) / len(times) if times else 0.0
        return mean_seconds < MAX_TASK_SECONDS and self.mean_bytes(line) < MAX_BYTES

    def task_seconds(self, call: Call) -> float | None:
        """Return how long the user's function ran; None if Ray does not know it."""
        task = self.program.tasks.get(call.task)
        if task is None or task.execute is None:
            return None
        start, end = task.execute
        return end - start

    def bytes_of(self, call: Call) -> int:
        return sum(self.sizes.get((call.process, number), 0) for number in call.messages)

    def mean_bytes(self, line: Line) -> float:
        return sum(self.bytes_of(call) for call in line.calls) / len(line.calls)

    def is_explained(self, line: Line, tasks: set[str]) -> bool:
        """Return whether most of the calls of ray.get wait for tasks of which there are too many anyway."""
        known = [call for call in line.calls if call.objects]
        ours = [call for call in known if call.objects[0][:TASK_DIGITS] in tasks]
        return 2 * len(ours) > len(known)

    def batch_of(self, line: Line) -> int:
        """Return how many calls may become one, with enough of them left for all cores."""
        cores = max(process.cores for process in self.program.recording.processes)
        return max(2, min(BATCH, int(line.count(self.steps) / (BATCHES_PER_CORE * cores))))

    def own_seconds(self, call: Call) -> float:
        """Return what a call takes without the recorder, and without copying its messages."""
        copy = self.bytes_of(call) / COPY_BYTES_PER_SECOND
        return max(0.0, call.seconds - call.own_seconds - copy)

    def save_call(self, call: Call, factor: float) -> Saving:
        seconds = factor * self.own_seconds(call)
        return Saving(call.process, call.thread, call.start, seconds, "work")

    def save_get(self, call: Call, factor: float) -> Saving:
        """Return what a ray.get takes after its first object was ready."""
        time = self.ready.of(call.objects[0]) if call.objects else None
        begin = min(call.end, max(call.start, time or call.start))
        seconds = factor * max(0.0, call.end - begin - call.own_seconds)
        return Saving(call.process, call.thread, begin, seconds, "work")

    def save_task(self, task: Task, process: str, share: float) -> list[Saving]:
        """Return what Ray takes to begin and to end a task."""
        savings = []
        for name, phase in (("deserialise", task.deserialise), ("store", task.store)):
            if phase is not None:
                start, end = phase
                savings.append(Saving(process, 0, (start + end) / 2, share * (end - start), name))
        gap = self.gaps.get(task.task)
        if gap is not None:
            seconds = share * gap.seconds
            savings.append(Saving(process, 0, (gap.start + gap.end) / 2, seconds, "dispatch"))
        return savings

    def make_call_finding(self, line: Line) -> Finding:
        batch = self.batch_of(line)
        share = 1 - 1 / batch
        names = {process.pid: process.process for process in self.program.recording.processes}
        savings = []
        for call in line.calls:
            savings.append(self.save_call(call, share * line.factor))
            task = self.program.tasks.get(call.task)
            if task is not None:
                savings += self.save_task(task, names.get(task.pid, ""), share)
            for get in self.gets.get(call.task, []):
                savings.append(self.save_get(get, share * line.factor if get.count == 1 else share))
        change = (
            f"Give each call a batch of {batch} or more items, if they do not need each other's results: a call of Ray "
            "takes about as long whatever it does."
        )
        return self.finish(line, savings, f"small calls of {line.name}", change)

    def make_put_finding(self, line: Line) -> Finding:
        share = 1 - 1 / self.batch_of(line)
        savings = [self.save_call(call, share * line.factor) for call in line.calls]
        change = (
            "Put them together into one object (a list, a dict or an array), or pass small values as arguments "
            "themselves."
        )
        return self.finish(line, savings, "calls of ray.put with small values", change)

    def make_get_finding(self, line: Line) -> Finding:
        share = 1 - 1 / self.batch_of(line)
        savings = [self.save_get(call, share * line.factor) for call in line.calls]
        change = "Collect the references first, and call ray.get once with the list of them."
        return self.finish(line, savings, "calls of ray.get with one reference", change)

    def finish(self, line: Line, savings: list[Saving], what: str, change: str) -> Finding:
        count = significant(line.count(self.steps))
        own = sum(saving.seconds for saving in savings if saving.part == "work")
        seconds = format_milliseconds(own / self.steps.count)
        return Finding(
            cause=CAUSE,
            title=f"{count} {what} per step take {seconds} themselves",
            line=line.line,
            change=change,
            seconds=total(savings) / self.steps.count,
            savings=savings,
        )
