# SPDX-License-Identifier: Apache-2.0
"""Find lines that make so many small calls that the calls themselves take the time.

Sources: "Anti-pattern: over-parallelizing with too fine-grained tasks harms speedup" in Ray's documentation, ray#21343,
and Ascend/ray-ascend#55 for messages of middling size. What a larger call still takes is left out of the savings: the
user's function, and the copy of the data.
"""

import math
from collections import defaultdict
from dataclasses import dataclass

from raymeter.causes.savings import middle, total
from raymeter.causes.waits import Gap, ReadyTimes, find_gaps
from raymeter.findings import Finding, Saving
from raymeter.profile.events import Call, Task
from raymeter.profile.program import TASK_DIGITS, Program
from raymeter.profile.returned import returns_put
from raymeter.profile.steps import Steps
from raymeter.units import format_bytes, format_milliseconds, significant

CAUSE = "many small calls"
MIN_CALLS = 100  # per step
BATCH = 50  # calls that become one
BATCHES_PER_CORE = 4  # that are left, so that all cores still work
MAX_TASK_SECONDS = 0.01  # of a task that is so short that the call is a large part of it
MAX_BYTES = 2**20  # of the messages of a call, in the mean; larger ones take the time themselves
COPY_BYTES_PER_SECOND = 4e9
AT_ONCE_SECONDS = 0.001  # between a call and its ray.get, in which the caller does nothing of note


@dataclass
class Line:
    """The calls of one line. Those that were only counted are in the weights of the others."""

    event: str
    line: str
    name: str
    calls: list[Call]

    def count(self, steps: Steps) -> float:
        """Return the calls per step."""
        calls = sum(call.weight for call in self.calls)
        return calls / steps.count


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each line with many short calls: of tasks and methods, ray.put, or ray.get of one object.

    A line of ray.get has none if most of its tasks are those of a finding, and one of ray.put has none if its task
    returns what it puts: that is a cause of its own.
    """
    finder = Finder(program, steps)
    lines = [line for line in finder.find_lines() if line.count(steps) >= MIN_CALLS]
    short = [line for line in lines if line.event == "call" and finder.is_short(line)]
    findings = [finder.make_call_finding(line) for line in short]
    explained = ids_of_tasks(short)  # their ray.get belongs to their submission
    for line in lines:
        is_small_put = line.event == "put" and finder.mean_bytes(line) < MAX_BYTES
        if is_small_put and not finder.is_returned(line):
            findings.append(finder.make_put_finding(line))
        if line.event == "get" and not finder.is_explained(line, explained):
            findings.append(finder.make_get_finding(line))
    return findings


def ids_of_tasks(lines: list[Line]) -> set[str]:
    """Return the id of each single task that these lines have submitted."""
    ids = set()
    for line in lines:
        for call in line.calls:
            ids.add(call.task)
    return ids


def say_bytes(line: Line) -> str:
    """Return the mean bytes of the small messages of a call; "" if none is known."""
    known = [call.small_bytes for call in line.calls if call.small_bytes]
    if not known:
        return ""
    size = sum(known) / len(known)
    return f", of {format_bytes(size)} each,"


def find_name(call: Call) -> str:
    """Return the name of what is called: a task, a method, or a function of Ray."""
    if call.event == "call":
        return call.name
    return f"ray.{call.event}"


def is_single(call: Call) -> bool:
    """Return whether a call submits one task or method, puts one object, or gets one."""
    if call.kind == "actor":
        return False
    if call.event == "get":
        return call.count == 1
    return call.event in ("call", "put")


def first_task(call: Call) -> str:
    """Return the task that made the first object of a ray.get."""
    first = call.objects[0]
    return first[:TASK_DIGITS]


def follows_at_once(call: Call, get: Call) -> bool:
    """Return whether a ray.get waits for a call right after it was submitted, as in `ray.get(actor.add.remote(1))`."""
    place = call.process, call.thread, call.by
    between = get.start - call.end
    return place == (get.process, get.thread, get.by) and 0 <= between < AT_ONCE_SECONDS


def gets_by_task(program: Program) -> dict[str, list[Call]]:
    """Return the calls of ray.get by the task of their first object."""
    gets: dict[str, list[Call]] = defaultdict(list)
    for call in program.recording.calls:
        if call.event == "get" and call.objects:
            task = first_task(call)
            gets[task].append(call)
    return gets


def sizes_of_messages(program: Program) -> dict[tuple[str, int], int]:
    """Return the bytes of each message, by its process and number."""
    sizes = {}
    for message in program.messages:
        sent = message.sent
        key = sent.process, sent.number
        sizes[key] = sent.bytes
    return sizes


def savings_of_phases(task: Task, process: str, share: float) -> list[Saving]:
    """Return a share of what a task takes before and after the user's function."""
    phases = {"deserialise": task.deserialise, "store": task.store}
    savings = []
    for part, phase in phases.items():
        if phase is None:
            continue
        start, end = phase
        seconds = share * (end - start)
        savings.append(Saving(process, 0, middle(phase), seconds, part))
    return savings


