# SPDX-License-Identifier: Apache-2.0
"""Find tasks whose runtime_env is new in each step, so that workers must start for them in each step.

A worker serves one runtime environment: "Runtime environments" in Ray's documentation ("Ray tasks, actors and jobs
with different runtime environments use different worker processes").
"""

from collections import defaultdict
from itertools import chain

from raymeter.causes.capacity import Capacity
from raymeter.causes.savings import middle, total
from raymeter.findings import Finding, Saving
from raymeter.profile.program import Program
from raymeter.profile.starts import NORMAL, Start, WarmReading, find_starts
from raymeter.profile.steps import Steps
from raymeter.profile.submitted_with import line_of_option
from raymeter.units import format_milliseconds, significant

CAUSE = "a new runtime_env in each step"
MIN_STEPS = 0.5  # of the steps, in which workers start
MIN_COUNT = 3  # of these steps; of environments, if the whole program is one step
VARIABLES = "env_vars"
CHANGE = (
    "Use one runtime_env for all steps, and pass what differs as an argument of the task. Ray starts other workers for "
    "each runtime_env, even if only one variable in it is another one."
)

PRICE = (
    "it is possible only if the code of the task can do it with an argument: not for other packages or files, nor for "
    "variables that are read when a process starts, such as CUDA_VISIBLE_DEVICES, NCCL_* or OMP_*."
)


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each line for whose tasks workers start, because most steps bring a new runtime_env.

    If the whole program is one step, this has to bring several. A line has none if more than variables is known to
    differ in them. Actors are left out.
    """
    by_line: dict[str, list[Start]] = defaultdict(list)
    firsts = first_uses(program)
    for start in find_starts(program).values():
        task = start.task
        call = program.submissions.get(task.task)
        if call is None or task.type != NORMAL or not task.runtime_env:
            continue
        number = steps.of(call.start)
        is_new = steps.of(firsts[task.runtime_env]) == number
        if call.line and number is not None and is_new:
            by_line[call.line].append(start)
    findings = []
    for line, starts in by_line.items():
        if are_again_and_again(starts, steps) and may_differ_in_variables_only(starts):
            findings.append(make_finding(program, steps, line, starts))
    return findings


def are_again_and_again(starts: list[Start], steps: Steps) -> bool:
    """Return whether the tasks of a line bring new environments in most steps, or several in the only step."""
    if steps.is_whole_program:
        environments = {start.task.runtime_env for start in starts}
        return len(environments) >= MIN_COUNT
    numbers = {steps.of(start.task.submitted or 0.0) for start in starts}
    return is_again_and_again(numbers, steps)


def may_differ_in_variables_only(starts: list[Start]) -> bool:
    """Return whether nothing but variables differs in the environments of tasks, or what differs is not known."""
    first, *others = [start.task.parts_of_env for start in starts]
    items = [other.items() ^ first.items() for other in others]
    names = {name for name, _ in chain.from_iterable(items)}
    return names <= {VARIABLES}


def is_again_and_again(numbers: set[int | None], steps: Steps) -> bool:
    """Return whether something is done in enough steps to be a part of each.

    What a program without a loop does in its only step is done once.
    """
    count = len(numbers - {None})
    return count >= max(MIN_COUNT, MIN_STEPS * steps.count)


def avoidable_starts(program: Program, steps: Steps, starts: list[Start]) -> list[Start]:
    """Return the starts that one environment for all would save.

    If the whole program is one step, the workers that first have a CPU each must start in any case.
    """
    if not steps.is_whole_program:
        return starts
    slots = Capacity(program).slots_of([start.task for start in starts])
    needed = len(starts) if slots is None else slots
    in_order = sorted(starts, key=lambda start: start.end)
    return in_order[needed:]


def first_uses(program: Program) -> dict[int, float]:
    """Return when each runtime environment was used first."""
    firsts: dict[int, float] = {}
    for task in program.tasks.values():
        submitted = task.submitted or 0.0
        known = firsts.get(task.runtime_env, submitted)
        firsts[task.runtime_env] = min(known, submitted)
    return firsts


def make_finding(program: Program, steps: Steps, line: str, starts: list[Start]) -> Finding:
    """Return the finding for the workers that start because of the runtime_env of a line: at least one of `starts`.

    It saves the starts that would not be needed if all of the line shared one environment. Its line is that of the
    option, if that is found.
    """
    reading = WarmReading(program)
    savings = []
    for start in avoidable_starts(program, steps, starts):
        savings += save_start(start, reading)
    seconds = total(savings) / steps.count
    per_step = significant(len(starts) / steps.count, 2)
    name = starts[0].task.name
    reason = "of its own" if steps.is_whole_program else "that no step before had"
    option = line_of_option(line, program.recording.start, "runtime_env")
    return Finding(
        cause=CAUSE,
        title=f"Workers start ({per_step} per step), because {name} has a runtime_env {reason}: "
        f"{format_milliseconds(seconds)} of work",
        line=option or line,
        change=CHANGE,
        price=PRICE,
        seconds=seconds,
        savings=savings,
        other_lines=[line],
    )


def save_start(start: Start, reading: WarmReading) -> list[Saving]:
    """Return what is saved if the worker of a task, or the actor that it creates, is there already."""
    moment = start.end - start.lost_seconds / 2
    savings = [Saving(start.process, 0, moment, start.lost_seconds, "start")]
    task = start.task
    if task.deserialise is not None:
        seconds = reading.lost_seconds(task)
        moment = middle(task.deserialise)
        savings.append(Saving(start.process, 0, moment, seconds, "deserialise"))
    return savings
