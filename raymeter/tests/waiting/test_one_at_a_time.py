# SPDX-License-Identifier: Apache-2.0
"""Tasks that a program runs one after the other: what a step is then, and what is said about them."""

import os
from itertools import pairwise
from pathlib import Path

import pytest
from made_programs import Builder
from raymeter.advice import Profile
from raymeter.causes import find_all, waiting
from raymeter.profile.events import Cluster, Run
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps, find_steps
from raymeter.report.terminal import render
from raymeter.simulate.predict import predict

PASSES = 6
TASKS = 4  # in each pass
TASK_SECONDS = 0.04
CALL_SECONDS = 0.001
GAP = 0.0002  # between events
LINE = "/made/train.py:28"
MAIN = 1  # the number of the frame of the main function
LOOP = """
for step in range(6):
    for question in questions:
        answers.append(ray.get(ask.remote(question)))
"""
LISTS = """
for step in range(6):
    [ray.get(ask.remote(question)) for question in range(8)]
"""
TURNS = """
def ask(history):
    return ray.get(llm.remote(history))

def solve(question):
    history = [question]
    [history.append(ask(history)) for _ in range(4)]

for question in range(6):
    solve(question)
"""
STAGES = """
for step in range(6):
    for question in questions:
        answers.append(ray.get(ask.remote(question, state)))
    state = combine(answers)
"""
STATE = """
state = 0
for _ in range(24):
    state = ray.get(advance.remote(state))
"""


def make_serial(
    line: str = LINE, frames: str = "", actors: int = 0, computing: float = 0.0, cpus: float = 8.0
) -> Program:
    """Return a driver that waits for four tasks one after the other in each of six passes.

    `frames` says which run of which code makes a call: one for each "pass", for each "task" in each pass, or none.
    """
    builder = Builder()
    builder.recording.clusters.append(Cluster(cpus))
    time = 1.0
    for step in range(PASSES):
        for number in range(TASKS):
            task = f"{step:024x}{number:024x}"
            actor = f"actor-{number % actors}" if actors else ""
            values = {"line": line, "frames": name_frames(frames, step, number)}
            kind = "method" if actors else "task"
            builder.call(
                "call", time, CALL_SECONDS, kind=kind, task=task, name="ask", actor=actor, **values
            )
            time += CALL_SECONDS
            add_task(builder, task, actor, time + GAP, computing)
            waiting_seconds = TASK_SECONDS + 2 * GAP
            builder.call(
                "get", time, waiting_seconds, objects=[f"{task}01000000"], count=1, **values
            )
            time += waiting_seconds + GAP
    return builder.program()


def name_frames(frames: str, step: int, number: int) -> list[int]:
    """Return the numbers of the frames of a call."""
    of_pass = MAIN + 1 + step
    if frames == "pass":
        return [of_pass, MAIN]
    if frames == "task":
        return [100 + TASKS * step + number, of_pass, MAIN]
    return [MAIN]


def add_task(builder: Builder, task: str, actor: str, start: float, computing: float) -> None:
    """Add a task, and its run with the share of its time in which it computes."""
    process = builder.process_of("ask")
    builder.task(task, "ask", start, TASK_SECONDS, actor=actor)
    added = builder.recording.tasks[-1]
    added.cpus = 0.0 if actor else 1.0
    added.deserialise = (start, start)
    added.execute = (start, start + TASK_SECONDS)
    added.store = None
    run = Run(
        process, "function", task, start=start, seconds=TASK_SECONDS, code_seconds=TASK_SECONDS,
        cpu_seconds=computing * TASK_SECONDS,
    )  # fmt: skip
    builder.recording.runs.append(run)


def write_source(folder: Path, text: str) -> str:
    """Write a program that is older than the recording of one; return the line of its only get."""
    path = folder / "program.py"
    path.write_text(text)
    os.utime(path, (0, 0))
    lines = text.splitlines()
    number = next(number for number, line in enumerate(lines, 1) if "ray.get" in line)
    return f"{path}:{number}"


def advise(program: Program) -> Profile:
    steps = find_steps(program)
    findings = find_all(program, steps)
    return Profile(program, steps, [], findings, predict(program, steps, findings))


def saved_share(profile: Profile) -> float:
    """Return the share of a step that the only advice saves."""
    (advice,) = profile.advice
    assert advice.finding.cause == waiting.CAUSE
    return advice.prediction.saved_seconds / profile.steps.seconds


