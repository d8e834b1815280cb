"""Say in a few words what a step waits for, if it is not data."""

from collections import defaultdict

from raymeter.advice import Profile
from raymeter.causes import waiting
from raymeter.profile.events import Call
from raymeter.profile.program import TASK_DIGITS, Program
from raymeter.profile.steps import Steps
from raymeter.report.words import name_place, percent, relative
from raymeter.simulate.nesting import outermost

WAITS = ("get", "wait", "next")
SHORTEST_SECONDS = 1e-9
MIN_SHARE = 0.5  # of a step, that it waits
MIN_COMPUTING = 0.5  # of the time of a function, in which it uses its core


def say_waiting(program: Program, steps: Steps) -> str:
    """Return ", which waits 91 % of its time for Worker.compute (it computes)"; "" if it waits for less than half."""
    by_name: dict[str, float] = defaultdict(float)
    for call in waits_of(program, steps):
        name = awaited_name(program, call)
        by_name[name] += call.seconds
    waited = sum(by_name.values())
    share = waited / whole_seconds(steps)
    if share < MIN_SHARE:
        return ""
    name = max(by_name, key=lambda known: by_name[known])
    what = say_awaited(program, name)
    part = percent(min(1.0, share))
    return f", which waits {part} of its time for {what}"


def say_alone(profile: Profile) -> str:
    """Return that each step is a task that may not need the one before it; "" if nothing is known of that."""
    for finding in profile.findings:
        if finding.cause == waiting.CAUSE and not finding.savings:
            place = relative(finding.line)
            happens = finding.title[:1].lower() + finding.title[1:]
            advice = f"{finding.change} (raymeter explain {finding.section})"
            return f"But {happens}, line {place}. {advice}."
    return ""


def whole_seconds(steps: Steps) -> float:
    """Return the time of all steps together, which is never 0."""
    lengths = [end - start for start, end in steps.times]
    return max(SHORTEST_SECONDS, sum(lengths))


def say_awaited(program: Program, name: str) -> str:
    """Return the function that is waited for, and what it does; "its tasks" if it is not known."""
    if not name:
        return "its tasks"
    place = name_place(name)
    computing = say_computing(program, name)
    return f"{place}{computing}"


def waits_of(program: Program, steps: Steps) -> list[Call]:
    """Return the waits of the thread of the steps."""
    lane = steps.process, steps.thread
    own = []
    for call in program.recording.calls:
        if (call.process, call.thread) == lane:
            own.append(call)
    waits = [call for call in outermost(own) if call.event in WAITS]
    return [call for call in waits if steps.of(call.start) is not None]


def awaited_name(program: Program, call: Call) -> str:
    """Return the name of the task whose first object a call waits for; "" if it is not known."""
    if not call.objects:
        return ""
    first = call.objects[0]
    task = program.tasks.get(first[:TASK_DIGITS])
    if task is None:
        return ""
    return task.name


def say_computing(program: Program, name: str) -> str:
    """Return " (it computes)" or " (it waits itself)" for a function; "" if it was not recorded."""
    runs = [run for run in program.recording.runs if run.by_name == name]
    seconds = sum(run.own_seconds + run.awaited_seconds for run in runs)
    if not seconds:
        return ""
    computing = sum(run.cpu_seconds for run in runs)
    share = computing / seconds
    if share >= MIN_COMPUTING:
        return " (it computes)"
    return " (it waits itself)"
