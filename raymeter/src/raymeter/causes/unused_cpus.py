# SPDX-License-Identifier: Apache-2.0
"""Find tasks that ask Ray for more CPUs than they use, so that fewer of them run at the same time.

Ray does not measure CPUs, it only counts what tasks ask for: "Resources" in Ray's documentation ("Ray's resources are
logical"). What a task uses is measured here with the CPU clock of its process. Nothing is said of tasks whose threads
or child processes compute, that take other resources as well, or whose memory would not fit so often.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from raymeter.causes.at_once import Hold, most_at_once
from raymeter.causes.capacity import MAX_MEMORY
from raymeter.causes.savings import total
from raymeter.causes.work_of_tasks import WorkOfTasks
from raymeter.findings import Finding
from raymeter.profile.events import Run, Task
from raymeter.profile.program import Phase, Program
from raymeter.profile.starts import CREATION, NORMAL, begin_of, end_of
from raymeter.profile.steps import Steps
from raymeter.profile.submitted_with import line_of_option
from raymeter.units import format_bytes, format_milliseconds, significant

CAUSE = "tasks ask for more CPUs than they use"
NEEDED = 1.0  # CPUs of a task that computes in one thread
MAX_OF_THREADS = 0.1  # of the time of a task, in which other threads of its process compute
MIN_MEASURED = 0.5  # of the tasks, of which the CPU time is known
MIN_COMPUTING = 0.5  # of its time: a task that computes less waits for something else
MIN_GAIN = 0.1  # of the time of the tasks


@dataclass(frozen=True)
class Kind:
    """The tasks of one name, which ask for the same number of CPUs."""

    name: str
    cpus: float
    tasks: list[Task]
    runs: list[Run]

    @property
    def computing_share(self) -> float:
        """Return the share of their time in which these tasks compute."""
        seconds = sum(run.seconds for run in self.runs)
        return sum(run.process_seconds for run in self.runs) / max(1e-9, seconds)

    @property
    def peak_bytes(self) -> int:
        return max(run.peak_bytes for run in self.runs)

    def uses_one_core(self) -> bool:
        """Return whether it was measured that no task of this kind uses more than one core."""
        if len(self.runs) < MIN_MEASURED * len(self.tasks):
            return False
        return all(is_alone(run) for run in self.runs)


def is_alone(run: Run) -> bool:
    """Return whether nothing but the thread of a task has computed in its process, which has no children."""
    if run.process_seconds < 0 or not run.peak_bytes or run.kind != "function":
        return False
    of_others = run.process_seconds - run.cpu_seconds
    return of_others <= MAX_OF_THREADS * run.seconds


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each kind of tasks of which more could run at the same time.

    Return [] if the program ran on several machines, or if the CPUs of its cluster are not known.
    """
    clusters = program.recording.clusters
    hosts = {process.host for process in program.recording.processes}
    if not clusters or len(hosts) > 1:
        return []
    finder = Finder(program, steps)
    findings = []
    for kind in find_kinds(program, steps):
        finding = finder.judge(kind)
        if finding is not None:
            findings.append(finding)
    return findings


def find_kinds(program: Program, steps: Steps) -> list[Kind]:
    """Return the tasks of the steps that ask for more than one CPU, and for nothing else."""
    runs = {run.by: run for run in program.recording.runs}
    by_name: dict[tuple[str, float], list[Task]] = defaultdict(list)
    for task in program.tasks.values():
        is_asking = task.type == NORMAL and task.cpus > NEEDED
        submitted = task.submitted or 0.0
        is_in_step = steps.of(submitted) is not None
        if is_asking and is_in_step and begin_of(task):
            key = task.name, task.cpus
            by_name[key].append(task)
    kinds = []
    for (name, cpus), tasks in by_name.items():
        measured = [runs[task.task] for task in tasks if task.task in runs]
        kinds.append(Kind(name, cpus, tasks, measured))
    return kinds


