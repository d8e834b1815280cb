# SPDX-License-Identifier: Apache-2.0
"""Find loops that wait for one task after the other, although the tasks may not need each other.

Sources: "Anti-pattern: calling ray.get in a loop harms parallelism" in Ray's documentation, and reports such as
ray#25448. What a change gains is limited by the actors, by the CPUs and the other resources that Ray has for tasks,
and by the cores, as far as the tasks compute. Nothing is said of tasks whose memory would not fit at the same time.
"""

from collections import defaultdict
from dataclasses import dataclass

from raymeter.causes.capacity import Capacity
from raymeter.causes.savings import total
from raymeter.causes.waits import Lane, group_by_lane
from raymeter.causes.work_of_tasks import WorkOfTasks
from raymeter.findings import Finding, Saving
from raymeter.profile.events import Call, Task
from raymeter.profile.one_at_a_time import has_one_task_each
from raymeter.profile.program import TASK_DIGITS, Program
from raymeter.profile.source_code import loops_around
from raymeter.profile.steps import Steps
from raymeter.units import format_milliseconds, significant

CAUSE = "one task at a time"
CLOCK_SECONDS = 0.001  # by which the clocks of two events may differ
MIN_TASKS = 2  # per step that could run at the same time
MIN_GAIN = 0.1  # of the time of tasks, that is saved if they run at the same time
CONDITION = (
    "If these tasks do not need each other, submit all of them first, and call ray.get once with the list of their "
    "references."
)
MAY_NEED = "it saves less, or nothing, if a task needs the result of an earlier one: the code does not show it."
LIMIT = "it saves less if each list has few tasks: where one ends and the next one begins was not recorded."


@dataclass(frozen=True)
class Wait:
    """A call that waits for one task."""

    call: Call
    task: Task


@dataclass(frozen=True)
class Batch:
    """Tasks that one thread runs one after the other."""

    waits: list[Wait]

    @property
    def tasks(self) -> list[Task]:
        return [wait.task for wait in self.waits]

    @property
    def seconds(self) -> float:
        return sum(seconds_of(task) for task in self.tasks)

    @property
    def least_seconds(self) -> float:
        """Return how long the longest task takes, or the tasks of one actor, which runs one after the other."""
        by_actor: dict[str, float] = defaultdict(float)
        for task in self.tasks:
            place = task.actor or task.task
            by_actor[place] += seconds_of(task)
        return max(by_actor.values())