@pytest.mark.parametrize("frames", ["pass", "task"])
def test_without_the_code_the_calls_of_one_run_of_a_function_have_an_upper_limit(frames):
    profile = advise(make_serial(frames=frames))
    assert profile.steps.count == PASSES
    assert 0.7 < saved_share(profile) < 0.76
    assert_is_limit(profile)


def test_a_function_that_is_called_in_turns_has_an_upper_limit(tmp_path):
    line = write_source(tmp_path, TURNS)
    profile = advise(make_serial(line, frames="task"))
    assert profile.steps.count == PASSES
    assert_is_limit(profile)


def assert_is_limit(profile: Profile) -> None:
    (advice,) = profile.advice
    assert advice.prediction.is_upper_limit
    assert advice.finding.price == waiting.MAY_NEED
    assert advice.finding.change.startswith("If these tasks do not need each other")


@pytest.mark.parametrize("text", [LOOP, LISTS])
def test_passes_that_surely_do_not_need_each_other_have_a_prediction(text, tmp_path):
    line = write_source(tmp_path, text)
    profile = advise(make_serial(line, frames="pass"))
    assert profile.steps.count == PASSES
    assert 0.7 < saved_share(profile) < 0.76
    assert not profile.advice[0].prediction.is_upper_limit
    assert profile.advice[0].finding.change.startswith("If these tasks do not need each other")


@pytest.mark.parametrize(("text", "count"), [(LOOP, 1), (TURNS, 0)])
def test_large_arguments_may_hold_the_last_result_if_it_is_not_sure_that_they_do_not(
    text, count, tmp_path
):
    program = make_serial(write_source(tmp_path, text), frames="pass")
    for number, call in enumerate(program.submissions.values()):
        call.messages.append(number)
    steps = find_steps(program)
    assert len(waiting.find(program, steps)) == count


def test_a_large_argument_that_was_not_recorded_may_hold_the_last_result_too(tmp_path):
    program = make_serial(write_source(tmp_path, TURNS), frames="pass")
    for call in program.submissions.values():
        call.left_out_messages = 1
    assert not waiting.find(program, find_steps(program))


def test_the_code_of_a_loop_shows_nothing_about_the_next_run_of_its_function(tmp_path):
    program = make_serial(write_source(tmp_path, LISTS), frames="pass")
    passes = find_steps(program)
    starts = passes.starts[::2]
    _, end = passes.times[-1]
    times = list(pairwise([*starts, end]))
    steps = Steps("two passes", times, passes.process, passes.thread, passes.line)
    (finding,) = waiting.find(program, steps)
    assert finding.seconds / (2 * TASKS * TASK_SECONDS) < 0.76


def test_a_loop_between_the_step_and_the_line_may_need_its_last_pass(tmp_path):
    line = write_source(tmp_path, STAGES)
    program = make_serial(line)
    _, end = find_steps(program).times[-1]
    steps = Steps("the program", [(1.0, end)])
    (finding,) = waiting.find(program, steps)
    assert finding.is_limit


def test_passes_that_cannot_be_told_apart_have_an_upper_limit(tmp_path):
    line = write_source(tmp_path, LOOP)
    profile = advise(make_serial(line))
    assert profile.steps.count == PASSES * TASKS
    assert 0.8 < saved_share(profile) < 0.88
    assert profile.advice[0].prediction.is_upper_limit
    assert profile.advice[0].finding.line == line


def test_a_task_that_needs_the_result_of_the_last_one_is_no_problem(tmp_path):
    profile = advise(make_serial(write_source(tmp_path, STATE)))
    assert not profile.findings
    assert render(profile).count("problem") == 1


def test_without_the_code_of_the_program_it_is_said_that_tasks_may_not_need_each_other():
    profile = advise(make_serial())
    assert not profile.advice
    text = " ".join(render(profile).split())
    assert "If these tasks do not need each other, submit all of them first" in text


def test_a_program_that_was_changed_since_is_not_read(tmp_path):
    line = write_source(tmp_path, LOOP)
    file, _, _ = line.rpartition(":")
    os.utime(file, (10**9, 10**9))
    assert not advise(make_serial(line)).advice


@pytest.mark.parametrize("frames", ["pass", ""])
def test_methods_of_one_actor_are_no_problem(frames, tmp_path):
    line = write_source(tmp_path, LOOP)
    profile = advise(make_serial(line, frames, actors=1))
    assert not profile.findings


