# SPDX-License-Identifier: Apache-2.0
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
from typing import Any

from msgspec import Meta

from dataflow.flows.flow import DRIVER, Flow, Task
from dataflow.flows.message import ACKNOWLEDGEMENT, Field, Message
from dataflow.flows.sizes import of_sizes
from dataflow.plan.flag import flag
from dataflow.study import Study
from dataflow.units import parse_seconds

FORWARD = "forward"
BACKWARD = "backward"
WEIGHTS = "weights"
Order = list[tuple[str, int, int]]  # kind, micro-batch and chunk of each task of a stage


@dataclass(frozen=True)
class Schedule:
    """An order of tasks: forward passes, then a backward and a forward pass in turn, then the other backward passes.

    warmup: stage (the first is 0), stages and micro-batches -> forward passes before the first backward pass.
    wait_parts: a stage waits (stages - 1) times for a part of the work of a micro-batch, and this is the number of such
    parts per micro-batch; None: no stage waits.
    weights_delay: stage -> micro-batches between the gradients of the activations and those of the weights, which are a
    task of their own; None: one task computes both.
    chunks: parts of the model per stage.
    """

    warmup: Callable[[int, int, int], int]
    wait_parts: int | None
    weights_delay: Callable[[int], int] | None = None
    chunks: int = 1

    def bubble(self, stages: int, batches: int) -> Fraction:
        """Return the share of the longest time between the first and the last task of a stage in which a stage waits.

        All tasks take the same time, and messages take none.
        """
        if self.wait_parts is None:
            return Fraction(0)
        waiting = stages - 1
        working = self.wait_parts * batches
        return Fraction(waiting, working + waiting)

    def held(self, stage: int, stages: int, batches: int) -> int:
        """Return the largest number of activations that a stage holds."""
        delay = self.weights_delay(stage) if self.weights_delay else 0
        begun = self.warmup(stage, stages, batches) + delay
        return min(self.chunks * batches, begun)

    def order(self, stage: int, stages: int, batches: int) -> Order:
        """Return the tasks of a stage in their order, each as its kind, micro-batch and chunk (from 0).

        Stages change the chunk after as many micro-batches as stages. `check_schedule` has rejected numbers that do not
        fit.
        """
        forwards = self._passes(FORWARD, stages, batches)
        backwards = self._passes(BACKWARD, stages, batches)
        weights = [(WEIGHTS, batch, chunk) for _, batch, chunk in backwards]
        warmup = self.warmup(stage, stages, batches)
        delay = self.weights_delay(stage) if self.weights_delay else None
        order = forwards[:warmup]
        for index, backward in enumerate(backwards):
            order.append(backward)
            if delay is not None and index >= delay:
                order.append(weights[index - delay])
            if warmup + index < len(forwards):
                order.append(forwards[warmup + index])
        if delay is not None:
            order += weights[len(weights) - delay :]
        return order

    def _passes(self, kind: str, stages: int, batches: int) -> Order:
        """Return all forward or all backward passes of a stage. Backward passes begin with the last chunk."""
        chunks = list(range(self.chunks))
        if kind == BACKWARD:
            chunks.reverse()
        passes: Order = []
        for first in range(0, batches, stages):
            end = min(first + stages, batches)
            for chunk in chunks:
                passes += [(kind, batch, chunk) for batch in range(first, end)]
        return passes


SCHEDULES = {
    # All forward, all backward: GPipe, arXiv 1811.06965.
    "afab": Schedule(
        warmup=lambda stage, stages, batches: batches,
        wait_parts=1,
    ),
    # As many forward passes as there are stages from this one on.
    "1f1b": Schedule(
        warmup=lambda stage, stages, batches: stages - stage,
        wait_parts=1,
    ),
    # 1F1B in which each stage has two chunks of the model: arXiv 2104.04473.
    "interleaved": Schedule(
        warmup=lambda stage, stages, batches: 2 * (stages - stage - 1) + stages + 1,
        wait_parts=2,
        chunks=2,
    ),
    # Gradients of the weights fill the time in which a stage would wait; memory as 1F1B: arXiv 2401.10241.
    "zb-h1": Schedule(
        warmup=lambda stage, stages, batches: stages - stage,
        wait_parts=3,
        weights_delay=lambda stage: stage,
    ),
    # More forward passes at the beginning, and so nearly twice the activations, but no waiting.
    "zb-h2": Schedule(
        warmup=lambda stage, stages, batches: 2 * (stages - stage) - 1,
        wait_parts=None,
        weights_delay=lambda stage: 2 * stage,
    ),
}
_size = partial(flag, "pipeline", None, size=True)


