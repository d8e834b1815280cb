# SPDX-License-Identifier: Apache-2.0
"""Find actors that serve one call at a time, although their methods mostly wait, so that other calls wait as well.

Source: "Pattern: Using asyncio to run actor methods concurrently" and "Threaded actors" in Ray's documentation. What a
method computes stays one after the other, because one thread at a time has Python's lock. Nothing is said of actors
that have a GPU or another device, for which a method may wait, nor of those whose resources are not known, because
another program has made them, or too many tasks ran. The same holds for methods whose child processes compute.

Ray keeps the order of the calls of one caller. They stay one after the other if the code shows that a call needs the
state that the last one left, or if they are calls of several methods.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean

from raymeter.causes.at_once import Hold, most_at_once
from raymeter.causes.waits import end_of
from raymeter.causes.work_of_tasks import WorkOfTasks
from raymeter.findings import Finding, Overlap
from raymeter.profile.events import Run, Task
from raymeter.profile.library_threads import is_users
from raymeter.profile.own_state import own_state
from raymeter.profile.program import CLOCK_SECONDS, Program
from raymeter.profile.starts import CREATION, METHOD, begin_of
from raymeter.profile.steps import Steps
from raymeter.profile.submitted_with import line_of_option
from raymeter.units import format_milliseconds, significant

CAUSE = "one call at a time in an actor"
MIN_WAITING = 0.7  # of the time of a method, in which it computes nothing
MAX_OF_THREADS = 0.1  # of the time of a method, in which other threads of its process compute
MAX_LOAD = 0.8  # of the cores, which the functions of the program use during the steps
MIN_QUEUED = 1.0  # calls per step that wait for another one
MAX_AT_ONCE = 64  # calls of an actor, each of which has a thread
NO_DEVICES = ("CPU", "memory", "object_store_memory", "node:", "bundle_group_")  # of resources
MAX_NAMES = 3


@dataclass(frozen=True)
class Queued:
    """A call that waited for the one before it in its actor, which mostly waited itself."""

    earlier: Task
    run: Run  # of the earlier one
    idle_seconds: float  # in which the earlier one computed nothing
    has_one_caller: bool  # both calls are of one process


@dataclass(frozen=True)
class ServedCalls:
    """The calls of an actor that has served one at a time, in the order in which it has begun with them."""

    tasks: list[Task]
    idle: dict[str, float]  # by task; a call that is not here computes all the time
    callers: dict[str, str]  # the process that has submitted each task
    in_order: frozenset[str]  # methods that need the state that the last call left

    def queued(self, runs: dict[str, Run]) -> list[Queued]:
        """Return the calls that waited while the one before them did."""
        found = []
        for earlier, later in pairwise(self.tasks):
            idle_seconds = self.idle.get(earlier.task, 0.0)
            was_waiting = asked_at(later) < served_until(earlier) - CLOCK_SECONDS
            if idle_seconds and was_waiting and not self.stays_behind(later, earlier):
                run = runs[earlier.task]
                has_one_caller = self.have_one_caller(later, earlier)
                found.append(Queued(earlier, run, idle_seconds, has_one_caller))
        return found

    @property
    def most_pending(self) -> int:
        """Return how many calls were submitted and not yet served at one time."""
        asked = []
        for task in self.tasks:
            begin = asked_at(task) + CLOCK_SECONDS
            asked.append(Hold(begin, served_until(task)))
        return round(most_at_once(asked))

    def overlaps(self, at_once: int) -> list[Overlap]:
        """Return how the calls run if so many may run at the same time.

        Each one begins when the one before it waits. The caller of some calls may rely on their order: these stay one
        after the other.
        """
        overlaps = []
        for position in range(1, len(self.tasks)):
            task = self.tasks[position]
            earlier = self.tasks[position - 1]
            first = max(0, position - at_once)
            running = self.tasks[first:position]
            after = [other.task for other in running if self.stays_behind(task, other)]
            if first + at_once == position:
                after.append(self.tasks[first].task)  # which ends, so that one more can begin
            idle_seconds = self.idle.get(earlier.task, 0.0)
            if not idle_seconds:
                after.append(earlier.task)
            seconds = served_until(earlier) - begin_of(earlier) - idle_seconds
            overlaps.append(Overlap(task.task, earlier.task, seconds, tuple(after)))
        return overlaps

    def stays_behind(self, task: Task, other: Task) -> bool:
        """Return whether the caller of a call may rely on another one that it has submitted before."""
        is_other_method = task.name != other.name
        return self.have_one_caller(task, other) and (is_other_method or task.name in self.in_order)

    def have_one_caller(self, task: Task, other: Task) -> bool:
        return self.callers.get(task.task, "") == self.callers.get(other.task, "")


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each class of actors whose calls often wait for one that only waits.

    Return [] if the functions of the program use most of the time of the cores.
    """
    finder = ActorFinder(program, steps)
    if finder.load() > MAX_LOAD:
        return []
    by_class: dict[str, list[ServedCalls]] = defaultdict(list)
    for served in finder.find_actors():
        class_name, _, _ = served.tasks[0].name.rpartition(".")
        by_class[class_name].append(served)
    findings = []
    for actors in by_class.values():
        finding = finder.judge(actors)
        if finding is not None:
            findings.append(finding)
    return findings


