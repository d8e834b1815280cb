# SPDX-License-Identifier: Apache-2.0
"""A coroutine that waits for another method of its actor, and whose phases and results Ray shows with other tasks."""

from dataclasses import replace

import pytest
from made_programs import DRIVER_TASK, LINE, MIB, STEP_SECONDS, STEPS, Builder, make_steps
from raymeter.causes.savings import save_sending_all
from raymeter.findings import Finding
from raymeter.profile.events import Run, Task
from raymeter.profile.program import Program
from raymeter.simulate.graph import build
from raymeter.simulate.predict import simulate

PLACE = "Queue"


def add_task(builder: Builder, task: str, method: str, start: float, end: float, **values) -> None:
    pid = builder.pid_of(builder.process_of(PLACE))
    event = Task(
        task=task, name=f"{PLACE}.{method}", type="ACTOR_TASK", actor="q", pid=pid, submitted=start, running=start,
        finished=end, deserialise=(start, start), execute=(start, end), store=(end, end),
    )  # fmt: skip
    builder.recording.tasks.append(replace(event, **values))


def add_coroutine(builder: Builder, task: str, start: float, seconds: float) -> None:
    run = Run(
        process=builder.process_of(PLACE), kind="coroutine", by=task, thread=5, has_event_loop=True
    )
    run.start = start
    run.seconds = seconds
    builder.recording.runs.append(run)


def make_queue(put_at: float) -> Program:
    """Return steps in which `get` awaits an item for 80 ms, which `put` brings at a time, after 50 ms of sending."""
    builder = Builder()
    for step in range(STEPS):
        begin = 1.0 + STEP_SECONDS * step
        get, put = f"a{step:047x}", f"b{step:047x}"
        builder.call("call", begin, 0.001, kind="method", task=get, name=f"{PLACE}.get", line=LINE)
        add_task(builder, get, "get", begin + 0.001, begin + 0.082)
        add_coroutine(builder, get, begin + 0.002, 0.080)
        call = builder.call(
            "call",
            begin + 0.01,
            0.05,
            kind="method",
            task=put,
            name=f"{PLACE}.put",
            line=f"{LINE}1",
        )
        builder.send(call, begin + 0.01, 0.048)
        add_task(builder, put, "put", begin + put_at, begin + put_at + 0.001)
        builder.call("get", begin + 0.062, 0.0205, objects=[f"{get}01000000"], line=f"{LINE}9")
    return builder.program()


def seconds_saved(program: Program) -> float:
    savings = save_sending_all(program, program.messages)
    finding = Finding("made", "made", LINE, "made", 0.05, savings)
    return make_steps().seconds - simulate(build(program), make_steps(), finding)


def test_a_coroutine_ends_earlier_if_the_method_that_wakes_it_begins_earlier():
    assert seconds_saved(make_queue(put_at=0.081)) == pytest.approx(0.05, abs=0.003)


def test_a_coroutine_whose_wait_ends_at_another_time_keeps_its_length():
    assert seconds_saved(make_queue(put_at=0.07)) == pytest.approx(0.0, abs=0.003)


def test_a_few_waits_that_end_so_may_be_chance():
    program = make_queue(put_at=0.081)
    program.recording.runs[2:] = []
    assert seconds_saved(program) == pytest.approx(0.0, abs=0.003)


def test_what_a_coroutine_computes_is_not_waiting():
    program = make_queue(put_at=0.081)
    for run in program.recording.runs:
        run.code_seconds = 0.06
    assert seconds_saved(program) == pytest.approx(0.0, abs=0.003)


def make_mixed() -> tuple[Builder, str, str]:
    """Return a queue whose result is shown with `put`, while Ray shows no phases of `get`."""
    builder = Builder()
    get, put = "a" * 48, "b" * 48
    add_task(builder, get, "get", 1.0, 1.05, execute=None, store=None)
    add_task(builder, put, "put", 1.01, 1.06, execute=(1.011, 1.05), store=(1.012, 1.05))
    add_task(builder, "c" * 48, "get", 1.1, 1.11)
    add_coroutine(builder, "c" * 48, 1.1, 0.006)
    builder.recording.runs[0].line = "queue.py:325"
    process = builder.process_of(PLACE)
    builder.send(None, 1.02, 0.001, process=process, by=put, by_name=f"{PLACE}.put")
    builder.receive(
        1.06, 0.001, "", object=f"{get}01000000", owner_task=get, by=DRIVER_TASK, process="node-1"
    )
    return builder, get, put


def test_a_result_belongs_to_the_task_whose_reader_got_it():
    builder, get, put = make_mixed()
    program = builder.program()
    (message,) = program.messages
    assert (message.sent.by, message.sent.by_name) == (get, f"{PLACE}.get")
    assert message.sent.line == "queue.py:325"
    assert len(message.received) == 1
    assert program.tasks[get].execute == (1.0, 1.02)
    assert program.tasks[get].store == (1.02, 1.05)
    assert program.tasks[put].execute == (1.01, 1.06)


def test_a_result_that_nobody_has_read_stays_where_it_was_recorded():
    builder, _, put = make_mixed()
    builder.recording.received[0].bytes = 2 * MIB
    (message,) = builder.program().messages
    assert message.sent.by == put