@dataclass(frozen=True, kw_only=True)
class PipelineFlags:
    """Sizes of the flow `pipeline`."""

    pipeline_stages: int | None = _size("stages, each an actor", int, Meta(ge=1, le=64))
    micro_batches: int | None = _size("micro-batches per step", int, Meta(ge=1, le=1024))
    schedule: str | None = _size(
        "order of the tasks: all forward, then all backward (afab), one forward and one backward "
        "(1f1b), with two chunks per stage (interleaved), or with gradients of the weights that "
        "fill the gaps (zb-h1, and zb-h2 with more memory)",
        str,
        choices=tuple(SCHEDULES),
        size="sender",
    )
    task_seconds: str | None = _size(
        "time of the forward pass of a micro-batch in a stage, and of each half of the backward "
        "pass, such as 20ms",
        str,
        metavar="TIME",
    )
    hidden_size: int | None = _size("numbers per token that stages send", int, Meta(ge=1, le=10**6))


@dataclass(frozen=True)
class Computation:
    """The work of a task."""

    seconds: float
    # 1: it makes activations that its stage holds; -1: it frees those of one forward pass.
    held_change: int


@dataclass(frozen=True)
class Step:
    """What all stages of a pipeline do in an iteration."""

    schedule: Schedule
    stages: int
    batches: int
    seconds: float  # of the forward pass of a micro-batch in a stage
    tensor: Message  # an activation or a gradient

    @property
    def last_position(self) -> int:
        """Return the position of the last chunk in the model. The first one is 0."""
        return self.stages * self.schedule.chunks - 1


@dataclass(frozen=True)
class PipelineSizes:
    """The sizes of the flow, with their defaults: its tasks, and the tensors between them."""

    pipeline_stages: int = 4
    micro_batches: int = 8
    schedule: str = "1f1b"
    task_seconds: str = "20ms"
    batch_size: int = 1
    sequence_length: int = 512
    hidden_size: int = 1024

    @property
    def tensor(self) -> Message:
        """Return an activation or a gradient of a micro-batch."""
        shape = (self.batch_size, self.sequence_length, self.hidden_size)
        return Message((Field("hidden_states", "bfloat16", shape),))


def build_pipeline(sizes: PipelineSizes) -> Flow:
    """Return the flow of a step. Activations and gradients are bfloat16: [batch_size, sequence_length, hidden_size].

    `task_seconds` is the time of the forward pass of a micro-batch in a stage, and of each half of the backward pass. A
    chunk takes its share of it. Raise ValueError for an unknown schedule, and for numbers that do not fit.
    """
    stages = sizes.pipeline_stages
    batches = sizes.micro_batches
    check_schedule(sizes.schedule, stages, batches)
    try:
        seconds = parse_seconds(sizes.task_seconds)
    except ValueError as error:
        raise ValueError(f"--task-seconds {error}") from None
    step = Step(SCHEDULES[sizes.schedule], stages, batches, seconds, sizes.tensor)
    tasks: list[Task] = []
    for stage in range(stages):
        tasks += stage_tasks(step, stage)
    title = f"pipeline of {stages} stages, {batches} micro-batches, {sizes.schedule}"
    returns = tuple(f"stage-{stage + 1}.done" for stage in range(stages))
    return Flow("pipeline", title, ACKNOWLEDGEMENT, tuple(sort_tasks(tasks)), returns)


pipeline = of_sizes(PipelineSizes, build_pipeline)