class Finder:
    """Say what it gains if tasks ask for one CPU."""

    def __init__(self, program: Program, steps: Steps) -> None:
        self.program = program
        self.steps = steps
        self.work = WorkOfTasks(program)
        self.actors = [task for task in program.tasks.values() if task.type == CREATION]
        processes = program.recording.processes
        self.costs = {process.process: process.recorder for process in processes}

    def judge(self, kind: Kind) -> Finding | None:
        """Return a finding if more tasks of a kind would run at the same time, and fit on cores and into memory.

        None if that gains little, if one of them uses more than a core, or other resources, or if one submits tasks.
        """
        slots = int(self.free_cpus / kind.cpus)
        has_others = any(task.resources or self.work.children[task.task] for task in kind.tasks)
        if has_others or slots < 1 or not kind.uses_one_core():
            return None
        fitting = int(self.free_cpus / NEEDED)
        pending = self.most_pending(kind)
        at_once = min(fitting, pending)
        memory = self.program.recording.clusters[0].memory
        needed_bytes = at_once * kind.peak_bytes
        if needed_bytes > MAX_MEMORY * memory:
            return None
        savings = []
        for tasks in self.group_by_step(kind.tasks):
            share = self.saved_share(tasks, slots)
            for task in tasks:
                savings += self.work.shorten(task, share)
        seconds = sum(map(occupied_seconds, kind.tasks))
        if total(savings) < MIN_GAIN * seconds:
            return None
        finding = self.make_finding(kind, at_once)
        finding.savings = savings
        finding.seconds = total(savings) / self.steps.count
        return finding

    @property
    def free_cpus(self) -> float:
        """Return how many CPUs Ray has for tasks, without those that actors keep."""
        (first, _), *_ = self.steps.times
        _, last = self.steps.times[-1]
        kept = []
        for task in self.actors:
            begin, end = self.life_of(task)
            if begin <= last:
                kept.append(Hold(max(first, begin), end, task.cpus))
        return self.work.cpus - most_at_once(kept)

    def life_of(self, task: Task) -> Phase:
        """Return when an actor was made and when it ended, which is never if its process has not said so."""
        name = self.program.process_of(task)
        cost = self.costs.get(name)
        begin = task.submitted or 0.0
        if cost is None or not cost.has_ended:
            return begin, math.inf
        return begin, cost.time

    def group_by_step(self, tasks: Sequence[Task]) -> list[list[Task]]:
        """Return the tasks of each step, in the order in which they could begin."""
        groups: dict[int | None, list[Task]] = defaultdict(list)
        for task in sorted(tasks, key=asked_at):
            submitted = task.submitted or 0.0
            number = self.steps.of(submitted)
            groups[number].append(task)
        return list(groups.values())

    def most_pending(self, kind: Kind) -> int:
        """Return how many tasks of a kind were submitted and not yet ended at one time."""
        asked = [Hold(asked_at(task), end_of(task)) for task in kind.tasks]
        return round(most_at_once(asked))

    def saved_share(self, tasks: list[Task], slots: int) -> float:
        """Return which share of the time of the tasks of a step is saved if each asks for one CPU.

        The cores must do what all tasks compute at that time.
        """
        fitting = int(self.free_cpus / NEEDED)
        before = seconds_with(tasks, slots)
        after = seconds_with(tasks, fitting)
        begin = min(map(asked_at, tasks))
        end = max(map(end_of, tasks))
        on_cores = self.computing_between(begin, end) / self.work.cores
        least = max(after, on_cores)
        return max(0.0, 1 - least / max(1e-9, before))

    def computing_between(self, begin: float, end: float) -> float:
        """Return how long all functions that ran between two times computed then."""
        seconds = 0.0
        for run in self.program.recording.runs:
            first = max(begin, run.start)
            last = min(end, run.end)
            if last > first:
                used = max(run.cpu_seconds, run.process_seconds)
                share = (last - first) / run.seconds
                seconds += used * share
        return seconds

    def make_finding(self, kind: Kind, at_once: int) -> Finding:
        """Return the finding for tasks of one kind that ask for too many CPUs; so many of them could run at once.

        Its `seconds` are 0, because it removes no work: what it saves, only a prediction knows.
        """
        submission = self.program.submissions.get(kind.tasks[0].task)
        submitted = submission.line if submission is not None else ""
        start = self.program.recording.start
        line = line_of_option(submitted, start, "num_cpus") or kind.runs[0].line
        computing = significant(kind.computing_share, 2)
        cpus = significant(kind.cpus, 2)
        peak = format_bytes(kind.peak_bytes)
        is_waiting = kind.computing_share < MIN_COMPUTING
        price = f"{at_once} run at the same time, each in a process of up to {peak}."
        price += " Keep num_cpus if it is there to limit that."
        if is_waiting:
            price += " They mostly wait: it saves less if what they wait for serves one at a time."
        seconds = mean(map(occupied_seconds, kind.tasks))
        return Finding(
            cause=CAUSE,
            title=f"{kind.name} asks for {cpus} CPUs, and uses {computing} of one in {format_milliseconds(seconds)}: "
            "others wait for them meanwhile",
            line=line,
            change=f"Let it ask for what it uses: `num_cpus=1` in place of {cpus}.",
            seconds=0.0,
            price=price,
            other_lines=[submitted],
            is_limit=is_waiting,
        )


def occupied_seconds(task: Task) -> float:
    """Return how long a task keeps its CPUs."""
    return end_of(task) - begin_of(task)


def asked_at(task: Task) -> float:
    """Return when a task could begin, if Ray had CPUs for it."""
    return task.waits_for_node or task.submitted or 0.0


def seconds_with(tasks: list[Task], slots: int) -> float:
    """Return how long these tasks take if so many run at the same time, in the order in which they could begin."""
    begin = min(map(asked_at, tasks))
    free = [begin] * slots
    last = begin
    for task in tasks:
        earliest = heapq.heappop(free)
        start = max(asked_at(task), earliest)
        end = start + occupied_seconds(task)
        heapq.heappush(free, end)
        last = max(last, end)
    return last - begin
