# SPDX-License-Identifier: Apache-2.0
"""Find methods that keep the event loop of their actor for themselves while they wait, so that other calls wait, too.

Sources: ray-project/ray#40328, ray-project/ray#7197. A method that computes gains nothing from letting others run, so
only the part of its time counts in which its thread used no processor.
"""

from collections import defaultdict
from dataclasses import dataclass
from statistics import mean

from raymeter.causes.savings import total
from raymeter.findings import Finding, Saving
from raymeter.profile.events import Run, Task
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.units import format_milliseconds, significant

CAUSE = "an async method blocks its event loop"
MIN_IDLE = 0.5  # of a block, in which it uses no processor
MIN_BLOCKS = 2  # per step, while other calls wait
AFTER_SECONDS = 1e-6
CONSTRUCTOR = "__init__"
PHASES = ("deserialise", "execute", "store")


@dataclass
class Block:
    """A part of a method that did not let go of the event loop, and the calls that waited meanwhile."""

    run: Run
    start: float
    seconds: float
    cpu_seconds: float
    waiting: list[Task]

    @property
    def end(self) -> float:
        return self.start + self.seconds

    @property
    def idle_seconds(self) -> float:
        return max(0.0, self.seconds - self.cpu_seconds)


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each method that often makes other calls of its actor wait while it waits itself."""
    by_line: dict[str, list[Block]] = defaultdict(list)
    for block in find_blocks(program):
        is_idle = block.idle_seconds >= MIN_IDLE * block.seconds
        if block.waiting and is_idle and steps.of(block.start) is not None:
            by_line[block.run.line].append(block)
    findings = []
    for blocks in by_line.values():
        if len(blocks) >= MIN_BLOCKS * steps.count:
            findings.append(make_finding(program, steps, blocks))
    return findings


def find_blocks(program: Program) -> list[Block]:
    """Return what kept the event loops of actors busy: parts of coroutines, and sync methods; not `__init__`."""
    tasks = tasks_by_process(program)
    blocks = []
    for run in program.recording.runs:
        if not run.has_event_loop or run.by_name.endswith(CONSTRUCTOR):
            continue
        parts = run.blocks
        if run.kind == "function":
            parts = [[run.start, run.code_seconds, run.cpu_seconds]]
        for start, seconds, cpu_seconds in parts:
            waiting = find_waiting(tasks[run.process], run.by, start, start + seconds)
            blocks.append(Block(run, start, seconds, cpu_seconds, waiting))
    return blocks


def tasks_by_process(program: Program) -> dict[str, list[Task]]:
    """Return the tasks of each process."""
    tasks: dict[str, list[Task]] = defaultdict(list)
    for task in program.tasks.values():
        process = program.process_of(task)
        if task.type == "ACTOR_TASK" and process:
            tasks[process].append(task)
    return tasks


def find_waiting(tasks: list[Task], running: str, start: float, end: float) -> list[Task]:
    """Return the other tasks that had been submitted before, and that ended later; none whose times are not known."""
    waiting = []
    for task in tasks:
        submitted = task.submitted or end
        ended = task.store[1] if task.store else start
        if task.task != running and submitted <= start and ended >= end:
            waiting.append(task)
    return waiting


def make_finding(program: Program, steps: Steps, blocks: list[Block]) -> Finding:
    """Return the finding for the times in which one method kept its event loop. `blocks` has at least one.

    It saves the waiting of the other calls, not the method's own work.
    """
    first = blocks[0].run
    savings = [
        saving for block in blocks for task in block.waiting for saving in save_wait(block, task)
    ]
    others = mean(len(block.waiting) for block in blocks)
    seconds = mean(block.seconds for block in blocks)
    busy = mean(block.cpu_seconds for block in blocks)
    per_step = significant(len(blocks) / steps.count, 2)
    title = (
        f"{per_step} times per step, {first.by_name} keeps the event loop of its actor for "
        f"{format_milliseconds(seconds)} (it computes for {format_milliseconds(busy)}), and "
        f"{significant(others, 2)} other calls wait"
    )
    return Finding(
        cause=CAUSE,
        title=title,
        line=first.line,
        change=describe_change(first),
        seconds=total(savings) / steps.count,
        savings=savings,
    )


def describe_change(run: Run) -> str:
    if run.kind == "function":
        return (
            "In an actor with async methods, a method without async runs in the event loop, too: make it async and "
            "await what it waits for, or `await asyncio.to_thread(function)`."
        )
    return (
        "Await what it waits for: `await asyncio.sleep(...)`, `await reference` in place of ray.get, an asynchronous "
        "client, or `await asyncio.to_thread(function)`."
    )


def save_wait(block: Block, task: Task) -> list[Saving]:
    """Return the part of a block for which another task waited, in the phases in which it did."""
    savings = []
    share = block.idle_seconds / block.seconds
    for name in PHASES:
        phase = getattr(task, name)
        if phase is None:
            continue
        start, end = phase
        seconds = min(end, block.end) - max(start, block.start)
        if seconds > 0:
            begin = start + AFTER_SECONDS  # so that it is this one of all phases at that time
            savings.append(Saving(block.run.process, 0, begin, share * seconds, name))
    return savings
