# SPDX-License-Identifier: Apache-2.0
"""Find tasks and methods that put a value into the store and return the reference, so that their callers get twice.

Source: "Anti-pattern: Returning ray.put() ObjectRefs from a task harms performance and fault tolerance" in Ray's
documentation. Ray stores a large result by itself, and sends a small one with the answer.
"""

from collections.abc import Sequence
from dataclasses import replace

from raymeter.causes.calls import Finder, Line, first_task
from raymeter.causes.savings import total
from raymeter.findings import Finding, Saving
from raymeter.profile.counted import FIRST_RESULT
from raymeter.profile.events import Call
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.units import significant

CAUSE = "a task returns a reference of what it has put"
CHANGE = (
    "Return the value itself: Ray puts a large result into the store too, and sends a small one with the answer. Then "
    "one ray.get is enough, and the reference of the result can be passed on as before."
)
PRICE = "Callers must no longer call ray.get for what they got."


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each line that puts what its task returns."""
    finder = Finder(program, steps)
    calls = program.recording.calls
    gets = [call for call in calls if call.event == "get" and steps.of(call.start) is not None]
    findings = []
    for line in finder.find_lines():
        if line.event == "put" and finder.is_returned(line):
            findings.append(make_finding(finder, line, gets))
    return findings


def make_finding(finder: Finder, line: Line, gets: Sequence[Call]) -> Finding:
    """Return the finding of a line of ray.put: what its calls take, and the ray.get of what its tasks have put.

    Tasks are told apart by their names. If one has two such lines, each finding has all of these ray.get.
    """
    names = {call.by_name for call in line.calls}
    again = [call for call in gets if gets_put(finder.program, call, names)]
    savings = [finder.saving_of_call(call, call.weight) for call in line.calls]
    for call in again:
        savings.append(saving_of_second(finder, call))
    steps = finder.steps.count
    per_step = significant(line.count(finder.steps), 2)
    name = line.calls[0].by_name
    return Finding(
        cause=CAUSE,
        title=f"{per_step} times per step, {name} puts its result and returns the reference: whoever needs the value "
        "calls ray.get twice",
        line=line.line,
        change=CHANGE,
        seconds=total(savings) / steps,
        savings=savings,
        price=PRICE,
        other_lines=sorted({call.line for call in again}),
    )


def gets_put(program: Program, call: Call, names: set[str]) -> bool:
    """Return whether a ray.get is for values that tasks of these names have put: none of them is a first result."""
    if not call.objects:
        return False
    task = program.tasks.get(first_task(call))
    return task is not None and task.name in names and not call.objects[0].endswith(FIRST_RESULT)


def saving_of_second(finder: Finder, call: Call) -> Saving:
    """Return what a second ray.get takes, without reading the value, which the first one has to do then."""
    saving = finder.saving_of_get(call, call.weight)
    reading = call.weight * call.deserialise_seconds
    seconds = max(0.0, saving.seconds - reading)
    return replace(saving, seconds=seconds)
