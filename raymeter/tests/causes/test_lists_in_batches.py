# SPDX-License-Identifier: Apache-2.0
"""Lists in the batches of Ray Data are named with what arrays were measured to save, or not at all."""

import pytest
from made_programs import Builder
from raymeter.causes import data_batches
from raymeter.profile.events import Batch
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.simulate.predict import predict
from raymeter.simulate.without_data import without_data

STEPS = 4
BATCHES = 8  # of a step
WORKERS = 2
SECONDS = 0.1  # of each
HELPER = 7  # a thread of Ray Data
HELPER_TASK = "e" * 48
LINE = "/made/embed.py:12"
LOOP = "/made/train.py:3"


def make_program(array_seconds: float | None, waits: bool = False) -> Program:
    """Return a loop over batches of a dataset, whose thread waits for threads of Ray Data, or in ray.get."""
    builder = Builder()
    for step in range(STEPS):
        builder.call("put", float(step), 0.001, object=f"{step:056x}", line=LOOP)
        builder.call("wait", step + 0.1, 0.7, count=1, ready=1, thread=HELPER, by=HELPER_TASK)
        if waits:
            builder.call("get", step + 0.1, 0.8, count=1, line=LOOP)
        for number in range(BATCHES):
            worker = number % WORKERS
            batch = Batch(
                process=f"node-{worker}", by_name="MapBatches(embed)", line=LINE, function="embed",
                column="embedding", rows=1000, start=step + 0.1 * number, seconds=SECONDS,
            )  # fmt: skip
            if step == 1 and number < WORKERS:
                batch.array_seconds = array_seconds
            builder.recording.batches.append(batch)
    return builder.program()


def make_steps() -> Steps:
    times = [(float(step), step + 1.0) for step in range(STEPS)]
    return Steps(f"a pass of the loop at {LOOP}", times, "node-1", 1, LOOP)


def test_a_step_gains_what_arrays_save_in_each_worker_at_most():
    program = make_program(array_seconds=0.01)
    steps = make_steps()
    (finding,) = data_batches.find(program, steps)
    assert (finding.cause, finding.line) == ("lists of numbers", LINE)
    assert "embed returns lists of numbers in embedding, 1,000 rows at a time" in finding.title
    assert "makes a block of them in 100 ms; of an array, in 10 ms" in finding.title
    assert finding.seconds == pytest.approx(0.9 * BATCHES * SECONDS)
    (advice,) = predict(program, steps, [finding])
    assert advice.prediction.saved_seconds == pytest.approx(0.9 * BATCHES * SECONDS / WORKERS)
    assert advice.prediction.is_upper_limit


def test_the_work_of_moving_data_is_a_limit_if_the_loop_waits_for_a_library():
    program = make_program(array_seconds=0.01)
    builder = Builder(program.recording)
    for step in range(STEPS):
        builder.send(None, step + 0.2, 0.4, process="node-a", by=f"{step:048x}")
        builder.send(None, step + 0.2, 0.3, process="node-b", by=f"{step + STEPS:048x}")
    moving = without_data(builder.program(), make_steps())
    assert moving.is_upper_limit
    assert moving.saved_seconds == pytest.approx(0.4)


def test_making_the_lists_of_arrays_is_saved_too():
    program = make_program(array_seconds=0.01, waits=True)
    for batch in program.recording.batches:
        if batch.array_seconds is not None:
            batch.to_list_seconds = 0.06
    (finding,) = data_batches.find(program, make_steps())
    assert finding.seconds == pytest.approx(1.5 * BATCHES * SECONDS)
    assert finding.title.endswith(
        "Making such lists of arrays (tolist, which it calls) takes 60 ms"
    )
    # The function may call it for something else.
    assert finding.is_limit
    (finding,) = data_batches.find(make_program(array_seconds=0.01, waits=True), make_steps())
    assert not finding.is_limit


def test_a_step_that_waits_with_ray_gains_what_a_replay_says():
    program = make_program(array_seconds=0.01, waits=True)
    steps = make_steps()
    (finding,) = data_batches.find(program, steps)
    assert not finding.unseen_seconds
    assert not predict(program, steps, [finding])  # no task of this recording has these batches


@pytest.mark.parametrize("array_seconds", [None, -1.0, 0.095, 0.2])
def test_lists_for_which_arrays_save_little_or_nothing_known_are_not_named(array_seconds):
    assert not data_batches.find(make_program(array_seconds), make_steps())