def seconds_of(task: Task) -> float:
    """Return how long a task ran."""
    if task.execute is None:
        return 0.0
    start, end = task.execute
    return end - start


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each line that waits for one task after the other."""
    gets = [call for call in program.recording.calls if call.event == "get"]
    of_one = [call for call in gets if call.count == 1]
    by_line: dict[str, dict[Lane, list[Call]]] = defaultdict(dict)
    for lane, calls in group_by_lane(of_one, steps).items():
        _, _, _, line = lane
        by_line[line][lane] = calls
    finder = Finder(program, steps)
    findings = []
    for line, lanes in by_line.items():
        finding = finder.find_at_line(line, lanes)
        if finding is not None:
            findings.append(finding)
    return findings


class Finder:
    """Judge the waits of each line."""

    def __init__(self, program: Program, steps: Steps) -> None:
        self.program = program
        self.steps = steps
        self.work = WorkOfTasks(program)
        self.capacity = Capacity(program)

    def find_at_line(self, line: str, lanes: dict[Lane, list[Call]]) -> Finding | None:
        """Return a finding if tasks of a step could run at the same time, or those of several steps.

        None if the code shows that a task needs the result before it, if the tasks are few, or if little is gained.
        """
        needs_last = self.needs_last_pass(line)
        if needs_last:
            return None
        is_sure = needs_last is False
        if self.is_alone(list(lanes)):
            (calls,) = lanes.values()
            return self.find_among_steps(calls, is_sure)
        by_step: dict[int, list[Batch]] = defaultdict(list)
        count = 0
        for calls in lanes.values():
            for step, batch in self.split(calls, is_sure):
                by_step[step].append(batch)
                count += len(batch.tasks)
        if count / self.steps.count < MIN_TASKS:
            return None
        finding = self.make_finding(line, list(by_step.values()))
        if finding is not None and not is_sure:
            finding.is_limit = True
            finding.price = MAY_NEED
        return finding

    def needs_last_pass(self, line: str) -> bool | None:
        """Return whether a task needs the result that the same line got before it, as the code of the program shows.

        True: the innermost loop around the line passes a result on to its next pass. False: neither this loop does,
        nor any other one inside of a step. None: the code does not show it, or there is no loop, or no code.
        """
        loops = loops_around(line, self.program.recording.start)
        if not loops:
            return None
        innermost, *outer = loops
        needs_last = innermost.needs_last_pass(line)
        if needs_last is not False:
            return needs_last
        for loop in outer:
            is_loop_of_steps = loop.contains(self.steps.line)
            if not is_loop_of_steps and loop.needs_last_pass(line) is not False:
                return None
        return False

    def split(self, calls: list[Call], is_sure: bool) -> list[tuple[int, Batch]]:
        """Return the tasks of each step for which a thread waits one after the other, if there are at least two.

        The code of a loop shows nothing about the next run of its function.
        """
        by_run: dict[tuple[int, int], list[Wait]] = defaultdict(list)
        for wait in serial_waits(self.program, calls, is_sure):
            frames = wait.call.frames if is_sure else []
            run = frames[0] if frames else 0
            step = self.steps.of(wait.call.start)
            if step is not None:
                by_run[step, run].append(wait)
        batches = []
        for (step, _), waits in by_run.items():
            if len(waits) >= MIN_TASKS:
                batches.append((step, Batch(waits)))
        return batches

    def is_alone(self, lanes: list[Lane]) -> bool:
        """Return whether each step is one task and nothing else, so that tasks of several steps may be independent."""
        steps = self.steps
        if len(lanes) != 1 or steps.is_whole_program:
            return False
        process, thread, _, _ = lanes[0]
        if (process, thread) != (steps.process, steps.thread):
            return False
        own = calls_of_steps(self.program, steps)
        return has_one_task_each(own, steps.count)

    def find_among_steps(self, calls: list[Call], is_sure: bool) -> Finding | None:
        """Return a finding if the tasks of several steps could run at the same time; None if they call methods.

        If the code does not show it, there is no saving, because they may need each other.
        """
        batch = Batch(serial_waits(self.program, calls, is_sure))
        if len(batch.waits) < MIN_TASKS or self.share_actors(batch.tasks):
            return None
        line = calls[0].line
        finding = self.make_finding(line, [[batch]])
        if finding is None:
            return None
        name = batch.tasks[0].name
        finding.title = f"Each step is one {name}, which begins when the last one has ended"
        if is_sure:
            finding.is_limit = True
            finding.price = LIMIT
            return finding
        finding.savings = []
        finding.seconds = 0.0
        return finding

    def share_actors(self, tasks: list[Task]) -> bool:
        """Return whether these tasks call methods of an actor, which may keep something from one for the next."""
        names = {task.task for task in tasks}
        methods = [call for call in self.program.recording.calls if call.kind == "method"]
        return any(call.by in names for call in methods)

    def saved_share(self, batch: Batch, together: list[Batch]) -> float:
        """Return which share of the time of a batch is saved, if it runs at the same time as the others of its step.

        `together` has all batches of the step, also this one. The share is 0 if that is not faster.
        """
        computing = 0.0
        occupied = 0.0
        tasks = tasks_of(together)
        for task in tasks:
            computing += self.work.computing_seconds(task)
            occupied += self.work.cpu_seconds(task)
        on_cores = computing / self.work.cores
        on_cpus = occupied / max(1.0, self.work.cpus)
        on_others = self.capacity.least_seconds(tasks)
        least = max(batch.least_seconds, on_cores, on_cpus, on_others)
        return max(0.0, 1 - least / batch.seconds)

    def make_finding(self, line: str, by_step: list[list[Batch]]) -> Finding | None:
        """Return what it would gain to run all tasks of a step at the same time; `by_step` has the batches of each one.

        It is None if that is little, or if the memory would not be enough.
        k tasks at the same time are as fast as one after the other, each in a k-th of its time.
        """
        savings: list[Saving] = []
        waits: list[Wait] = []
        for together in by_step:
            tasks = tasks_of(together)
            if not self.capacity.has_memory(tasks):
                return None
            for batch in together:
                waits += batch.waits
                share = self.saved_share(batch, together)
                for task in batch.tasks:
                    savings += self.work.shorten(task, share)
        serial = Batch(waits)
        saved = total(savings)
        if saved < MIN_GAIN * serial.seconds:
            return None
        count = self.steps.count
        per_step = significant(len(waits) / count, 2)
        in_gets = sum(wait.call.seconds for wait in waits)
        waited = max(in_gets, serial.seconds)  # a library may wait in its own way before ray.get
        text = format_milliseconds(waited / count)
        name = waits[0].task.name
        return Finding(
            cause=CAUSE,
            title=f"{per_step} times per step, the next {name} begins when the last one has ended: {text} of waiting",
            line=line,
            change=CONDITION,
            seconds=saved / count,
            savings=savings,
        )


def tasks_of(batches: list[Batch]) -> list[Task]:
    """Return the tasks of all batches."""
    tasks = []
    for batch in batches:
        tasks += batch.tasks
    return tasks


def calls_of_steps(program: Program, steps: Steps) -> list[Call]:
    """Return the calls of the thread of the steps during them."""
    own = []
    for call in program.recording.calls:
        is_own = (call.process, call.thread) == (steps.process, steps.thread)
        if is_own and steps.of(call.start) is not None:
            own.append(call)
    return own


def serial_waits(program: Program, calls: list[Call], is_sure: bool) -> list[Wait]:
    """Return the waits for tasks that were submitted after the last get, and do not need what it got.

    calls: gets of one line and thread, in the order of time; the first one has none before it. A task needs what was
    got if it has this object as an argument. A large argument may hold it, too, unless it is sure that it does not. A
    wait for a task that was not recorded is left out.
    """
    waits = []
    last_end = 0.0
    last_object = ""
    for call in calls:
        first_object = call.objects[0] if call.objects else ""
        name = first_object[:TASK_DIGITS]
        submission = program.submissions.get(name)
        task = program.tasks.get(name)
        if submission is not None and task is not None and task.execute is not None:
            needs_last = last_object in submission.references
            is_later = submission.start >= last_end - CLOCK_SECONDS
            may_need_last = has_large_argument(submission) and not is_sure
            if is_later and not needs_last and not may_need_last:
                waits.append(Wait(call, task))
        last_end = call.end
        last_object = first_object
    return waits


def has_large_argument(submission: Call) -> bool:
    return bool(submission.messages) or submission.left_out_messages > 0
