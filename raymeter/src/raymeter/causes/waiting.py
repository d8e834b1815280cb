"""Find loops that wait for one task after the other, although the tasks do not need each other.

Sources: "Anti-pattern: calling ray.get in a loop harms parallelism" in Ray's documentation, and reports such as
ray#25448. What a change gains is limited by the number of cores.
"""

from collections import defaultdict

from raymeter.causes.savings import total
from raymeter.findings import Finding, Saving
from raymeter.profile.events import Call, Task
from raymeter.profile.program import TASK_DIGITS, Program
from raymeter.profile.steps import Steps
from raymeter.units import format_milliseconds, significant

CAUSE = "one task at a time"
CLOCK_SECONDS = 0.001  # by which the clocks of two events may differ
MIN_TASKS = 2  # per step that could run at the same time


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each line that waits for one task after the other."""
    waits: dict[tuple[str, int, str], list[Call]] = defaultdict(list)
    for call in program.recording.calls:
        is_single = call.event == "get" and call.count == 1
        step = steps.of(call.start)
        if is_single and step is not None:
            place = call.process, call.thread, call.line
            waits[place].append(call)
    findings = []
    for calls in waits.values():
        tasks = serial_tasks(program, calls)
        per_step = len(tasks) / steps.count
        if per_step >= MIN_TASKS:
            findings.append(make_finding(program, steps, calls, tasks))
    return findings


def serial_tasks(program: Program, calls: list[Call]) -> list[Task]:
    """Return the tasks of which each was submitted after the last one was got, without its result as an argument."""
    tasks = []
    last_end = 0.0
    last_object = ""
    for call in calls:
        name = call.objects[0][:TASK_DIGITS] if call.objects else ""
        submission = program.submissions.get(name)
        task = program.tasks.get(name)
        if submission is None or task is None or task.execute is None:
            continue
        needs_last = last_object in submission.references
        is_later = submission.start >= last_end - CLOCK_SECONDS
        if is_later and not needs_last and not submission.messages:
            tasks.append(task)
        last_end = call.end
        last_object = call.objects[0]
    return tasks


def parallel_tasks(program: Program, tasks: list[Task], per_step: float) -> float:
    """Return how many of these tasks could run at the same time: one per actor, and one per core."""
    cores = max(process.cores for process in program.recording.processes)
    actors = {task.actor for task in tasks if task.actor}
    if actors:
        cores = min(cores, len(actors))
    return min(per_step, cores)


def make_finding(program: Program, steps: Steps, calls: list[Call], tasks: list[Task]) -> Finding:
    """Return what it would gain to run as many tasks at the same time as there are cores or actors.

    k tasks at the same time are as fast as one after the other, each in a k-th of its time.
    """
    per_step = len(tasks) / steps.count
    at_once = max(1.0, parallel_tasks(program, tasks, per_step))
    savings = []
    for task in tasks:
        assert task.execute is not None  # serial_tasks leaves others out
        start, end = task.execute
        seconds = (end - start) * (1 - 1 / at_once)
        process = program.process_of(task)
        saving = Saving(process, 0, (start + end) / 2, seconds, "execute")
        savings.append(saving)
    waited = sum(call.seconds for call in calls) / steps.count
    name = tasks[0].name
    return Finding(
        cause=CAUSE,
        title=f"{significant(per_step, 2)} times per step, the next {name} begins when the last one has ended: "
        f"{format_milliseconds(waited)} of waiting",
        line=calls[0].line,
        change="Submit all tasks first, and call ray.get once with the list of their references.",
        seconds=total(savings) / steps.count,
        savings=savings,
    )
