# SPDX-License-Identifier: Apache-2.0
"""A program without a problem of data says what it waits for."""

import pytest
from made_programs import Builder, make_loop, make_loop_profile, make_steps
from raymeter.profile.awaited import MAX_DEPTH, Splitter
from raymeter.profile.events import Run, Task
from raymeter.report import terminal
from raymeter.report.waiting import say_waiting


def make_run(cpu_share: float) -> Run:
    return Run("node-1", by_name="Trainer.train", code_seconds=1.0, cpu_seconds=cpu_share)


def test_the_task_that_is_awaited_is_named():
    text = say_waiting(make_loop(send=0.002), make_steps())
    assert text == (
        ", which waits 54 % of its time: 39 % for Trainer.train, 15 % for arguments or results of Trainer.train"
    )
    answer = " ".join(terminal.render(make_loop_profile(send=0.002)).split())
    assert f"{text}: not your problem." in answer


def test_it_says_whether_the_task_computes():
    program = make_loop(send=0.002)
    program.recording.runs.append(make_run(0.9))
    assert "Trainer.train (it computes)," in say_waiting(program, make_steps())
    program.recording.runs[0] = make_run(0.1)
    assert "Trainer.train (it waits itself)," in say_waiting(program, make_steps())


def test_a_task_that_awaits_something_waits_itself_although_its_own_code_computes():
    program = make_loop(send=0.002)
    run = Run("node-1", kind="coroutine", by_name="Trainer.train", code_seconds=0.001)
    run.cpu_seconds = 0.001
    run.awaited_seconds = 1.0
    program.recording.runs.append(run)
    assert "Trainer.train (it waits itself)," in say_waiting(program, make_steps())


def test_a_step_that_hardly_waits_says_nothing():
    assert not say_waiting(make_loop(send=0.08), make_steps())
    assert not say_waiting(Builder().program(), make_steps())


def test_without_the_tasks_of_ray_it_still_says_that_it_waits():
    program = make_loop(send=0.002, has_tasks=False)
    assert say_waiting(program, make_steps()).endswith("for its tasks")


@pytest.mark.parametrize("length", [2, MAX_DEPTH + 5])
def test_all_of_a_wait_for_a_chain_of_tasks_is_in_its_parts(length):
    builder = Builder()
    last = ""
    for number in range(length):
        task = f"{number:048x}"
        references = [f"{last}01000000"] if last else []
        builder.call(
            "call", 0.01, 0.001, kind="task", task=task, name="link", references=references
        )
        begin = 1.0 + number
        end = begin + 1.0
        builder.recording.tasks.append(Task(
            task, "link", "NORMAL_TASK", pid=7, submitted=0.02, waits_for_node=begin, running=begin, finished=end,
            execute=(begin, end),
        ))  # fmt: skip
        last = task
    wait = builder.call("get", 1.0, float(length), objects=[f"{last}01000000"])
    parts = Splitter(builder.program()).split(wait)
    assert sum(part.seconds for part in parts) == pytest.approx(length, abs=0.01)
