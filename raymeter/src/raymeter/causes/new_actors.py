# SPDX-License-Identifier: Apache-2.0
"""Find actors that are made in each step, and used in no other one.

Each of them gets a worker process, which starts, imports modules and runs `__init__`: "Actors" in Ray's documentation
("When a new actor is instantiated, a new worker is created").
"""

import ast
from collections import defaultdict

from raymeter.causes.kept_actors import KeptActors
from raymeter.causes.new_environments import is_again_and_again, save_start
from raymeter.causes.savings import middle, total
from raymeter.findings import Finding, Saving
from raymeter.profile.effects import is_same_each_time
from raymeter.profile.events import Call, Task
from raymeter.profile.program import Program
from raymeter.profile.starts import CREATION, Start, WarmReading, find_first_methods, find_starts
from raymeter.profile.steps import Steps
from raymeter.profile.submitted_with import class_of, has_same_arguments, submissions_in
from raymeter.units import format_milliseconds, significant

CAUSE = "actors made in each step"
CHANGE = (
    "Make the actors once, before the loop, and call their methods in each step. If they must begin anew, give them a "
    "method that does so."
)


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each line that makes actors in most steps, which no other step needs.

    Return [] if it is not sure that the actors of all these lines can stay, with all else that runs.
    """
    by_line: dict[str, list[Call]] = defaultdict(list)
    for call in program.recording.calls:
        is_in_step = steps.of(call.start) is not None
        if call.kind == "actor" and call.line and is_in_step:
            by_line[call.line].append(call)
    finder = Finder(program, steps)
    kept = dict(by_line)
    for line, calls in by_line.items():
        if not finder.are_used_once(line, calls):
            del kept[line]
    actors = KeptActors(program, steps, kept)
    if not actors.have_room():
        return []
    findings = []
    for line, calls in kept.items():
        finding = finder.find_at_line(line, calls)
        findings.append(finding)
    return findings


class Finder:
    """Judge the lines that make actors.

    What an actor needs to begin must be sent in any case, so a call that sends data is not saved.
    """

    def __init__(self, program: Program, steps: Steps) -> None:
        self.program = program
        self.steps = steps
        self.starts = find_starts(program)
        self.reading = WarmReading(program)
        self.first_methods = find_first_methods(program)
        self.methods: dict[str, list[Task]] = defaultdict(list)  # by actor
        self.creations: dict[str, Task] = {}
        for task in program.tasks.values():
            if task.type == CREATION:
                self.creations[task.actor] = task
            elif task.actor:
                self.methods[task.actor].append(task)

    def are_used_once(self, line: str, calls: list[Call]) -> bool:
        """Return whether the actors of a line are made in most steps, and are needed in no other one."""
        numbers = {self.steps.of(call.start) for call in calls}
        made = submissions_in(line, self.program.recording.start)
        if not is_again_and_again(numbers, self.steps) or not made:
            return False  # a library makes them, or they are made once, or now and then
        return all(self.could_be_kept(call) for call in calls)

    def find_at_line(self, line: str, calls: list[Call]) -> Finding:
        """Return what it saves to keep the actors of a line from one step to the next."""
        made = submissions_in(line, self.program.recording.start)
        is_same = all(self.does_the_same(submission, line) for submission in made)
        savings: list[Saving] = []
        for call in calls:
            of_actor = self.save_actor(call, is_same)
            savings += of_actor
        return self.make_finding(line, calls, savings, is_same)

    def does_the_same(self, submission: ast.Call, line: str) -> bool:
        """Return whether `__init__` has the same arguments each time, and makes the same of them as what is kept."""
        start = self.program.recording.start
        defined = class_of(submission, line, start)
        return is_same_each_time(defined, start) and has_same_arguments(submission)

    def could_be_kept(self, call: Call) -> bool:
        """Return whether an actor is used in the step that has made it, in no other one, and does not fail."""
        tasks = self.methods[call.actor]
        if any(task.failed for task in tasks):
            return False
        number = self.steps.of(call.start)
        submitted = [task.submitted for task in tasks if task.submitted]
        return bool(submitted) and all(self.steps.of(time) == number for time in submitted)

    def save_actor(self, call: Call, is_same: bool) -> list[Saving]:
        """Return what is saved if an actor is there already: `__init__`, too, if it is always the same."""
        savings: list[Saving] = []
        sends_data = bool(call.messages or call.left_out_messages)
        if not sends_data:
            moment = call.start + call.seconds / 2
            savings.append(Saving(call.process, call.thread, moment, call.seconds, "call"))
        start = self.start_of(call)
        if start is None:
            return savings
        savings += save_start(start, self.reading)
        if is_same and start.task.execute is not None:
            begin, end = start.task.execute
            moment = middle((begin, end))
            savings.append(Saving(start.process, 0, moment, end - begin, "execute"))
        first = self.first_methods.get(call.actor)
        if first is not None and first.deserialise is not None:
            seconds = self.reading.lost_seconds(first)
            moment = middle(first.deserialise)
            savings.append(Saving(start.process, 0, moment, seconds, "deserialise"))
        return savings

    def start_of(self, call: Call) -> Start | None:
        """Return the creation of an actor; None if Ray does not know its times."""
        creation = self.creations.get(call.actor)
        if creation is None:
            return None
        return self.starts.get(creation.task)

    def init_seconds(self, calls: list[Call]) -> float:
        """Return how long `__init__` runs per step."""
        seconds = 0.0
        for call in calls:
            start = self.start_of(call)
            if start is not None and start.task.execute is not None:
                begin, end = start.task.execute
                seconds += end - begin
        return seconds / self.steps.count

    def make_finding(
        self, line: str, calls: list[Call], savings: list[Saving], is_same: bool
    ) -> Finding:
        """Return the finding for the calls that make actors in a line, of which there is at least one.

        is_same: each `__init__` surely does the same, so that it is in `savings`, too.
        """
        seconds = total(savings) / self.steps.count
        per_step = significant(len(calls) / self.steps.count, 2)
        name = calls[0].name.removesuffix(".__init__")
        actors = KeptActors(self.program, self.steps, {line: calls})
        price = actors.price
        if not is_same:
            taken = format_milliseconds(self.init_seconds(calls))
            price += f" What __init__ does, {taken}, is not in this number, since it may differ,"
            price += " read what has changed, or be needed to begin anew."
        return Finding(
            cause=CAUSE,
            title=f"Actors of {name} are made ({per_step} per step), and used in that step only: "
            f"{format_milliseconds(seconds)} of work until they can begin",
            line=line,
            change=CHANGE,
            seconds=seconds,
            savings=savings,
            price=price,
        )