class ActorFinder:
    """Find the actors that serve one call at a time, and say what changes if they serve several."""

    def __init__(self, program: Program, steps: Steps) -> None:
        self.program = program
        self.steps = steps
        self.runs = {run.by: run for run in program.recording.runs}
        self.callers = {name: call.process for name, call in program.submissions.items()}

    def load(self) -> float:
        """Return which share of the time of all cores functions of the program have used during the steps."""
        used = 0.0
        for run in self.program.recording.runs:
            if self.steps.of(run.start) is not None:
                used += max(run.cpu_seconds, run.process_seconds)
        lengths = [end - start for start, end in self.steps.times]
        cores = WorkOfTasks(self.program).cores
        return used / max(1e-9, cores * sum(lengths))

    def find_actors(self) -> list[ServedCalls]:
        """Return the calls of each actor that is known to have no device, and to have served one call at a time."""
        by_actor: dict[str, list[Task]] = defaultdict(list)
        asynchronous = set()
        without_device = set()
        for task in self.program.tasks.values():
            run = self.runs.get(task.task)
            if run is not None and run.has_event_loop:
                asynchronous.add(task.actor)
            if task.type == CREATION and not has_devices(task):
                without_device.add(task.actor)
            if task.type == METHOD and begin_of(task):
                by_actor[task.actor].append(task)
        found = []
        for actor, tasks in by_actor.items():
            is_candidate = actor in without_device and actor not in asynchronous
            if is_candidate and not run_together(tasks):
                found.append(self.serve(tasks))
        return found

    def serve(self, tasks: list[Task]) -> ServedCalls:
        """Return the calls of an actor with the time in which each waits and computes nothing."""
        tasks.sort(key=begin_of)
        idle = {}
        for task in tasks:
            run = self.runs.get(task.task)
            seconds = 0.0 if run is None else idle_seconds_of(run)
            if seconds:
                idle[task.task] = seconds
        waiting = [self.runs[name] for name in idle]
        lines = {run.by_name: run.line for run in waiting}
        start = self.program.recording.start
        in_order = {name for name, line in lines.items() if own_state(line, start).passed_on}
        return ServedCalls(tasks, idle, self.callers, frozenset(in_order))

    def judge(self, actors: Sequence[ServedCalls]) -> Finding | None:
        """Return a finding for the actors of a class if calls wait in most of the steps; else None."""
        queued: list[Queued] = []
        for actor in actors:
            for item in actor.queued(self.runs):
                if self.steps.of(begin_of(item.earlier)) is not None:
                    queued.append(item)
        if len(queued) < MIN_QUEUED * self.steps.count:
            return None
        pending = max(actor.most_pending for actor in actors)
        at_once = min(pending, MAX_AT_ONCE)
        if at_once < 2:
            return None
        finding = self.make_finding(queued, at_once)
        for actor in actors:
            finding.overlaps += actor.overlaps(at_once)
        return finding

    def make_finding(self, queued: Sequence[Queued], at_once: int) -> Finding:
        """Return the finding for the calls of a class that wait, of which so many could run at the same time.

        It names the method that makes others wait for most of the time, and has no `seconds`: it removes no work.
        """
        name = longest_method(queued)
        named = [item for item in queued if item.earlier.name == name]
        seconds = mean(item.run.seconds for item in named)
        idle_seconds = mean(item.idle_seconds for item in named)
        computing = format_milliseconds(seconds - idle_seconds)
        per_step = significant(len(queued) / self.steps.count, 2)
        line = named[0].run.line
        creation = self.line_of_creation(named[0].earlier.actor)
        return Finding(
            cause=CAUSE,
            title=f"{per_step} times per step, a call waits because {name} runs in its actor: that takes "
            f"{format_milliseconds(seconds)}, and computes for {computing} of it",
            line=line,
            change=f"Create the actor with `.options(max_concurrency={at_once})` if its methods may run in several "
            "threads. Or make all of its methods async, and await what they wait for.",
            seconds=0.0,
            price=self.describe_price(line, any(item.has_one_caller for item in queued)),
            other_lines=[creation],
            is_limit=True,
        )

    def line_of_creation(self, actor: str) -> str:
        """Return the line that makes an actor, or sets its options; "" if it was not recorded."""
        start = self.program.recording.start
        for call in self.program.recording.calls:
            if call.kind == "actor" and call.actor == actor:
                return line_of_option(call.line, start, "max_concurrency") or call.line
        return ""

    def describe_price(self, line: str, has_one_caller: bool) -> str:
        """Return what it costs if the method in a line runs several times at once, for one caller or for several."""
        names = own_state(line, self.program.recording.start).changed
        texts = ["calls run at the same time, and may end in another order."]
        if names:
            shown = ", ".join(f"self.{name}" for name in names[:MAX_NAMES])
            texts.append(f"This one changes {shown}: guard that with a lock.")
            texts.append("It saves nothing if that lock is held while it waits.")
        else:
            texts.append("Guard what they change in the actor with a lock.")
        if has_one_caller:
            texts.append("Leave it if a call needs what the last one of its caller did there.")
        texts.append("It saves less if what they wait for serves one at a time.")
        texts.append("A sleep that stands for work, or limits a rate, gets no shorter.")
        return " ".join(texts)


