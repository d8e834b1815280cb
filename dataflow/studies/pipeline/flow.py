"""Build one step of pipeline-parallel training: the stages of a model pass activations forward and gradients backward.

    driver --> stage-1 -- activation --> stage-2 -- activation --> stage-3
               stage-1 <-- gradient ---- stage-2 <-- gradient ---- stage-3 --> driver: each stage is done

A step has several micro-batches. A schedule is the order of the tasks of each stage: (kind, micro-batch, chunk). All of
them do the same work; they differ in the time for which stages wait, and in the activations that stages hold.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from dataflow.flows.flow import DRIVER, Flow, Task
from dataflow.flows.message import ACKNOWLEDGEMENT, Field, Message
from dataflow.units import parse_seconds

FORWARD, BACKWARD, WEIGHTS = "forward", "backward", "weights"
CHUNKS = 2  # of an interleaved stage
Order = list[tuple[str, int, int]]  # kind, micro-batch and chunk of each task of a stage


def afab(stage: int, stages: int, batches: int) -> Order:
    """All forward, all backward: GPipe, arXiv 1811.06965."""
    return [(kind, batch, 0) for kind in (FORWARD, BACKWARD) for batch in range(batches)]


def one_forward_one_backward(stage: int, stages: int, batches: int) -> Order:
    """1F1B: as many forwards as there are stages from this one on, then a backward and a forward in turn."""
    return alternate([(batch, 0) for batch in range(batches)], [(batch, 0) for batch in range(batches)], stages - stage)


def interleaved(stage: int, stages: int, batches: int) -> Order:
    """1F1B in which each stage has several chunks of the model: arXiv 2104.04473."""
    groups = [range(first, first + stages) for first in range(0, batches, stages)]
    forwards = [(batch, chunk) for group in groups for chunk in range(CHUNKS) for batch in group]
    backwards = [(batch, chunk) for group in groups for chunk in reversed(range(CHUNKS)) for batch in group]
    return alternate(forwards, backwards, 2 * (stages - stage - 1) + (CHUNKS - 1) * stages + 1)


def alternate(forwards: list[tuple[int, int]], backwards: list[tuple[int, int]], warmup: int) -> Order:
    """Return `warmup` forwards, then a backward and a forward in turn, and the rest of the backwards."""
    order: Order = [(FORWARD, *forward) for forward in forwards[:warmup]]
    for index, backward in enumerate(backwards):
        order.append((BACKWARD, *backward))
        order += [(FORWARD, *forward) for forward in forwards[warmup + index :][:1]]
    return order


def zero_bubble_1(stage: int, stages: int, batches: int) -> Order:
    """ZB-H1: gradients of the weights fill the time in which a stage would wait; memory as 1F1B: arXiv 2401.10241."""
    return delay_weights(stage, batches, stages - stage, stage)


def zero_bubble_2(stage: int, stages: int, batches: int) -> Order:
    """ZB-H2: more forwards at the beginning, and so nearly twice the activations, but no waiting."""
    return delay_weights(stage, batches, 2 * (stages - stage) - 1, 2 * stage)


def delay_weights(stage: int, batches: int, warmup: int, delay: int) -> Order:
    """Return 1F1B with the gradients of the weights `delay` micro-batches after those of the activations."""
    order: Order = [(FORWARD, batch, 0) for batch in range(min(warmup, batches))]
    for batch in range(batches + delay):
        if batch < batches:
            order.append((BACKWARD, batch, 0))
        if batch >= delay:
            order.append((WEIGHTS, batch - delay, 0))
        if batch + warmup < batches:
            order.append((FORWARD, batch + warmup, 0))
    return order


@dataclass(frozen=True)
class Schedule:
    """An order of tasks, and what it promises if all tasks take the same time and messages take none.

    bubble: stages and micro-batches -> share of the longest time between the first and the last task of a stage in
    which a stage waits.
    held: stage, stages and micro-batches -> the largest number of activations that the stage holds.
    """

    order: Callable[[int, int, int], Order]
    bubble: Callable[[int, int], Fraction]
    held: Callable[[int, int, int], int]
    chunks: int = 1
    splits_backward: bool = False  # gradients of activations and of weights are tasks of their own


SCHEDULES = {
    "afab": Schedule(afab, lambda s, m: Fraction(s - 1, m + s - 1), lambda i, s, m: m),
    "1f1b": Schedule(one_forward_one_backward, lambda s, m: Fraction(s - 1, m + s - 1), lambda i, s, m: min(m, s - i)),
    "interleaved": Schedule(
        interleaved,
        lambda s, m: Fraction(s - 1, CHUNKS * m + s - 1),
        lambda i, s, m: min(CHUNKS * m, 2 * (s - i - 1) + (CHUNKS - 1) * s + 1),
        chunks=CHUNKS,
    ),
    "zb-h1": Schedule(
        zero_bubble_1, lambda s, m: Fraction(s - 1, 3 * m + s - 1), lambda i, s, m: min(m, s), splits_backward=True
    ),
    "zb-h2": Schedule(zero_bubble_2, lambda s, m: Fraction(0), lambda i, s, m: min(m, 2 * s - 1), splits_backward=True),
}


def pipeline(
    stages: int = 4, micro_batches: int = 8, schedule: str = "1f1b", task_seconds: str = "20ms", batch_size: int = 1,
    sequence_length: int = 512, hidden_size: int = 1024,
) -> Flow:  # fmt: skip
    """Activations and gradients are bfloat16 tensors of [batch_size, sequence_length, hidden_size].

    `task_seconds` is the time of the forward pass of a micro-batch in a stage, and of each half of the backward pass;
    several times, separated by commas, are those of successive micro-batches. A chunk takes its share of them.
    Raise ValueError for an unknown schedule, and for numbers that do not fit.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"--schedule {schedule}: give {', '.join(SCHEDULES)}")
    plan = SCHEDULES[schedule]
    if plan.chunks > 1 and micro_batches % stages:
        raise ValueError(f"--schedule {schedule}: give a --micro-batches that is a multiple of --stages {stages}")
    needed = plan.held(0, stages, sys.maxsize)
    if plan.splits_backward and micro_batches < needed:
        raise ValueError(f"--schedule {schedule}: {stages} stages need {needed} or more: give more --micro-batches")
    try:
        seconds = [parse_seconds(text) for text in task_seconds.split(",")]
    except ValueError:
        raise ValueError(f"--task-seconds {task_seconds}: give times such as 20ms or 20ms,30ms") from None
    tensor = Message((Field("hidden_states", "bfloat16", (batch_size, sequence_length, hidden_size)),))
    last_chunk, waiting = stages * plan.chunks - 1, list[Task]()
    for stage in range(stages):
        actor, previous = f"stage-{stage + 1}", ""
        for kind, batch, chunk in plan.order(stage, stages, micro_batches):
            position = chunk * stages + stage  # of the chunk in the model
            is_last = position == (last_chunk if kind == FORWARD else 0) or kind == WEIGHTS
            if kind == FORWARD:
                source = task_name(FORWARD, batch, position - 1, stages) if position else DRIVER
            elif kind == BACKWARD and position < last_chunk:
                source = task_name(BACKWARD, batch, position + 1, stages)
            else:
                source = ""
            ends = kind == (WEIGHTS if plan.splits_backward else BACKWARD)
            parts = 2 if kind == BACKWARD and not plan.splits_backward else 1
            # Only the first task of a step waits for the driver; the others wait for the one before on their stage.
            reads = [source] if source and not (source == DRIVER and previous) else []
            reads += [previous] if previous and previous not in reads else []
            name = task_name(kind, batch, position, stages)
            waiting.append(
                Task(name, tuple(reads), ACKNOWLEDGEMENT if is_last else tensor, kind, actor,
                     seconds=parts * seconds[batch % len(seconds)] / plan.chunks,
                     holds=int(kind == FORWARD) - int(ends))
            )  # fmt: skip
            previous = name
        waiting.append(Task(f"{actor}.done", (previous,), ACKNOWLEDGEMENT, actor=actor))
    title = f"pipeline of {stages} stages, {micro_batches} micro-batches, {schedule}"
    returns = tuple(f"stage-{stage + 1}.done" for stage in range(stages))
    return Flow("pipeline", title, ACKNOWLEDGEMENT, tuple(sort_tasks(waiting)), returns)


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
