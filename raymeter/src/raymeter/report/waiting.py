# SPDX-License-Identifier: Apache-2.0
"""Say in a few words what a step waits for, if it is not data."""

from raymeter.advice import Profile
from raymeter.causes import independent_calls, waiting
from raymeter.profile.awaited import Part, Reason, Splitter, sum_parts
from raymeter.profile.events import Call, Run
from raymeter.profile.program import Program
from raymeter.profile.starts import NORMAL
from raymeter.profile.steps import Steps
from raymeter.report.words import name_place, percent, relative
from raymeter.simulate.nesting import outermost

QUESTIONS = (waiting.CAUSE, independent_calls.CAUSE)
WAITS = ("get", "wait", "next")
SHORTEST_SECONDS = 1e-9
MIN_SHARE = 0.5  # of a step, that it waits
MOST = 0.9  # of all waiting, from which on nothing else is named
MIN_PART = 0.05  # of a step, that a part takes which is named
MAX_PARTS = 3
WORDS = {
    Reason.WORKER: "a worker to start for {name}",
    Reason.ACTOR: "the actor of {name} to be created",
    Reason.CPUS: "CPUs of Ray for {name}",
    Reason.QUEUE: "calls that came before {name}",
    Reason.DATA: "arguments or results of {name}",
    Reason.UNKNOWN: "{name} to begin or to end (Ray has no times of it)",
}
MIN_COMPUTING = 0.5  # of the time of a function, in which it uses its core


def say_waiting(program: Program, steps: Steps) -> str:
    """Return ", which waits 91 % of its time for Worker.compute (it computes)"; "" if it waits for less than half.

    A function is named for the time in which it ran. If a step waits for more, each part has its share of the step:
    ", which waits 98 % of its time: 73 % for CPUs for download, 24 % for download (it waits itself)".
    """
    splitter = Splitter(program)
    parts: list[Part] = []
    for call in waits_of(program, steps):
        parts += splitter.split(call)
    seconds = sum_parts(parts)
    waited = sum(seconds.values())
    whole = whole_seconds(steps)
    if waited < MIN_SHARE * whole:
        return ""
    share = percent(min(1.0, waited / whole))
    largest = sorted(seconds, key=lambda key: seconds[key], reverse=True)
    first = largest[0]
    if seconds[first] >= MOST * waited:
        return f", which waits {share} of its time for {say_part(program, *first)}"
    texts = []
    for key in largest[:MAX_PARTS]:
        of_step = seconds[key] / whole
        if of_step >= MIN_PART:
            texts.append(f"{percent(of_step)} for {say_part(program, *key)}")
    return f", which waits {share} of its time: {', '.join(texts)}"


def say_part(program: Program, reason: Reason, name: str) -> str:
    """Return what a part of a wait is for."""
    if not name:
        return "its tasks"
    place = name_place(name)
    if reason == Reason.RUNNING:
        return f"{place}{say_computing(program, name)}"
    return WORDS[reason].format(name=place)


def say_alone(profile: Profile) -> str:
    """Return that tasks may not need each other that run one after the other; "" if nothing is known of that."""
    for finding in profile.findings:
        if finding.cause in QUESTIONS and not finding.savings:
            place = relative(finding.line)
            happens = finding.title[:1].lower() + finding.title[1:]
            advice = f"{finding.change} (raymeter explain {finding.section})"
            return f"But {happens}, line {place}. {advice}."
    return ""


def whole_seconds(steps: Steps) -> float:
    """Return the time of all steps together, which is never 0."""
    lengths = [end - start for start, end in steps.times]
    return max(SHORTEST_SECONDS, sum(lengths))


def waits_of(program: Program, steps: Steps) -> list[Call]:
    """Return the waits of the thread of the steps."""
    lane = steps.process, steps.thread
    own = []
    for call in program.recording.calls:
        if (call.process, call.thread) == lane:
            own.append(call)
    waits = [call for call in outermost(own) if call.event in WAITS]
    return [call for call in waits if steps.of(call.start) is not None]


def say_computing(program: Program, name: str) -> str:
    """Return " (it computes)" or " (it waits itself)" for a function; "" if it was not recorded."""
    runs = [run for run in program.recording.runs if run.by_name == name]
    seconds = sum(run.code_seconds + run.awaited_seconds for run in runs)
    if not seconds:
        return ""
    computing = sum(computing_seconds(program, run) for run in runs)
    share = computing / seconds
    if share >= MIN_COMPUTING:
        return " (it computes)"
    return " (it waits itself)"


def computing_seconds(program: Program, run: Run) -> float:
    """Return how long a function computes: of a task that is no method, with all threads of its process."""
    task = program.tasks.get(run.by)
    if task is not None and task.type == NORMAL:
        return max(run.cpu_seconds, run.process_seconds)
    return run.cpu_seconds