def saving_of_gap(gap: Gap, process: str, share: float) -> Saving:
    """Return a share of what Ray takes to begin a task that was waiting."""
    phase = gap.start, gap.end
    seconds = share * gap.seconds
    return Saving(process, 0, middle(phase), seconds, "dispatch")


class Finder:
    """Find the lines of a program with many small calls."""

    def __init__(self, program: Program, steps: Steps) -> None:
        self.program = program
        self.steps = steps
        self.ready = ReadyTimes(program)
        self.gaps = {gap.task: gap for gap in find_gaps(program)}
        self.gets = gets_by_task(program)
        self.sizes = sizes_of_messages(program)

    def find_lines(self) -> list[Line]:
        """Return the lines that submit tasks and methods, put objects, or get them one by one."""
        groups: dict[tuple[str, str, str], list[Call]] = defaultdict(list)
        for call in self.program.recording.calls:
            step = self.steps.of(call.start)
            if is_single(call) and step is not None:
                name = find_name(call)
                groups[call.event, call.line, name].append(call)
        lines = []
        for (event, line, name), calls in groups.items():
            lines.append(Line(event, line, name, calls))
        return lines

    def is_short(self, line: Line) -> bool:
        """Return whether the tasks of a line are short, and its messages small."""
        are_tasks_short = self.mean_task_seconds(line) < MAX_TASK_SECONDS
        are_messages_small = self.mean_bytes(line) < MAX_BYTES
        return are_tasks_short and are_messages_small

    def mean_task_seconds(self, line: Line) -> float:
        """Return how long the user's function ran in the mean; 0 if Ray does not know it of any task."""
        times = []
        for call in line.calls:
            seconds = self.task_seconds(call.task)
            if seconds is not None:
                times.append(seconds)
        if not times:
            return 0.0
        return sum(times) / len(times)

    def task_seconds(self, name: str) -> float | None:
        """Return how long the user's function of a task ran; None if Ray does not know it."""
        task = self.program.tasks.get(name)
        if task is None or task.execute is None:
            return None
        start, end = task.execute
        return end - start

    def bytes_of(self, call: Call) -> int:
        """Return the bytes of the messages of a call."""
        size = 0
        for number in call.messages:
            key = call.process, number
            size += self.sizes.get(key, 0)
        return size

    def mean_bytes(self, line: Line) -> float:
        """Return the mean bytes of the messages of a call, over the calls of a line of which all messages are known.

        Without such a call, it is infinity if messages were left out, which only large ones are, and else 0.
        """
        sizes = []
        for call in line.calls:
            is_known = not call.is_restored and not call.left_out_messages
            if is_known:
                sizes.append(self.bytes_of(call))
        if sizes:
            return sum(sizes) / len(sizes)
        is_unknown = any(call.left_out_messages for call in line.calls)
        return math.inf if is_unknown else 0.0

    def is_explained(self, line: Line, tasks: set[str]) -> bool:
        """Return whether most of the calls of ray.get wait for tasks of which there are too many anyway."""
        known = [first_task(call) for call in line.calls if call.objects]
        ours = [task for task in known if task in tasks]
        return 2 * len(ours) > len(known)

    def is_returned(self, line: Line) -> bool:
        """Return whether a line of ray.put is in the function of a task, and that returns the reference."""
        _, _, function = line.calls[0].by_name.rpartition(".")
        return returns_put(line.line, function, self.program.recording.start)

    def batch_of(self, line: Line) -> int:
        """Return how many calls may become one, with enough of them left for all cores."""
        cores = max(process.cores for process in self.program.recording.processes)
        min_batches = BATCHES_PER_CORE * cores
        max_batch = int(line.count(self.steps) / min_batches)
        return max(2, min(BATCH, max_batch))

    def saved_share(self, line: Line) -> float:
        """Return the share of the calls of a line that are no more there if each is for a batch."""
        batch = self.batch_of(line)
        return 1 - 1 / batch

    def own_seconds(self, call: Call) -> float:
        """Return what a call takes without the recorder, and without copying its messages."""
        copy = self.bytes_of(call) / COPY_BYTES_PER_SECOND
        return max(0.0, call.seconds - call.own_seconds - copy)

    def saving_of_call(self, call: Call, factor: float) -> Saving:
        """Return what a call takes itself, times a factor."""
        seconds = factor * self.own_seconds(call)
        return Saving(call.process, call.thread, call.start, seconds, "work")

    def ready_time(self, call: Call) -> float:
        """Return when the objects of a ray.get were ready; the start of the call if that is not known."""
        times = [self.ready.of(item) for item in call.objects]
        known = [time for time in times if time is not None]
        return max([call.start, *known])

    def saving_of_get(self, call: Call, factor: float) -> Saving:
        """Return what a ray.get takes after its objects were ready, times a factor."""
        ready = self.ready_time(call)
        earliest = max(call.start, ready)
        begin = min(call.end, earliest)
        work = max(0.0, call.end - begin - call.own_seconds)
        return Saving(call.process, call.thread, begin, factor * work, "work")

    def savings_of_submission(self, call: Call, share: float) -> list[Saving]:
        """Return a share of what a call takes, of what Ray takes for its task, and of each ray.get of its result.

        The weight of the call counts for the call, and for reading the arguments and storing the result of its task:
        Ray has forgotten the tasks of the others. The gap before the task is as it was recorded, and may contain such
        tasks already. A ray.get of one object has its own weight, because it was counted apart; one of many objects is
        as it was recorded.
        """
        share_of_all = share * call.weight
        savings = [self.saving_of_call(call, share_of_all)]
        task = self.program.tasks.get(call.task)
        if task is not None:
            process = self.program.process_of(task)
            savings += savings_of_phases(task, process, share_of_all)
            gap = self.gaps.get(task.task)
            if gap is not None:
                savings.append(saving_of_gap(gap, process, share))
        for get in self.gets.get(call.task, []):
            get_share = share
            if get.count == 1:
                get_share *= get.weight
            if get.weight > 1 and follows_at_once(call, get):
                savings.append(self.saving_of_answer(get, get_share))
            else:
                savings.append(self.saving_of_get(get, get_share))
        return savings

    def saving_of_answer(self, get: Call, factor: float) -> Saving:
        """Return what a caller waits for the answer of a small call without the user's function, times a factor.

        The calls for which this one stands are not in the graph, so nothing else there becomes shorter with them.
        """
        running = self.task_seconds(first_task(get)) or 0.0
        seconds = max(0.0, get.seconds - get.own_seconds - running)
        return Saving(get.process, get.thread, get.start, factor * seconds, "answer")

    def make_call_finding(self, line: Line) -> Finding:
        """Return the finding for small calls of tasks or methods; `fewer_tasks` has the share of each that is saved."""
        batch = self.batch_of(line)
        share = self.saved_share(line)
        savings = []
        for call in line.calls:
            savings += self.savings_of_submission(call, share)
        what = f"small calls of {line.name}"
        change = (
            f"Give each call a batch of {batch} or more items, if they do not need each other's results: a call of Ray "
            "takes about as long whatever it does."
        )
        finding = self.make_finding(line, savings, what, change)
        finding.fewer_tasks = {call.task: share for call in line.calls}
        return finding

    def make_put_finding(self, line: Line) -> Finding:
        share = self.saved_share(line)
        savings = [self.saving_of_call(call, share * call.weight) for call in line.calls]
        what = "calls of ray.put with small values"
        change = (
            "Put them together into one object (a list, a dict or an array), or pass small values as arguments "
            "themselves."
        )
        return self.make_finding(line, savings, what, change)

    def make_get_finding(self, line: Line) -> Finding:
        share = self.saved_share(line)
        savings = [self.saving_of_get(call, share * call.weight) for call in line.calls]
        what = "calls of ray.get with one reference"
        change = "Collect the references first, and call ray.get once with the list of them."
        return self.make_finding(line, savings, what, change)

    def make_finding(self, line: Line, savings: list[Saving], what: str, change: str) -> Finding:
        """Return the finding of a line; `what` says in its title which calls these are.

        The title has the time of the calls alone. `seconds` also has what Ray saves around their tasks.
        """
        steps = self.steps.count
        calls = significant(line.count(self.steps))
        work = [saving for saving in savings if saving.part == "work"]
        work_per_step = format_milliseconds(total(work) / steps)
        return Finding(
            cause=CAUSE,
            title=f"{calls} {what}{say_bytes(line)} per step take {work_per_step} themselves",
            line=line.line,
            change=change,
            seconds=total(savings) / steps,
            savings=savings,
        )
