# SPDX-License-Identifier: Apache-2.0
"""An actor with an event loop begins no other task while it stores a result."""

import pytest
from made_programs import LINE, STEP_SECONDS, STEPS, Builder, make_steps
from raymeter.causes.savings import save_sending_all
from raymeter.findings import Finding
from raymeter.profile.events import Run, Task
from raymeter.profile.program import Program
from raymeter.simulate.graph import build
from raymeter.simulate.predict import simulate

ACTOR = "Queue"
OPEN = "c" * 48  # runs as long as the program, so that tasks overlap


def make_task(
    builder: Builder, task: str, submitted: float, start: float, end: float, stored: float
) -> None:
    pid = builder.pid_of(builder.process_of(ACTOR))
    event = Task(
        task=task, name=f"{ACTOR}.run", type="ACTOR_TASK", actor="q", pid=pid, submitted=submitted,
        waits_for_node=submitted, running=start, finished=stored, deserialise=(start, start + 0.001),
        execute=(start + 0.001, end), store=(end, stored),
    )  # fmt: skip
    builder.recording.tasks.append(event)


def make_queue(has_event_loop: bool) -> Program:
    """Return a queue that stores a batch for 50 ms in each step while the driver waits to put the next one."""
    builder = Builder()
    process = builder.process_of(ACTOR)
    end = 1.0 + STEPS * STEP_SECONDS
    make_task(builder, OPEN, 0.9, 0.95, end, end)
    run = Run(
        process=process, by=OPEN, start=0.951, seconds=end - 0.951, has_event_loop=has_event_loop
    )
    builder.recording.runs.append(run)
    for step in range(STEPS):
        begin = 1.0 + STEP_SECONDS * step
        put, get = f"a{step:047x}", f"b{step:047x}"
        builder.call("call", begin, 0.03, kind="method", task=put, name=f"{ACTOR}.put", line=LINE)
        make_task(builder, get, begin, begin + 0.01, begin + 0.012, begin + 0.062)
        make_task(builder, put, begin + 0.03, begin + 0.063, begin + 0.065, begin + 0.0651)
        objects = [f"{put}01000000"]
        builder.call("get", begin + 0.031, 0.035, objects=objects, line=f"{LINE}9")
        builder.send(None, begin + 0.013, 0.001, process=process, by=get, by_name=f"{ACTOR}.get")
    return builder.program()


def step_without_stores(program: Program) -> float:
    savings = save_sending_all(program, program.messages)
    finding = Finding("made", "made", LINE, "made", 0.05, savings)
    return simulate(build(program), make_steps(), finding)


def test_the_next_task_begins_earlier_if_an_event_loop_stores_nothing():
    assert step_without_stores(make_queue(True)) == pytest.approx(STEP_SECONDS - 0.032, abs=0.002)


def test_tasks_of_threads_do_not_wait_for_each_other():
    assert step_without_stores(make_queue(False)) == pytest.approx(STEP_SECONDS)


@pytest.mark.parametrize(("left_out", "senders"), [(1, "ab"), (0, "bb")])
def test_a_result_whose_read_was_left_out_keeps_its_sender(left_out: int, senders: str) -> None:
    builder = Builder()
    process = builder.process_of(ACTOR)
    for name, end in (("a", 1.05), ("b", 1.07)):
        task = name * 48
        make_task(builder, task, 0.9, 1.0, end, end + 0.01)
        run = Run(process=process, by=task, start=1.001, seconds=end - 1.001, has_event_loop=True)
        builder.recording.runs.append(run)
        builder.send(None, end + 0.001, 0.001, process=process, by=task, by_name=f"{ACTOR}.run")
    builder.receive(1.09, 0.001, "", object="b" * 48 + "01000000", owner_task="b" * 48)
    builder.recording.processes[0].recorder.left_out_messages = left_out
    program = builder.program()
    assert [message.sent.by[0] for message in program.messages] == list(senders)
