# SPDX-License-Identifier: Apache-2.0
"""Find tasks on several lines that run one after the other, although the code passes nothing from one to the next.

Source: "Anti-pattern: calling ray.get in a loop harms parallelism" in Ray's documentation; it is the same without a
loop. A task may still need what another one does to a file, a service, or a third process. If the code of the tasks
does not show that they reach nothing outside, or that none needs a result of another one, it is only asked, without a
saving.
"""

from bisect import bisect_left
from collections import defaultdict

from raymeter.causes.waiting import Batch, Finder, Wait, calls_of_steps
from raymeter.findings import Finding
from raymeter.profile.effects import acts_alone
from raymeter.profile.events import Call, Task
from raymeter.profile.independence import may_come_first
from raymeter.profile.program import TASK_DIGITS, Program
from raymeter.profile.results import Need, find_need
from raymeter.profile.source_code import split_line
from raymeter.profile.steps import Steps
from raymeter.units import format_milliseconds

CAUSE = "one call after the other"
CLOCK_SECONDS = 0.001  # by which the clocks of two events may differ
MIN_STEPS = 0.5  # of the steps
MIN_QUESTION = 0.1  # of a step, that is saved at most, for which one asks if the code shows nothing
SHOWN = frozenset({Need.NO})
ASKED = frozenset({Need.NO, Need.UNKNOWN})
MAY_NEED = (
    "it saves nothing, and is wrong, if one of them needs what the other one does elsewhere, such as to a file or a "
    "service."
)


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each group of lines whose tasks could run at the same time in half of the steps or more.

    It has no saving if the code does not show that these tasks do not need each other, or reach nothing outside.
    """
    finder = RunFinder(program, steps)
    findings = []
    named: set[str] = set()
    for known in (SHOWN, ASKED):
        for lines, groups in group_by_lines(finder.find_runs(known)).items():
            if len(groups) < MIN_STEPS * steps.count or not named.isdisjoint(lines):
                continue
            finding = finder.make_finding(lines[0], groups, known)
            if finding is not None:
                findings.append(finding)
                named.update(lines)
    return findings


def group_by_lines(runs: list[list[Wait]]) -> dict[tuple[str, ...], list[list[Wait]]]:
    """Return groups of waits by their lines."""
    by_lines: dict[tuple[str, ...], list[list[Wait]]] = defaultdict(list)
    for waits in runs:
        lines = tuple(wait.call.line for wait in waits)
        by_lines[lines].append(waits)
    return by_lines


def describe(finding: Finding, waits: list[Wait], known: frozenset[Need]) -> None:
    """Let a finding say which tasks could run at the same time, and on which condition."""
    first, *others = names_of(waits)
    later = ", then ".join(others)
    work = format_milliseconds(finding.seconds)
    passes = "and the code passes nothing of it on"
    if known == ASKED:
        passes = "and the code does not show whether it needs this result"
        work = f"up to {work}"
    finding.cause = CAUSE
    finding.title = (
        f"The next call, {later}, begins when {first} has ended, {passes}: {work} of work "
        "that could run at the same time, if they do not need each other"
    )
    finding.change = (
        "Do they? If not, submit them first, and then get the results together: "
        "`a, b = ray.get([...])`."
    )
    finding.price = MAY_NEED
    finding.is_limit = True
    finding.other_lines = [wait.call.line for wait in waits]


def names_of(waits: list[Wait]) -> list[str]:
    """Return the names of tasks, with their lines if two have the same name."""
    names = [wait.task.name for wait in waits]
    if len(set(names)) == len(names):
        return names
    with_lines = []
    for wait in waits:
        _, number = split_line(wait.call.line)
        with_lines.append(f"{wait.task.name} of line {number}")
    return with_lines


class RunFinder:
    """Find waits of the thread of the steps that come one after the other, and need not."""

    def __init__(self, program: Program, steps: Steps) -> None:
        self.program = program
        self.steps = steps
        self.callers = self.find_callers()
        self.starts_by_actor = self.find_starts()
        tasks = program.tasks.values()
        self.with_resources = {task.actor for task in tasks if task.resources}
        self.with_resources.discard("")  # of tasks without an actor
        self.definitions = {run.by_name: run.line for run in program.recording.runs}
        # By the lines of a get and of a later submission.
        self.known: dict[tuple[str, str], Need] = {}
        self.judge = Finder(program, steps)

    def make_finding(
        self, line: str, groups: list[list[Wait]], known: frozenset[Need]
    ) -> Finding | None:
        """Return what is gained if the tasks of each group run at the same time; None if it is little."""
        batches = [[Batch(waits)] for waits in groups]
        finding = self.judge.make_finding(line, batches)
        if finding is None:
            return None
        is_small = finding.seconds < MIN_QUESTION * self.steps.seconds
        if known == ASKED and is_small:
            return None
        waits = groups[0]
        describe(finding, waits, known)
        are_alone = all(self.acts_alone(wait.task) for wait in waits)
        if known == ASKED or not are_alone:
            finding.savings = []
            finding.seconds = 0.0
        return finding

    def find_callers(self) -> set[str]:
        """Return the tasks and the actors that submit others, which may keep something from one to the next."""
        callers = set()
        for call in self.program.recording.calls:
            task = self.program.tasks.get(call.by)
            if call.event == "call" and task is not None:
                place = task.actor or task.task
                callers.add(place)
        return callers

    def find_starts(self) -> dict[str, list[float]]:
        """Return when each actor got its calls, in the order of time."""
        starts: dict[str, list[float]] = defaultdict(list)
        for call in self.program.recording.calls:
            if call.actor:
                starts[call.actor].append(call.start)
        for of_actor in starts.values():
            of_actor.sort()
        return starts

    def acts_alone(self, task: Task) -> bool:
        """Return whether the code of a task shows that it reaches nothing outside; not of an actor with a GPU."""
        if task.actor in self.with_resources:
            return False
        line = self.definitions.get(task.name, "")
        return acts_alone(line, self.program.recording.start)

    def find_runs(self, known: frozenset[Need]) -> list[list[Wait]]:
        """Return groups of two or more waits, each group in one step, which could be one wait.

        known: what the code may show of their needs. A group ends at any other call that waits.
        """
        runs: list[list[Wait]] = []
        current: list[Wait] = []
        for call in calls_of_steps(self.program, self.steps):
            wait = self.wait_of(call)
            if wait is None:
                is_wait = call.event in ("get", "wait", "next")
                current = [] if is_wait else current
                continue
            if current and self.could_be_together(current, wait, known):
                current.append(wait)
                continue
            current = [wait]
            runs.append(current)
        return [waits for waits in runs if len(waits) > 1]

    def wait_of(self, call: Call) -> Wait | None:
        """Return the wait of a call for the result of one task; None if it is another call, or one that failed.

        Also None for a task that was not recorded, that needs more than CPUs, or that may submit others.
        """
        is_of_one = call.event == "get" and len(call.objects) == 1
        if not is_of_one or call.count > 1 or call.has_failed:
            return None
        first = call.objects[0]
        task = self.program.tasks.get(first[:TASK_DIGITS])
        if task is None or task.execute is None:
            return None
        if task.resources:
            return None  # such as a GPU, of which there may be only one
        place = task.actor or task.task
        if place in self.callers or task.task not in self.program.submissions:
            return None
        return Wait(call, task)

    def could_be_together(self, waits: list[Wait], later: Wait, known: frozenset[Need]) -> bool:
        """Return whether a task could have been submitted before all of these were got.

        False unless it was submitted after them in the same step, and what the code shows of its need is one of
        `known`. An actor that they share with it, or large arguments, may pass something on.
        """
        first = waits[0]
        lines = [wait.call.line for wait in waits]
        step = self.steps.of(first.call.start)
        later_step = self.steps.of(later.call.start)
        submission = self.program.submissions[later.task.task]
        last_end = waits[-1].call.end
        is_after = submission.start >= last_end - CLOCK_SECONDS
        if step != later_step or not is_after or later.call.line in lines:
            return False
        if has_large_arguments(submission) or any(needs(submission, wait) for wait in waits):
            return False
        if not all(self.need_of(submission.line, line) in known for line in lines):
            return False
        return not self.uses_an_actor_again(first, later.task)

    def uses_an_actor_again(self, first: Wait, task: Task) -> bool:
        """Return whether the actor of a task got another call since that of the first wait, or by that one."""
        if not task.actor:
            return False
        earlier = self.program.submissions[first.task.task]
        later = self.program.submissions[task.task]
        starts = self.starts_by_actor[task.actor]
        position = bisect_left(starts, earlier.start)
        return position < len(starts) and starts[position] < later.start

    def need_of(self, later_line: str, get_line: str) -> Need:
        """Return whether the code shows that a line which submits needs what another line has got."""
        lines = get_line, later_line
        if lines not in self.known:
            start = self.program.recording.start
            is_shown = may_come_first(*lines, start)
            self.known[lines] = Need.NO if is_shown else find_need(*lines, start)
        return self.known[lines]


def has_large_arguments(submission: Call) -> bool:
    return bool(submission.messages) or submission.left_out_messages > 0


def needs(submission: Call, wait: Wait) -> bool:
    """Return whether a task has the result of another one as an argument."""
    results = [reference[:TASK_DIGITS] for reference in submission.references]
    return wait.task.task in results
