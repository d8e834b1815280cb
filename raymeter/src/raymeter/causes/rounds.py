# SPDX-License-Identifier: Apache-2.0
"""Find loops whose passes submit some tasks and wait for all of them, so that all wait for the longest one.

Episodes and answers have very different lengths. Where one round follows another one that it does not need, a worker
that is ready can begin with the next task. Methods of actors are left out, because actors have a state.

Source: "Pattern: using ray.wait to limit the number of pending tasks" in Ray's documentation.
"""

from collections import defaultdict
from dataclasses import dataclass

from raymeter.causes.savings import total
from raymeter.causes.waiting import LIMIT, MAY_NEED, Finder, has_large_argument, seconds_of
from raymeter.causes.waits import Lane, group_by_lane
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
    waits = [call for call in program.recording.calls if call.event in ("get", "wait")]
    gets = [call for call in waits if not call.has_failed]
    by_line: dict[str, dict[Lane, list[Call]]] = defaultdict(dict)
    for lane, calls in group_by_lane(gets, steps).items():
        _, _, _, line = lane
        by_line[line][lane] = calls
    finder = Finder(program, steps)
    findings = []
    for line, lanes in by_line.items():
        finding = find_at_line(finder, line, lanes)
        if finding is not None:
            findings.append(finding)
    return findings


def find_at_line(finder: Finder, line: str, lanes: dict[Lane, list[Call]]) -> Finding | None:
    """Return a finding for the rounds of a line; None if they may need each other, or if little is gained.

    Steps that are rounds may belong to several lists, so what they save is a limit.
    """
    rounds_of_lanes = [find_rounds(finder, calls) for calls in lanes.values()]
    if not any(rounds_of_lanes):
        return None
    needs_last = finder.needs_last_pass(line)
    if needs_last:
        return None
    is_sure = needs_last is False
    batches: list[list[Round]] = []
    for rounds in rounds_of_lanes:
        batches += find_batches(finder, rounds, is_sure)
    has_several_steps = has_rounds_of_several_steps(finder.steps, batches)
    if has_several_steps and not is_sure:
        return None
    if not is_sure:
        begins = begins_of_objects(finder.program)
        batches = [rounds for rounds in batches if takes_no_data(finder.program, rounds, begins)]
    finding = make_finding(finder, line, batches)
    if finding is not None and not is_sure:
        finding.is_limit = True
        finding.price = MAY_NEED
    elif finding is not None and has_several_steps:
        finding.is_limit = True
        finding.price = LIMIT
    return finding


def has_rounds_of_several_steps(steps: Steps, batches: list[list[Round]]) -> bool:
    """Return whether the steps are rounds. The step of a training may need the last one, as no argument shows."""
    for rounds in batches:
        numbers = {steps.of(item.call.start) for item in rounds}
        if len(numbers) > 1:
            return True
    return False


def find_rounds(finder: Finder, calls: list[Call]) -> list[Round]:
    """Return those of some calls, all in the steps, that wait for at least MIN_TASKS tasks."""
    rounds = []
    for call in calls:
        tasks = tasks_of(finder.program, call)
        if len(tasks) >= MIN_TASKS:
            rounds.append(Round(call, tasks))
    return rounds


def find_batches(finder: Finder, rounds: list[Round], is_sure: bool) -> list[list[Round]]:
    """Return the rounds of each step; if each step is one of them, those of all steps.

    There are at least MIN_ROUNDS in a batch, one after the other. The code of a loop shows nothing about the next run
    of its function, so rounds of two runs are no batch if it is sure that passes of the loop do not need each other.
    """
    by_step: dict[int, list[Round]] = defaultdict(list)
    by_run: dict[tuple[int, int], list[Round]] = defaultdict(list)
    for item in rounds:
        step = finder.steps.of(item.call.start)
        frames = item.call.frames if is_sure else []
        run = frames[0] if frames else 0
        if step is not None:
            by_step[step].append(item)
            by_run[step, run].append(item)
    batches = list(by_run.values())
    if max(map(len, by_step.values()), default=0) == 1:
        batches = [rounds]
    return [batch for batch in batches if are_in_turn(finder.program, batch)]


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
    last_end = 0.0
    last_objects: set[str] = set()
    for item in rounds:
        for task in item.tasks:
            submission = program.submissions.get(task.task)
            if submission is None or submission.start < last_end:
                return False
            if not last_objects.isdisjoint(submission.references):
                return False
        last_end = item.call.end
        last_objects = set(item.call.objects)
    return len(rounds) >= MIN_ROUNDS