def check_schedule(name: str, stages: int, batches: int) -> None:
    """Raise ValueError for an unknown schedule, or a number of micro-batches that it cannot have."""
    if name not in SCHEDULES:
        raise ValueError(f"--schedule {name}: give {', '.join(SCHEDULES)}")
    schedule = SCHEDULES[name]
    if schedule.chunks > 1 and batches % stages:
        raise ValueError(
            f"--schedule {name}: give a --micro-batches that is a multiple of {stages} stages"
        )
    needed = schedule.held(0, stages, sys.maxsize)
    if schedule.weights_delay and batches < needed:
        raise ValueError(
            f"--schedule {name}: {stages} stages need {needed} or more: give more --micro-batches"
        )


def stage_tasks(step: Step, stage: int) -> list[Task]:
    """Return the tasks of a stage in their order, and a last one that tells the driver that they are done."""
    actor = f"stage-{stage + 1}"
    previous: str | None = None
    tasks = []
    for kind, batch, chunk in step.schedule.order(stage, step.stages, step.batches):
        position = chunk * step.stages + stage  # of the chunk in the model
        # Only the first task of a step waits for the driver; the others wait for the one before on their stage.
        source = source_name(step, kind, batch, position)
        names = dict.fromkeys((source, previous))  # they can be the same task
        reads = [name for name in names if name] or [DRIVER]
        name = task_name(kind, batch, position, step.stages)
        message = step.tensor if is_sent(step, kind, position) else ACKNOWLEDGEMENT
        work = work_of(step, kind)
        tasks.append(Task(name, tuple(reads), message, actor, work))
        previous = name
    done = Task(f"{actor}.done", (tasks[-1].name,), ACKNOWLEDGEMENT, actor=actor)
    return [*tasks, done]


def source_name(step: Step, kind: str, batch: int, position: int) -> str | None:
    """Return the task of another chunk whose tensor a task needs; None: it needs none."""
    if kind == FORWARD and position > 0:
        return task_name(FORWARD, batch, position - 1, step.stages)
    if kind == BACKWARD and position < step.last_position:
        return task_name(BACKWARD, batch, position + 1, step.stages)
    return None


def is_sent(step: Step, kind: str, position: int) -> bool:
    """Return whether another chunk needs the result of a task."""
    if kind == FORWARD:
        return position < step.last_position
    return kind == BACKWARD and position > 0


def work_of(step: Step, kind: str) -> Computation:
    """Return the work of a task: each half of a backward pass takes as long as a forward pass."""
    seconds = step.seconds / step.schedule.chunks
    if kind == FORWARD:
        return Computation(seconds, held_change=1)
    if kind == WEIGHTS:
        return Computation(seconds, held_change=-1)
    if step.schedule.weights_delay:  # the other half is a task of its own
        return Computation(seconds, held_change=0)
    return Computation(2 * seconds, held_change=-1)


def task_name(kind: str, batch: int, position: int, stages: int) -> str:
    """Return a name such as stage-2.forward-5, or stage-2.forward-5.2 of the second chunk; numbers begin with 1."""
    chunk, stage = divmod(position, stages)
    name = f"stage-{stage + 1}.{kind}-{batch + 1}"
    return f"{name}.{chunk + 1}" if chunk else name


def sort_tasks(tasks: list[Task]) -> list[Task]:
    """Return the tasks in an order in which they can run, and that keeps the order of each stage.

    Raise ValueError if there is none, because some of them wait for each other.
    """
    done = {DRIVER}
    ordered: list[Task] = []
    waiting = tasks
    while waiting:
        ready = [task for task in waiting if done.issuperset(task.reads)]
        if not ready:
            raise ValueError("--schedule: its stages wait for each other")
        ordered += ready
        done |= {task.name for task in ready}
        waiting = [task for task in waiting if task.name not in done]
    return ordered


def has_stages(plan: Any) -> bool:
    """Return whether a plan has tasks of a pipeline."""
    return any(isinstance(task.work, Computation) for task in plan.task_flow.tasks)


STUDY = Study(
    flows={"pipeline": pipeline},
    flags=PipelineFlags,
    part="actor:StagePart",
    collect="actor:collect_steps",
    is_used=has_stages,
)
