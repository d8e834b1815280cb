# SPDX-License-Identifier: Apache-2.0
"""A saving is an upper limit if the graph does not explain the step, and is not less than the change can save."""

import pytest
from made_programs import MIB, Builder
from raymeter.findings import Finding, Saving
from raymeter.profile.events import Task
from raymeter.profile.steps import Steps
from raymeter.simulate.predict import predict

STEPS = 6
STEP_SECONDS = 0.1
PUT_SECONDS = 0.06
LINE = "/made/train.py:28"


def make_program(start: float) -> tuple[Builder, list[Saving]]:
    """Return steps in which the driver puts a message beside a task, and gets its result; and what the put takes.

    Nothing explains why the task starts only `start` seconds after the begin of a step. It takes 10 ms.
    """
    builder = Builder()
    savings = []
    for step in range(STEPS):
        begin = 1.0 + STEP_SECONDS * step
        task = f"{step:048x}"
        builder.call("call", begin, 0.001, kind="task", task=task, name="score", line=LINE)
        put = builder.call("put", begin + 0.001, PUT_SECONDS, object=f"p{step}", line=f"{LINE}0")
        builder.send(put, begin + 0.001, PUT_SECONDS, bytes=MIB)
        savings.append(Saving(put.process, 1, begin + 0.03, PUT_SECONDS, "call"))
        started = begin + start
        execute = started, started + 0.01
        _, end = execute
        pid = builder.pid_of(builder.process_of("score"))
        made = Task(
            task, "score", "NORMAL_TASK", pid=pid, submitted=begin + 0.001, running=started, finished=end,
            execute=execute,
        )  # fmt: skip
        builder.recording.tasks.append(made)
        waits = begin + 0.062
        builder.call("get", waits, end + 0.001 - waits, objects=[f"{task}01"], line=f"{LINE}9")
    return builder, savings


def predict_put(start: float):
    """Return the prediction of a put that takes no time; None if there is none."""
    builder, savings = make_program(start)
    times = [(1.0 + STEP_SECONDS * step, 1.0 + STEP_SECONDS * (step + 1)) for step in range(STEPS)]
    steps = Steps("a pass of the loop", times, "node-1", 1, LINE)
    finding = Finding("sent", "sent", LINE, "send it once", PUT_SECONDS, savings=savings)
    advice = predict(builder.program(), steps, [finding])
    return advice[0].prediction if advice else None


def test_a_start_that_nothing_explains_may_be_earlier_after_a_change():
    prediction = predict_put(start=0.085)
    assert prediction.is_upper_limit
    assert prediction.saved_seconds == pytest.approx(PUT_SECONDS, abs=0.015)
