"""Find lines that make so many small calls that the calls themselves take the time.

Sources: "Anti-pattern: over-parallelizing with too fine-grained tasks harms speedup" in Ray's documentation, ray#21343.
"""

from collections import defaultdict
from dataclasses import dataclass

from raymeter.causes.savings import total
from raymeter.findings import Finding, Saving
from raymeter.profile.events import Call
from raymeter.profile.program import TASK_DIGITS, Program
from raymeter.profile.steps import Steps
from raymeter.units import format_milliseconds, significant

CAUSE = "many small calls"
MIN_CALLS = 100  # per step
BATCH = 50  # calls that become one
MAX_TASK_SECONDS = 0.01  # of a task that is so short that the call is a large part of it


@dataclass
class Line:
    """The small calls of one line, some of which may only have been counted."""

    line: str
    name: str
    calls: list[Call]
    count: int
    seconds: float


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each line with many short calls of tasks, or with slow calls of ray.wait."""
    findings = []
    for line in find_lines(program, steps):
        if line.count / steps.count >= MIN_CALLS and task_seconds(program, line) < MAX_TASK_SECONDS:
            findings.append(make_finding(program, steps, line))
    return findings


def find_lines(program: Program, steps: Steps) -> list[Line]:
    """Return the lines that submit tasks without large messages."""
    calls: dict[tuple[str, str], list[Call]] = defaultdict(list)
    for call in program.recording.calls:
        if call.event == "call" and not call.messages and steps.of(call.start) is not None:
            calls[call.line, call.name].append(call)
    factors = find_factors(program)
    lines = []
    for (line, name), group in calls.items():
        factor = factors[line, name]
        count = round(factor * len(group))
        seconds = sum(call.seconds - call.own_seconds for call in group)
        lines.append(Line(line, name, group, count, factor * seconds))
    return lines


def find_factors(program: Program) -> dict[tuple[str, str], float]:
    """Return for each line how many calls there were per call that was written: 1 without sampling."""
    factors: dict[tuple[str, str], float] = defaultdict(lambda: 1.0)
    for process in program.recording.processes:
        if process.recorder is None:
            continue
        for item in process.recorder.counted:
            if item.kind == "call" and item.written:
                factors[item.line, item.name] = item.count / item.written
    return factors


def task_seconds(program: Program, line: Line) -> float:
    """Return how long the user's function ran in the mean; 0 if Ray does not know it."""
    times = []
    for call in line.calls:
        task = program.tasks.get(call.task)
        if task is not None and task.execute is not None:
            times.append(task.execute[1] - task.execute[0])
    return sum(times) / len(times) if times else 0.0


def make_finding(program: Program, steps: Steps, line: Line) -> Finding:
    share = 1 - 1 / BATCH
    savings = []
    for call in line.calls:
        seconds = share * call.seconds
        savings.append(
            Saving(call.process, call.thread, call.start + call.seconds / 2, seconds, "call")
        )
        savings += save_gets(program, call, share)
    per_step = significant(line.count / steps.count)
    return Finding(
        cause=CAUSE,
        title=f"{per_step} small calls of {line.name} per step take {format_milliseconds(line.seconds / steps.count)}"
        " before they even run",
        line=line.line,
        change=f"Give each call a batch of {BATCH} or more items: a call of Ray takes about as long whatever it does.",
        seconds=total(savings) / steps.count,
        savings=savings,
        section="many-small-calls",
    )


def save_gets(program: Program, call: Call, share: float) -> list[Saving]:
    """Return the time of the ray.get that waits for this call alone."""
    savings = []
    for get in program.recording.calls:
        is_alone = get.event == "get" and get.count == 1
        if is_alone and get.objects and get.objects[0][:TASK_DIGITS] == call.task:
            savings.append(
                Saving(
                    get.process,
                    get.thread,
                    get.start + get.seconds / 2,
                    share * get.seconds,
                    "deserialise",
                )
            )
    return savings