def begins_of_objects(program: Program) -> dict[str, float]:
    """Return when each object was put, and each task submitted, by the id."""
    begins = {call.object: call.start for call in program.recording.calls if call.event == "put"}
    for task, submission in program.submissions.items():
        begins[task] = submission.start
    return begins


def takes_no_data(program: Program, rounds: list[Round], begins: dict[str, float]) -> bool:
    """Return whether no task of these rounds takes what may hold a result of an earlier one.

    That is a large argument, or a reference to what was put or submitted after the first round, such as new weights.
    """
    first_end = rounds[0].call.end
    tasks = [task for item in rounds for task in item.tasks]
    for task in tasks:
        submission = program.submissions[task.task]
        if has_large_argument(submission):
            return False
        for reference in submission.references:
            of_task = begins.get(reference[:TASK_DIGITS], 0.0)
            if begins.get(reference, of_task) >= first_end:
                return False
    return True


def least_seconds(finder: Finder, rounds: list[Round]) -> float:
    """Return how long the tasks of these rounds take at least with as many workers as the largest round has."""
    work = finder.work
    tasks = [task for item in rounds for task in item.tasks]
    workers = max(len(item.tasks) for item in rounds)
    running = sum(seconds_of(task) for task in tasks)
    computing = sum(work.computing_seconds(task) for task in tasks)
    occupied = sum(work.cpu_seconds(task) for task in tasks)
    longest = max(item.longest_seconds for item in rounds)
    on_cores = computing / max(1, work.cores)
    on_cpus = occupied / max(1.0, work.cpus)
    on_others = finder.capacity.least_seconds(tasks)
    return max(running / workers, longest, on_cores, on_cpus, on_others)


def make_finding(finder: Finder, line: str, batches: list[list[Round]]) -> Finding | None:
    """Return what it would gain to begin each task when a worker is free; None if that is little."""
    savings: list[Saving] = []
    rounds: list[Round] = []
    waited = 0.0
    for batch in batches:
        recorded = sum(item.longest_seconds for item in batch)
        saved_seconds = recorded - least_seconds(finder, batch)
        if saved_seconds <= 0 or saved_seconds < MIN_GAIN * recorded:
            continue
        rounds += batch
        waited += recorded
        for item in batch:
            savings += shorten(finder.work, item, saved_seconds / recorded)
    if not rounds:
        return None
    steps = finder.steps
    per_step = significant(len(rounds) / steps.count, 2)
    size = max(len(item.tasks) for item in rounds)
    idle = sum(item.idle_seconds for item in rounds) / size
    name = rounds[0].tasks[0].name
    return Finding(
        cause=CAUSE,
        title=f"{per_step} times per step, all {size} calls of {name} wait for the longest one: "
        f"{format_milliseconds(waited / steps.count)}, in which each worker is idle for "
        f"{format_milliseconds(idle / steps.count)}",
        line=line,
        change=CHANGE,
        seconds=total(savings) / steps.count,
        savings=savings,
    )


def shorten(work: WorkOfTasks, item: Round, share: float) -> list[Saving]:
    """Return the savings that make a round shorter by a share: those of the tasks that take longer than that."""
    most = (1 - share) * item.longest_seconds
    savings = []
    for task in item.tasks:
        seconds = seconds_of(task)
        if seconds > most:
            savings += work.shorten(task, 1 - most / seconds)
    return savings
