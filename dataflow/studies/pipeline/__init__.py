"""One step of pipeline-parallel training: the stages of a model pass activations forward and gradients backward.

    driver --> stage-1 -- activation --> stage-2 -- activation --> stage-3
               stage-1 <-- gradient ---- stage-2 <-- gradient ---- stage-3 --> driver: each stage is done

A step has several micro-batches. A schedule is the order of the tasks of each stage: (kind, micro-batch, chunk). All of
them do the same work; they differ in the time for which stages wait, and in the activations that stages hold.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from msgspec import Meta

from dataflow.flows.flow import DRIVER, Flow, Task
from dataflow.flows.message import ACKNOWLEDGEMENT, Field, Message
from dataflow.plan.flag import flag
from dataflow.studies import Study
from dataflow.units import parse_seconds

FORWARD, BACKWARD, WEIGHTS = "forward", "backward", "weights"
Order = list[tuple[str, int, int]]  # kind, micro-batch and chunk of each task of a stage


@dataclass(frozen=True)
class Schedule:
    """An order of tasks: forward passes, then a backward and a forward pass in turn, then the other backward passes.

    warmup: stage (the first is 0), stages and micro-batches -> forward passes before the first backward pass.
    bubble: stages and micro-batches -> share of the longest time between the first and the last task of a stage in
    which a stage waits, if all tasks take the same time and messages take none.
    weights_delay: stage -> micro-batches between the gradients of the activations and those of the weights, which are a
    task of their own; None: one task computes both.
    chunks: parts of the model per stage.
    """

    warmup: Callable[[int, int, int], int]
    bubble: Callable[[int, int], Fraction]
    weights_delay: Callable[[int], int] | None = None
    chunks: int = 1

    def held(self, stage: int, stages: int, batches: int) -> int:
        """Return the largest number of activations that a stage holds."""
        delay = self.weights_delay(stage) if self.weights_delay else 0
        return min(self.chunks * batches, self.warmup(stage, stages, batches) + delay)

    def order(self, stage: int, stages: int, batches: int) -> Order:
        """Return the tasks of a stage in their order. Stages change the chunk after as many micro-batches as stages."""
        groups = [range(first, min(first + stages, batches)) for first in range(0, batches, stages)]
        forwards = [
            (batch, chunk) for group in groups for chunk in range(self.chunks) for batch in group
        ]
        backwards = [
            (batch, chunk)
            for group in groups
            for chunk in reversed(range(self.chunks))
            for batch in group
        ]
        warmup = self.warmup(stage, stages, batches)
        delay = self.weights_delay(stage) if self.weights_delay else None
        order: Order = [(FORWARD, *forward) for forward in forwards[:warmup]]
        for index, backward in enumerate(backwards):
            order.append((BACKWARD, *backward))
            if delay is not None and index >= delay:
                order.append((WEIGHTS, *backwards[index - delay]))
            if warmup + index < len(forwards):
                order.append((FORWARD, *forwards[warmup + index]))
        if delay is not None:
            order += [(WEIGHTS, *backward) for backward in backwards[len(backwards) - delay :]]
        return order


SCHEDULES = {
    # All forward, all backward: GPipe, arXiv 1811.06965.
    "afab": Schedule(lambda i, s, m: m, lambda s, m: Fraction(s - 1, m + s - 1)),
    # As many forward passes as there are stages from this one on.
    "1f1b": Schedule(lambda i, s, m: s - i, lambda s, m: Fraction(s - 1, m + s - 1)),
    # 1F1B in which each stage has two chunks of the model: arXiv 2104.04473.
    "interleaved": Schedule(
        lambda i, s, m: 2 * (s - i - 1) + s + 1,
        lambda s, m: Fraction(s - 1, 2 * m + s - 1),
        chunks=2,
    ),
    # Gradients of the weights fill the time in which a stage would wait; memory as 1F1B: arXiv 2401.10241.
    "zb-h1": Schedule(
        lambda i, s, m: s - i, lambda s, m: Fraction(s - 1, 3 * m + s - 1), lambda i: i
    ),
    # More forward passes at the beginning, and so nearly twice the activations, but no waiting.
    "zb-h2": Schedule(lambda i, s, m: 2 * (s - i) - 1, lambda s, m: Fraction(0), lambda i: 2 * i),
}
_size = partial(flag, "pipeline", None, size=True)


@dataclass(frozen=True, kw_only=True)
class PipelineFlags:
    # fmt: off
    pipeline_stages: int | None = _size("stages, each an actor", int, Meta(ge=1, le=64))
    micro_batches: int | None = _size("micro-batches per step", int, Meta(ge=1, le=1024))
    schedule: str | None = _size("order of the tasks: all forward, then all backward (afab), one forward and one "
        "backward (1f1b), with two chunks per stage (interleaved), or with gradients of the weights that fill the gaps "
        "(zb-h1, and zb-h2 with more memory)", str, choices=tuple(SCHEDULES), size="sender")
    task_seconds: str | None = _size("time of the forward pass of a micro-batch in a stage, and of each half of the "
        "backward pass, such as 20ms", str, metavar="TIME")
    hidden_size: int | None = _size("numbers per token that stages send", int, Meta(ge=1, le=10**6))
    # fmt: on


@dataclass(frozen=True)
class Computation:
    """The work of a task."""

    seconds: float
    held_change: (
        int  # 1: it makes activations that its stage holds; -1: it frees those of one forward pass
    )


def pipeline(
    pipeline_stages: int = 4, micro_batches: int = 8, schedule: str = "1f1b", task_seconds: str = "20ms",
    batch_size: int = 1, sequence_length: int = 512, hidden_size: int = 1024,
) -> Flow:  # fmt: skip
    """Activations and gradients are bfloat16 tensors of [batch_size, sequence_length, hidden_size].

    `task_seconds` is the time of the forward pass of a micro-batch in a stage, and of each half of the backward pass. A
    chunk takes its share of it. Raise ValueError for an unknown schedule, and for numbers that do not fit.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"--schedule {schedule}: give {', '.join(SCHEDULES)}")
    chosen, stages = SCHEDULES[schedule], pipeline_stages
    if chosen.chunks > 1 and micro_batches % stages:
        raise ValueError(
            f"--schedule {schedule}: give a --micro-batches that is a multiple of {stages} stages"
        )
    needed = chosen.held(0, stages, sys.maxsize)
    if chosen.weights_delay and micro_batches < needed:
        raise ValueError(
            f"--schedule {schedule}: {stages} stages need {needed} or more: give more --micro-batches"
        )
    try:
        seconds = parse_seconds(task_seconds)
    except ValueError as error:
        raise ValueError(f"--task-seconds {error}") from None
    tensor = Message(
        (Field("hidden_states", "bfloat16", (batch_size, sequence_length, hidden_size)),)
    )
    tasks = [
        task
        for i in range(stages)
        for task in stage_tasks(chosen, i, stages, micro_batches, seconds, tensor)
    ]
    title = f"pipeline of {stages} stages, {micro_batches} micro-batches, {schedule}"
    returns = tuple(f"stage-{stage + 1}.done" for stage in range(stages))
    return Flow("pipeline", title, ACKNOWLEDGEMENT, tuple(sort_tasks(tasks)), returns)


