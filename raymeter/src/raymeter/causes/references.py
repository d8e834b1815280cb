"""Find messages that hold so many references that registering each of them takes the time.

Sources: ray-project/ray#17803, ray-project/ray#21430. The sender registers each reference of a message, and each reader
tells the owner of each object that it may use it. A reference to the list of them is only one.
"""

from statistics import mean

from raymeter.causes.savings import CALL_SECONDS, save_sending, total
from raymeter.causes.waits import find_gaps, group_by_line
from raymeter.findings import Finding, Saving
from raymeter.profile.events import Call
from raymeter.profile.groups import Group, group_messages, in_steps
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.units import format_milliseconds, significant

CAUSE = "many references in one message"
MIN_REFERENCES = 50
MAX_BYTES_PER_REFERENCE = 1_000  # of a message; in others, it is the data that takes the time
CHANGE = (
    "Pass one reference to the list, `nested = ray.put(references)`, as long as the list stays the same, or make fewer "
    "objects, each of which holds many values."
)


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each line, or task with results, whose messages hold many references."""
    calls = [call for call in program.recording.calls if call.contained >= MIN_REFERENCES]
    finder = Finder(program, steps)
    findings = [
        finder.make_call_finding(group)
        for group in group_by_line(calls, steps).values()
        if finder.is_about_references(group)
    ]
    results = [message for message in program.messages if message.sent.references >= MIN_REFERENCES]
    by_task = [message for message in results if message.call is None]
    groups = group_messages(in_steps(by_task, steps))
    return findings + [finder.make_result_finding(group) for group in groups]


class Finder:
    """Make the findings of a program."""

    def __init__(self, program: Program, steps: Steps) -> None:
        self.program = program
        self.steps = steps
        self.sizes: dict[tuple[str, int], int] = {}
        for message in program.messages:
            self.sizes[message.sent.process, message.sent.number] = message.sent.bytes
        self.processes: dict[int, str] = {}
        for process in program.recording.processes:
            self.processes[process.pid] = process.process

    def is_about_references(self, calls: list[Call]) -> bool:
        """Return whether the messages of these calls hold little else."""
        size = 0
        for call in calls:
            size += sum(self.sizes.get((call.process, number), 0) for number in call.messages)
        return size <= MAX_BYTES_PER_REFERENCE * sum(call.contained for call in calls)

    def make_call_finding(self, calls: list[Call]) -> Finding:
        savings = [save_call(call) for call in calls]
        tasks = {call.task for call in calls if call.task}
        savings += self.save_readers(tasks)
        held = mean(call.contained for call in calls)
        what = calls[0].name or "ray.put"
        return self.finish(calls[0].line, len(calls), held, what, savings)

    def make_result_finding(self, group: Group) -> Finding:
        savings = []
        for message in group.messages:
            savings += save_sending(self.program, message)
        held = mean(message.sent.references for message in group.messages)
        what = f"results of {group.sender}"
        return self.finish(group.line, len(group.messages), held, what, savings)

    def save_readers(self, tasks: set[str]) -> list[Saving]:
        """Return the time in which the tasks with these messages read them, and in which Ray handed them over."""
        savings = []
        for name in tasks:
            task = self.program.tasks.get(name)
            if task is not None and task.deserialise is not None:
                start, end = task.deserialise
                process = self.processes.get(task.pid, "")
                middle = (start + end) / 2
                savings.append(Saving(process, 0, middle, end - start, "deserialise"))
        for gap in find_gaps(self.program):
            if gap.task in tasks:
                middle = (gap.start + gap.end) / 2
                savings.append(Saving(gap.process, 0, middle, gap.seconds, "dispatch"))
        return savings

    def finish(
        self, line: str, count: int, held: float, what: str, savings: list[Saving]
    ) -> Finding:
        per_step = significant(count / self.steps.count, 2)
        seconds = total(savings) / self.steps.count
        return Finding(
            cause=CAUSE,
            title=f"{per_step} messages per step ({what}) hold {significant(held, 2)} references each, which Ray "
            f"registers one by one: {format_milliseconds(seconds)} of work",
            line=line,
            change=CHANGE,
            seconds=seconds,
            savings=savings,
        )


def save_call(call: Call) -> Saving:
    """Return what a call takes longer than one with a small message."""
    seconds = max(0.0, call.seconds - call.own_seconds - CALL_SECONDS)
    return Saving(call.process, call.thread, call.start + call.seconds / 2, seconds, "call")
