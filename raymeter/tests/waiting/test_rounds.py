# SPDX-License-Identifier: Apache-2.0
"""Rounds of tasks that wait for their longest one: when they are named, and what they would save."""

import os
from pathlib import Path

import pytest
from made_programs import Builder
from raymeter.causes import rounds, waiting
from raymeter.profile.events import Cluster, Run
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.simulate.predict import predict

STEPS = 4
ROUNDS = 3  # in each step
SECONDS = (0.2, 0.05, 0.05, 0.05)  # of the tasks of a round
ROUND_SECONDS = 0.21
STEP_SECONDS = 0.65
CHUNKS = """
for step in range(4):
    for chunk in chunks:
        answers += ray.get([answer.remote(prompt) for prompt in chunk])
"""
STATE = """
for step in range(4):
    for chunk in chunks:
        state = ray.get([answer.remote(prompt, state) for prompt in chunk])
"""
UNCLEAR = """
for step in range(4):
    for chunk in chunks:
        answers += ray.get([answer.remote(sampler.draw()) for prompt in chunk])
"""
STEPS_OF_ROUNDS = """
for chunk in chunks:
    answers += ray.get([answer.remote(sampler.draw()) for prompt in chunk])
"""


def write_source(folder: Path, text: str) -> str:
    """Write a program that is older than the recording of one; return the line of its only get."""
    path = folder / "program.py"
    path.write_text(text)
    os.utime(path, (0, 0))
    lines = text.splitlines()
    number = next(number for number, line in enumerate(lines, 1) if "ray.get" in line)
    return f"{path}:{number}"


def make_rounds(
    line: str,
    seconds: tuple[float, ...] = SECONDS,
    kind: str = "NORMAL_TASK",
    computing: float = 0.0,
    puts_weights: bool = False,
) -> Program:
    """Return a driver with rounds of four tasks, which compute for a share of their time.

    puts_weights: before each round, for its tasks.
    """
    builder = Builder()
    for step in range(STEPS):
        for number in range(ROUNDS):
            begin = step * STEP_SECONDS + number * ROUND_SECONDS
            weights = f"{'e' * 24}{step:016x}{number:016x}"
            references = [weights] if puts_weights else []
            if puts_weights:
                builder.call("put", begin - 0.001, 0.0005, object=weights, line="/made/a.py:2")
            names = [f"{step:016x}{number:016x}{worker:016x}" for worker in range(len(seconds))]
            for worker, name in enumerate(names):
                place = f"answer-{worker}"
                builder.call(
                    "call", begin + worker / 10_000, 0.00005, task=name, line=line,
                    references=references,
                )  # fmt: skip
                builder.task(name, place, begin + 0.001, seconds[worker])
                run = Run(
                    builder.process_of(place),
                    "function",
                    name,
                    cpu_seconds=computing * seconds[worker],
                )
                builder.recording.runs.append(run)
            objects = [f"{name}01000000" for name in names]
            end = begin + 0.002 + max(seconds)
            start = begin + 0.0015
            builder.call("get", start, end - start, objects=objects, count=len(names), line=line)
    for task in builder.recording.tasks:
        task.type = kind
    builder.recording.clusters = [Cluster(cpus=8.0)]
    return builder.program()


def make_steps() -> Steps:
    times = [(STEP_SECONDS * step, STEP_SECONDS * (step + 1) - 0.01) for step in range(STEPS)]
    return Steps("a pass", times, "node-1", 1, "/made/a.py:1")


def make_steps_of_rounds(program: Program) -> Steps:
    gets = [call for call in program.recording.calls if call.event == "get"]
    times = [(call.start - 0.0015, call.end) for call in gets]
    return Steps("a pass", times, "node-1", 1, "/made/a.py:1")


def test_rounds_that_do_not_need_each_other_would_keep_all_workers_busy(tmp_path):
    program = make_rounds(write_source(tmp_path, CHUNKS))
    (finding,) = rounds.find(program, make_steps())
    assert finding.cause == rounds.CAUSE
    assert not finding.is_limit
    (advice,) = predict(program, make_steps(), [finding])
    # Three rounds of 0.2 s; the tasks take 3 * 0.35 s / 4 workers.
    assert advice.prediction.saved_seconds == pytest.approx(0.6 - 0.2625, rel=0.25)


def test_rounds_of_which_the_code_shows_nothing_have_an_upper_limit(tmp_path):
    (finding,) = rounds.find(make_rounds(write_source(tmp_path, UNCLEAR)), make_steps())
    assert finding.is_limit
    assert finding.price == waiting.MAY_NEED


def test_rounds_that_get_new_weights_may_need_the_last_one(tmp_path):
    program = make_rounds(write_source(tmp_path, UNCLEAR), puts_weights=True)
    assert not rounds.find(program, make_steps())


def test_rounds_that_get_new_data_are_named_if_the_code_shows_no_need(tmp_path):
    program = make_rounds(write_source(tmp_path, CHUNKS), puts_weights=True)
    assert rounds.find(program, make_steps())


def test_independent_steps_that_are_a_round_have_an_upper_limit(tmp_path):
    text = STEPS_OF_ROUNDS.replace("sampler.draw()", "prompt")
    program = make_rounds(write_source(tmp_path, text))
    (finding,) = rounds.find(program, make_steps_of_rounds(program))
    assert finding.is_limit
    assert finding.price == waiting.LIMIT


def test_steps_that_are_a_round_are_not_named_if_they_may_need_the_last_one(tmp_path):
    program = make_rounds(write_source(tmp_path, STEPS_OF_ROUNDS))
    assert not rounds.find(program, make_steps_of_rounds(program))


@pytest.mark.parametrize("values", [
    {"seconds": (0.2, 0.19, 0.18, 0.2)},
    {"kind": "ACTOR_TASK"},  # which have a state
    {"computing": 1.0},  # on one core
    {"seconds": (0.0, 0.0)},  # Ray has told the times in milliseconds
])  # fmt: skip
def test_other_rounds_are_not_named(values, tmp_path):
    program = make_rounds(write_source(tmp_path, CHUNKS), **values)
    assert not rounds.find(program, make_steps())


def test_rounds_of_more_tasks_than_have_cpus_are_not_named(tmp_path):
    program = make_rounds(write_source(tmp_path, CHUNKS))
    for task in program.tasks.values():
        task.cpus = 4.0  # of the 8 of the cluster
    assert not rounds.find(program, make_steps())


def test_rounds_in_several_runs_of_a_function_are_not_named(tmp_path):
    program = make_rounds(write_source(tmp_path, CHUNKS))
    gets = [call for call in program.recording.calls if call.event == "get"]
    for number, call in enumerate(gets):
        call.frames = [number]
    assert not rounds.find(program, make_steps())


def test_a_round_that_needs_the_last_one_is_not_named(tmp_path):
    assert not rounds.find(make_rounds(write_source(tmp_path, STATE)), make_steps())
