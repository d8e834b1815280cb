# SPDX-License-Identifier: Apache-2.0
"""Find loops whose passes submit some tasks and wait for all of them, so that all wait for the longest one.

Episodes and answers have very different lengths. Where one round follows another one that it does not need, a worker
that is ready can begin with the next task. Methods of actors are left out, because actors have a state.

Source: "Pattern: using ray.wait to limit the number of pending tasks" in Ray's documentation.
"""

from collections import defaultdict
from dataclasses import dataclass

from raymeter.causes.capacity import Capacity
from raymeter.causes.savings import total
from raymeter.causes.waiting import MAY_NEED, Finder, has_large_argument, seconds_of
from raymeter.causes.waits import group_by_lane
from raymeter.causes.work_of_tasks import WorkOfTasks
from raymeter.findings import Finding, Saving
from raymeter.profile.events import Call, Task
from raymeter.profile.program import TASK_DIGITS, Program
from raymeter.profile.starts import NORMAL
from raymeter.profile.steps import Steps
from raymeter.units import format_milliseconds, significant

CAUSE = "rounds wait for their slowest task"
MIN_ROUNDS = 2  # per step
MIN_TASKS = 2  # in a round
MIN_GAIN = 0.2  # of the time of the rounds; less is noise of tasks that take equally long
CHANGE = (
    "If these rounds do not need each other, submit all tasks before ray.get. If there are too many for that, keep as "
    "many in flight as now: `ready, pending = ray.wait(pending)`, and submit the next task when one has ended."
)


@dataclass(frozen=True)
class Round:
    """A call that waits for several tasks at the same time."""

    call: Call
    tasks: list[Task]

    @property
    def longest_seconds(self) -> float:
        return max(seconds_of(task) for task in self.tasks)

    @property
    def idle_seconds(self) -> float:
        """Return how long the other tasks had ended when the longest one ran, in the sum."""
        longest = self.longest_seconds
        return sum(longest - seconds_of(task) for task in self.tasks)


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each line that waits for rounds of tasks, and needs none of them for the next one."""
    gets = [call for call in program.recording.calls if call.event in ("get", "wait")]
    by_line: dict[str, list[list[Round]]] = defaultdict(list)
    for lane, calls in group_by_lane(gets, steps).items():
        _, _, _, line = lane
        by_line[line] += find_batches(program, steps, calls)
    finder = Finder(program, steps)
    findings = []
    for line, batches in by_line.items():
        needs_last = finder.needs_last_pass(line) if batches else True
        is_sure = needs_last is False
        may_be_independent = is_sure or not has_rounds_of_several_steps(steps, batches)
        if needs_last or not may_be_independent:
            continue
        independent = [rounds for rounds in batches if is_sure or takes_no_data(program, rounds)]
        finding = make_finding(program, steps, line, independent)
        if finding is not None:
            finding.is_limit = not is_sure
            finding.price = "" if is_sure else MAY_NEED
            findings.append(finding)
    return findings


def has_rounds_of_several_steps(steps: Steps, batches: list[list[Round]]) -> bool:
    """Return whether the steps are rounds. The step of a training may need the last one, as no argument shows."""
    for rounds in batches:
        numbers = {steps.of(item.call.start) for item in rounds}
        if len(numbers) > 1:
            return True
    return False


def find_batches(program: Program, steps: Steps, calls: list[Call]) -> list[list[Round]]:
    """Return the rounds for which a line waits in each step; if each step is one of them, those of all steps.

    There are at least MIN_ROUNDS in a batch, one after the other.
    """
    by_step: dict[int, list[Round]] = defaultdict(list)
    for call in calls:
        step = steps.of(call.start)
        tasks = tasks_of(program, call)
        if step is not None and len(tasks) >= MIN_TASKS:
            by_step[step].append(Round(call, tasks))
    batches = list(by_step.values())
    if max(map(len, batches), default=0) == 1:
        batches = [[rounds[0] for rounds in batches]]
    return [rounds for rounds in batches if are_in_turn(program, rounds)]


def tasks_of(program: Program, call: Call) -> list[Task]:
    """Return the tasks for which a call waits; [] if one is not known, or is a method.

    Actors keep something from one call for the next, and not each of them can do any task.
    """
    tasks = []
    for reference in call.objects:
        task = program.tasks.get(reference[:TASK_DIGITS])
        if task is None or task.execute is None or task.type != NORMAL:
            return []
        tasks.append(task)
    return tasks if call.count == len(tasks) else []


def are_in_turn(program: Program, rounds: list[Round]) -> bool:
    """Return whether these are several rounds, each submitted after the last one, and with no result of it."""
    last: Round | None = None
    for item in rounds:
        for task in item.tasks:
            submission = program.submissions.get(task.task)
            if submission is None:
                return False
            if last is None:
                continue
            is_later = submission.start >= last.call.end
            if not is_later or set(submission.references) & set(last.call.objects):
                return False
        last = item
    return len(rounds) >= MIN_ROUNDS


def takes_no_data(program: Program, rounds: list[Round]) -> bool:
    """Return whether no task of these rounds has a large argument, which may hold a result of an earlier one."""
    tasks = [task for item in rounds for task in item.tasks]
    submissions = [program.submissions[task.task] for task in tasks]
    return not any(map(has_large_argument, submissions))


def least_seconds(program: Program, rounds: list[Round]) -> float:
    """Return how long the tasks of these rounds take at least with as many workers as the largest round has."""
    work = WorkOfTasks(program)
    tasks = [task for item in rounds for task in item.tasks]
    workers = max(len(item.tasks) for item in rounds)
    running = sum(seconds_of(task) for task in tasks)
    computing = sum(work.computing_seconds(task) for task in tasks)
    longest = max(item.longest_seconds for item in rounds)
    on_others = Capacity(program).least_seconds(tasks)
    return max(running / workers, longest, computing / work.cores, on_others)


def make_finding(
    program: Program, steps: Steps, line: str, by_step: list[list[Round]]
) -> Finding | None:
    """Return what it would gain to begin each task when a worker is free; None if that is little."""
    savings: list[Saving] = []
    rounds: list[Round] = []
    waited = 0.0
    for of_step in by_step:
        recorded = sum(item.longest_seconds for item in of_step)
        share = 1 - least_seconds(program, of_step) / recorded
        if share < MIN_GAIN:
            continue
        rounds += of_step
        waited += recorded
        for item in of_step:
            savings += shorten(program, item, share)
    if not rounds:
        return None
    per_step = significant(len(rounds) / steps.count, 2)
    size = max(len(item.tasks) for item in rounds)
    idle = sum(item.idle_seconds for item in rounds) / size
    name = rounds[0].tasks[0].name
    return Finding(
        cause=CAUSE,
        title=f"{per_step} times per step, all of {size} calls of {name} wait for the longest one: "
        f"{format_milliseconds(waited / steps.count)}, in which each worker is idle for "
        f"{format_milliseconds(idle / steps.count)}",
        line=line,
        change=CHANGE,
        seconds=total(savings) / steps.count,
        savings=savings,
    )


def shorten(program: Program, item: Round, share: float) -> list[Saving]:
    """Return the savings that make a round shorter by a share: those of the tasks that take longer than that."""
    work = WorkOfTasks(program)
    most = (1 - share) * item.longest_seconds
    savings = []
    for task in item.tasks:
        seconds = seconds_of(task)
        if seconds > most:
            savings += work.shorten(task, 1 - most / seconds)
    return savings
