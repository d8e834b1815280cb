"""Say in a few words what a step waits for, if it is not data."""

from collections import defaultdict

from raymeter.profile.events import Call
from raymeter.profile.program import TASK_DIGITS, Program
from raymeter.profile.steps import Steps
from raymeter.report.words import name_place, percent
from raymeter.simulate.nesting import outermost

WAITS = ("get", "wait", "next")
MIN_SHARE = 0.5  # of a step, that it waits
MIN_COMPUTING = 0.5  # of the time of a function, in which it uses its core


def say_waiting(program: Program, steps: Steps) -> str:
    """Return ", which waits 91 % of its time for Worker.compute (it computes)"; "" if it waits for less than half."""
    by_name: dict[str, float] = defaultdict(float)
    for call in waits_of(program, steps):
        by_name[awaited_name(program, call)] += call.seconds
    whole = max(1e-9, sum(end - start for start, end in steps.times))
    share = sum(by_name.values()) / whole
    if share < MIN_SHARE:
        return ""
    name = max(by_name, key=lambda known: by_name[known])
    what = f"{name_place(name)}{say_computing(program, name)}" if name else "its tasks"
    return f", which waits {percent(min(1.0, share))} of its time for {what}"


def waits_of(program: Program, steps: Steps) -> list[Call]:
    """Return the waits of the thread of the steps."""
    lane = steps.process, steps.thread
    own = [call for call in program.recording.calls if (call.process, call.thread) == lane]
    in_steps = [call for call in outermost(own) if steps.of(call.start) is not None]
    return [call for call in in_steps if call.event in WAITS]


def awaited_name(program: Program, call: Call) -> str:
    """Return the name of the task whose first object a call waits for; "" if it is not known."""
    if not call.objects:
        return ""
    task = program.tasks.get(call.objects[0][:TASK_DIGITS])
    return task.name if task is not None else ""


def say_computing(program: Program, name: str) -> str:
    """Return whether a function computes or waits itself, as far as it was recorded."""
    runs = [run for run in program.recording.runs if run.by_name == name]
    seconds = sum(run.own_seconds for run in runs)
    if not seconds:
        return ""
    share = sum(run.cpu_seconds for run in runs) / seconds
    return " (it computes)" if share >= MIN_COMPUTING else " (it waits itself)"
