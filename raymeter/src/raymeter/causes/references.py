# SPDX-License-Identifier: Apache-2.0
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
    finder = Finder(program, steps)
    return finder.find_in_calls() + finder.find_in_results()


class Finder:
    """Make the findings of a program."""

    def __init__(self, program: Program, steps: Steps) -> None:
        self.program = program
        self.steps = steps
        self.sizes: dict[tuple[str, int], int] = {}
        for message in program.messages:
            sent = message.sent
            self.sizes[sent.process, sent.number] = sent.bytes

    def find_in_calls(self) -> list[Finding]:
        """Return a finding for each line whose calls send many references and little else."""
        recorded = self.program.recording.calls
        calls = [call for call in recorded if call.contained >= MIN_REFERENCES]
        by_line = group_by_line(calls, self.steps)
        findings = []
        for group in by_line.values():
            if self.is_about_references(group):
                finding = self.make_call_finding(group)
                findings.append(finding)
        return findings

    def find_in_results(self) -> list[Finding]:
        """Return a finding for each task whose results hold many references."""
        messages = [message for message in self.program.messages if message.call is None]
        results = [message for message in messages if message.sent.references >= MIN_REFERENCES]
        during_steps = in_steps(results, self.steps)
        groups = group_messages(during_steps)
        return [self.make_result_finding(group) for group in groups]

    def is_about_references(self, calls: list[Call]) -> bool:
        """Return whether the messages of these calls hold little else."""
        size = 0
        references = 0
        for call in calls:
            references += call.contained
            for number in call.messages:
                size += self.sizes.get((call.process, number), 0)
        return size <= MAX_BYTES_PER_REFERENCE * references

    def make_call_finding(self, calls: list[Call]) -> Finding:
        tasks = {call.task for call in calls if call.task}
        savings = [save_call(call) for call in calls]
        savings += self.save_reading(tasks)
        savings += self.save_dispatch(tasks)
        held = mean(call.contained for call in calls)
        first = calls[0]
        what = first.name or "ray.put"
        return self.make_finding(first.line, len(calls), held, what, savings)

    def make_result_finding(self, group: Group) -> Finding:
        messages = group.messages
        savings = []
        for message in messages:
            savings += save_sending(self.program, message)
        held = mean(message.sent.references for message in messages)
        what = f"results of {group.sender}"
        return self.make_finding(group.line, len(messages), held, what, savings)

    def save_reading(self, tasks: set[str]) -> list[Saving]:
        """Return the time in which the tasks with these messages read them; tasks without known times are left out."""
        savings = []
        for name in tasks:
            task = self.program.tasks.get(name)
            if task is None or task.deserialise is None:
                continue
            start, end = task.deserialise
            middle = (start + end) / 2
            seconds = end - start
            process = self.program.process_of(task)
            saving = Saving(process, 0, middle, seconds, "deserialise")
            savings.append(saving)
        return savings

    def save_dispatch(self, tasks: set[str]) -> list[Saving]:
        """Return the time in which Ray handed the tasks with these messages over."""
        savings = []
        for gap in find_gaps(self.program):
            if gap.task in tasks:
                middle = (gap.start + gap.end) / 2
                saving = Saving(gap.process, 0, middle, gap.seconds, "dispatch")
                savings.append(saving)
        return savings

    def make_finding(
        self, line: str, count: int, held: float, what: str, savings: list[Saving]
    ) -> Finding:
        """Return the finding for so many messages of all steps, each with so many references on average."""
        per_step = significant(count / self.steps.count, 2)
        references = significant(held, 2)
        seconds = total(savings) / self.steps.count
        work = format_milliseconds(seconds)
        return Finding(
            cause=CAUSE,
            title=f"{per_step} messages per step ({what}) hold {references} references each, which Ray "
            f"registers one by one: {work} of work",
            line=line,
            change=CHANGE,
            seconds=seconds,
            savings=savings,
        )


def save_call(call: Call) -> Saving:
    """Return what a call takes longer than one with a small message."""
    needed = call.seconds - call.own_seconds - CALL_SECONDS
    seconds = max(0.0, needed)
    middle = call.start + call.seconds / 2
    return Saving(call.process, call.thread, middle, seconds, "call")