def test_the_time_of_the_tasks_is_waiting_also_if_a_library_waits_before_its_get():
    program = make_serial(frames="pass")
    for call in program.recording.calls:
        if call.event == "get":
            call.start += call.seconds - CALL_SECONDS
            call.seconds = CALL_SECONDS
    (finding,) = waiting.find(program, find_steps(program))
    assert f"{1e3 * TASKS * TASK_SECONDS:.0f} ms of waiting" in finding.title


def test_methods_of_two_actors_run_two_at_a_time():
    profile = advise(make_serial(frames="pass", actors=2))
    assert 0.45 < saved_share(profile) < 0.51


def test_tasks_that_wait_do_not_need_a_core_for_each():
    program = make_serial(frames="pass", computing=0.01)
    assert [process.cores for process in program.recording.processes] == [1, 1]
    assert saved_share(advise(program)) > 0.7


def test_tasks_that_compute_need_a_core_for_each():
    assert not advise(make_serial(frames="pass", computing=0.95)).advice


def test_no_more_tasks_run_than_ray_has_cpus_for():
    assert 0.45 < saved_share(advise(make_serial(frames="pass", cpus=2.0))) < 0.51


def test_a_task_that_waits_for_its_own_tasks_gives_its_cpu_to_them():
    program = make_serial(frames="pass", cpus=2.0)
    for task in list(program.tasks.values()):
        assert task.execute is not None
        start, end = task.execute
        inner = f"c{task.task[1:]}"
        program.tasks[inner] = type(task)(
            inner, "read", "NORMAL_TASK", task.task, cpus=1.0, execute=task.execute
        )
        program.recording.calls.append(make_inner_wait(task.task, start, end))
        program.recording.runs.append(Run(by=inner, cpu_seconds=0.001))
    steps = find_steps(program)
    (finding,) = waiting.find(program, steps)
    assert 0.45 < finding.seconds / steps.seconds < 0.51


def make_inner_wait(task: str, start: float, end: float):
    builder = Builder()
    return builder.call(
        "get", start, end - start, by=task, place="ask", count=1, objects=["d" * 56]
    )


@pytest.mark.parametrize("event", ["put", "call"])
def test_a_loop_inside_of_another_one_is_a_part_of_its_steps(event, tmp_path):
    text = """
for step in range(6):
    for question in questions:
        answers.append(ray.get(ask.remote(question)))
    train.remote(ray.put(answers))
"""
    line = write_source(tmp_path, text)
    file, _, _ = line.rpartition(":")
    program = make_serial(line)
    gets = [call for call in program.recording.calls if call.event == "get"]
    builder = Builder()
    for step, last in enumerate(gets[TASKS - 1 :: TASKS]):
        last.seconds -= CALL_SECONDS
        values = {
            "object": f"{step:056x}",
            "task": f"{step:024x}{0xE:024x}",
            "kind": "task",
            "line": f"{file}:5",
        }
        other = builder.call(event, last.end, CALL_SECONDS, **values)
        other.number = 1000 + step
        program.recording.calls.append(other)
    program.recording.calls.sort(key=lambda call: call.start)
    steps = find_steps(program)
    assert steps.line == f"{file}:5"
    assert steps.count == PASSES - 1  # after line 5, the last pass has nothing of the loop inside


def test_a_loop_whose_passes_need_each_other_has_its_passes_for_steps(tmp_path):
    line = write_source(tmp_path, STATE)
    steps = find_steps(make_serial(line, frames="pass"))
    assert steps.count == PASSES * TASKS


def test_a_loop_with_two_tasks_in_each_pass_has_its_passes_for_steps():
    program = make_serial(frames="pass", actors=2)
    for call in program.recording.calls:
        if call.actor == "actor-1" or (call.objects and int(call.objects[0][24:48], 16) % 2):
            call.line = "/made/train.py:29"
    assert find_steps(program).count == PASSES * TASKS / 2


def test_a_task_needs_the_result_of_a_task_whose_submission_was_not_recorded():
    program = make_serial()
    gets = [call for call in program.recording.calls if call.event == "get"]
    unknown, after = gets[1], gets[2]
    program.submissions.pop(unknown.objects[0][:48])
    program.submissions[after.objects[0][:48]].references = list(unknown.objects)
    waits = waiting.serial_waits(program, gets, is_sure=True)
    assert [wait.call for wait in waits] == [gets[0], *gets[3:]]