def has_devices(task: Task) -> bool:
    """Return whether an actor takes more than CPUs and memory, such as a GPU."""
    return not all(name.startswith(NO_DEVICES) for name in task.resources)


def run_together(tasks: Sequence[Task]) -> bool:
    """Return whether two of these tasks have run at the same time, for longer than clocks may differ."""
    held = []
    for task in tasks:
        begin = begin_of(task) + CLOCK_SECONDS
        held.append(Hold(begin, served_until(task)))
    return most_at_once(held) > 1


def idle_seconds_of(run: Run) -> float:
    """Return for how long a method of the user has computed nothing; 0 if it is less than MIN_WAITING of its time.

    It is 0, too, for a generator, and if child processes may have computed for it.
    """
    if run.kind != "function" or not is_users(run.line) or run.process_seconds < 0:
        return 0.0
    computing = run.cpu_seconds
    if run.process_seconds - computing > MAX_OF_THREADS * run.seconds:
        computing = run.process_seconds
    idle_seconds = run.seconds - computing
    return idle_seconds if idle_seconds >= MIN_WAITING * run.seconds else 0.0


def longest_method(queued: Sequence[Queued]) -> str:
    """Return the name of the method during which others have waited longest; `queued` is not empty."""
    seconds: dict[str, float] = defaultdict(float)
    for item in queued:
        seconds[item.earlier.name] += item.idle_seconds
    return max(seconds, key=lambda name: seconds[name])


def asked_at(task: Task) -> float:
    """Return when a call could begin, if its actor had time for it."""
    return task.waits_for_node or task.submitted or begin_of(task)


def served_until(task: Task) -> float:
    """Return when the results of a call were stored."""
    return end_of(task) or begin_of(task)
