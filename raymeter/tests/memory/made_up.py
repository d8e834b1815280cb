# SPDX-License-Identifier: Apache-2.0
"""Recordings that no program has made."""

from pathlib import Path

from raymeter.profile.events import Call, Process, Received, Reference, Run, Sent, Store, Task
from raymeter.profile.program import Program, join
from raymeter.profile.reader import Recording

MB = 10**6
DRIVER, WORKER = "host-1", "host-2"
TASK = "{:048x}"
OBJECT = TASK + "{:08x}"
SAMPLED = {"RAYMETER_MEMORY_SECONDS": "0.5"}  # as `raymeter memory` sets it


def recording() -> Recording:
    """Return a driver with process id 1, and a worker with 2."""
    made = Recording(Path("made-up"))
    made.processes = [
        Process(process=DRIVER, pid=1, role="driver", ray="2.60.0", settings=dict(SAMPLED)),
        Process(process=WORKER, pid=2, role="worker", ray="2.60.0"),
    ]
    return made


def add_argument(
    made: Recording, number: int, start: float, end: float, size: int, line: str
) -> None:
    """Add a task with a large argument of its own, which is sent at `start` and ends at `end`."""
    task = TASK.format(number)
    call = Call("call", DRIVER, number, start, 0.01, messages=[number], line=line, task=task)
    call.name, call.kind = "work", "task"
    made.calls.append(call)
    made.sent.append(Sent(DRIVER, number, number, start=start, seconds=0.01, bytes=size))
    made.tasks.append(Task(task, "work", "NORMAL_TASK", submitted=start, finished=end))


def add_result(made: Recording, number: int, made_at: float, read_at: float, size: int) -> None:
    """Add the result of a task of the worker, which the driver reads."""
    task = TASK.format(number)
    line = "train.py:7"
    made.calls.append(Call("call", DRIVER, number, made_at - 0.1, 0.001, line=line, task=task))
    sent = Sent(WORKER, number, by=task, by_name="produce", start=made_at, bytes=size)
    made.sent.append(sent)
    received = Received(DRIVER, owner_task=task, object=OBJECT.format(number, 1), start=read_at)
    received.bytes = size
    received.line = "train.py:9"
    made.received.append(received)


def add_item(made: Recording, number: int, made_at: float, read_at: float, size: int) -> str:
    """Add an item of a generator of the worker, which the driver takes and reads, or does not if `read_at` is 0."""
    task = TASK.format(700)
    if number == 0:
        made.calls.append(Call("call", DRIVER, 700, 0.0, 0.001, line="train.py:7", task=task))
        made.runs.append(Run(WORKER, "generator", task, by_name="stream"))
    made.sent.append(
        Sent(WORKER, 700 + number, by=task, by_name="stream", start=made_at, bytes=size)
    )
    item = OBJECT.format(700, 2 + number)
    if read_at:
        received = Received(DRIVER, object=item, owner_task=task, start=read_at, bytes=size)
        made.received.append(received)
        taken = Call("next", DRIVER, 900 + number, read_at - 0.002, 0.001, line="train.py:8")
        taken.objects = [item]
        made.calls.append(taken)
    return item


def add_stored_result(made: Recording, step: int, start: float, store: float, size: int) -> None:
    """Add a task of the worker that the driver submits and that stores a result for so long."""
    task = TASK.format(100 + step)
    call = Call("call", DRIVER, 100 + step, start, 0.001, line="train.py:5", task=task)
    made.calls.append(call)
    state = Task(task, "produce", "ACTOR_TASK", pid=2, submitted=start)
    state.execute = start + 0.01, start + 0.02
    state.store = start + 0.02, start + 0.02 + store
    state.finished = state.store[1]
    made.tasks.append(state)
    sent = Sent(WORKER, 100 + step, by=task, by_name="produce", start=start + 0.021, bytes=size)
    made.sent.append(sent)


def add_views(made: Recording, count: int, size: int, read_at: float, ends: float | None) -> None:
    """Add objects that Replay.add has read in the worker, and samples in which they are still in use."""
    made.tasks.append(Task(TASK.format(900), "Replay.add", "ACTOR_TASK", finished=ends))
    for number in range(count):
        name = OBJECT.format(number, 1)
        received = Received(WORKER, object=name, by=TASK.format(900), by_name="Replay.add")
        received.start = read_at
        received.line = "replay.py:31"
        made.received.append(received)
        made.references.append(Reference(read_at + 5.0, 2, name, size, "PINNED_IN_MEMORY"))


def with_store(made: Recording, capacity: int, spilled: int = 0, restored: int = 0) -> Program:
    """Return the program, in whose store so much was spilled."""
    before = Store(time=0.0, capacity=capacity)
    after = Store(time=9.0, capacity=capacity, used=capacity, spilled=spilled, restored=restored)
    made.stores = [before, after]
    return join(made)


def add_step(made: Recording, step: int, wait: float, run: float) -> None:
    """Add a step of 1 s: the driver submits a task with a reference, which waits, runs, and is got."""
    task = TASK.format(step)
    start = float(step)
    begin = start + 0.01 + wait
    end = begin + run
    call = Call("call", DRIVER, 2 * step, start, 0.01, line="train.py:5", task=task)
    call.references = ["other"]
    get = Call("get", DRIVER, 2 * step + 1, start + 0.02, line="train.py:6", count=1)
    get.objects = [OBJECT.format(step, 1)]
    get.seconds = end + 0.001 - get.start
    made.calls += [call, get]
    state = Task(task, "train", "NORMAL_TASK", pid=2, submitted=start, finished=end)
    state.execute = begin, end
    made.tasks.append(state)