def stage_tasks(
    schedule: Schedule, stage: int, stages: int, batches: int, seconds: float, tensor: Message
) -> list[Task]:
    """Return the tasks of a stage in their order, and a last one that tells the driver that they are done."""
    actor, previous, last = f"stage-{stage + 1}", "", stages * schedule.chunks - 1
    # Kind -> parts of a backward pass that it does (a forward pass takes as long as one), change of held activations.
    costs = {
        FORWARD: (1, 1),
        BACKWARD: (1, 0) if schedule.weights_delay else (2, -1),
        WEIGHTS: (1, -1),
    }
    tasks = []
    for kind, batch, chunk in schedule.order(stage, stages, batches):
        position, source = chunk * stages + stage, ""  # of the chunk in the model
        if kind == FORWARD and position > 0:
            source = task_name(FORWARD, batch, position - 1, stages)
        elif kind == BACKWARD and position < last:
            source = task_name(BACKWARD, batch, position + 1, stages)
        # Only the first task of a step waits for the driver; the others wait for the one before on their stage.
        reads = [name for name in dict.fromkeys((source, previous)) if name] or [DRIVER]
        is_sent = (kind == FORWARD and position < last) or (kind == BACKWARD and position > 0)
        parts, held_change = costs[kind]
        previous = task_name(kind, batch, position, stages)
        work = Computation(parts * seconds / schedule.chunks, held_change)
        tasks.append(
            Task(previous, tuple(reads), tensor if is_sent else ACKNOWLEDGEMENT, actor, work)
        )
    return [*tasks, Task(f"{actor}.done", (previous,), ACKNOWLEDGEMENT, actor=actor)]


def task_name(kind: str, batch: int, position: int, stages: int) -> str:
    """Return a name such as stage-2.forward-5, or stage-2.forward-5.2 of the second chunk; numbers begin with 1."""
    chunk, stage = divmod(position, stages)
    return f"stage-{stage + 1}.{kind}-{batch + 1}" + (f".{chunk + 1}" if chunk else "")


def sort_tasks(tasks: list[Task]) -> list[Task]:
    """Return the tasks in an order in which they can run, and that keeps the order of each stage."""
    done, ordered, waiting = {DRIVER}, list[Task](), tasks
    while waiting:
        ready = [task for task in waiting if done.issuperset(task.reads)]
        if not ready:
            raise ValueError("--schedule: its stages wait for each other")
        ordered += ready
        done |= {task.name for task in ready}
        waiting = [task for task in waiting if task.name not in done]
    return ordered


STUDY = Study(
    flows={"pipeline": pipeline}, flags=PipelineFlags, part="actor:StagePart", collect="actor:collect_steps",
    is_used=lambda plan: any(isinstance(task.work, Computation) for task in plan.task_flow.tasks),
)  # fmt: skip
