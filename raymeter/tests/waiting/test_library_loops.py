# SPDX-License-Identifier: Apache-2.0
"""Steps and calls of loops inside of a library, which one line of the user's code has started."""

from itertools import pairwise

import pytest
from made_programs import LINE, Builder
from raymeter.profile.events import Task
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps, find_steps
from raymeter.simulate.without_data import without_data

PASSES = 6
PASS_SECONDS = 0.2
SUBMISSIONS = 8
THREAD = 1
HELPER = 7
HELPER_TASK = "e" * 48
EPOCHS_BEGIN = 5.0


def task_of(step: int, number: int) -> str:
    return f"{step:024x}{number:024x}"


def make_pool(helper_line: str = "", others: int = 0) -> Program:
    """Return a pool: a thread sends 8 messages of 20 ms in each pass, and another one waits for the results."""
    builder = Builder()
    for step in range(PASSES):
        begin = 1.0 + PASS_SECONDS * step
        for number in range(SUBMISSIONS):
            start = begin + 0.02 * number
            task = task_of(step, number)
            call = builder.call(
                "call", start, 0.019, kind="method", task=task, name="Pool.run", line=LINE
            )
            builder.send(call, start + 0.001, 0.01)
            builder.task(task, "Pool.run", start + 0.019, 0.0005, actor="a")
        for number in range(SUBMISSIONS):
            start = begin + 0.165 + 0.002 * number
            owner = task_of(step, number) if number >= others else f"{number:048x}"[::-1]
            objects = [f"{owner}01000000"]
            values = {
                "objects": objects,
                "count": 1,
                "thread": HELPER,
                "by": HELPER_TASK,
                "line": helper_line,
            }
            builder.call("wait", start, 0.0005, ready=1, **values)
            builder.call("get", start + 0.001, 0.0005, **values)
    return builder.program()


def lengths_of(steps: Steps) -> list[float]:
    return [end - start for start, end in steps.times]


def test_a_thread_that_waits_for_the_tasks_of_another_one_belongs_to_it():
    program = make_pool()
    assert {call.thread for call in program.recording.calls} == {THREAD}
    steps = find_steps(program)
    assert (steps.count, steps.line) == (PASSES, LINE)
    moving = without_data(program, steps)
    assert moving.saved_seconds > 0.7 * PASS_SECONDS


@pytest.mark.parametrize("line", ["/made/train.py:90"])
def test_a_thread_of_the_user_stays_one_of_its_own(line):
    program = make_pool(line)
    assert {call.thread for call in program.recording.calls} == {THREAD, HELPER}


def test_calls_of_a_thread_that_were_joined_follow_each_other():
    calls = make_pool().recording.calls
    assert all(before.end <= after.start + 1e-9 for before, after in pairwise(calls))


def test_a_statement_that_submits_a_task_for_each_that_has_ended_is_one_step():
    builder = Builder()
    time = 1.0
    for step in range(PASSES):
        for number in range(SUBMISSIONS + 2):
            if number >= 2:
                objects = [f"{task_of(step, number - 2)}01000000"]
                builder.call("get", time, 0.01, objects=objects, count=1, line=LINE)
                time += 0.011
            if number < SUBMISSIONS:
                task = task_of(step, number)
                builder.call("call", time, 0.001, kind="method", task=task, name="A.run", line=LINE)
                builder.task(task, "A.run", time + 0.001, 0.005, actor="a")
                time += 0.002
    steps = find_steps(builder.program())
    assert steps.count == PASSES
    assert max(lengths_of(steps)) < 1.2 * min(lengths_of(steps))


def make_iterator(instructions: tuple[int, int]) -> Program:
    """Return a loop over the results of a library, which is asked for them one by one, with two tasks at a time.

    The library submits the first two tasks when the loop begins, and each other one when it is asked for a result.
    In some passes, both results are taken before the next task is submitted.
    """
    builder = Builder()
    time = 1.0
    begin, ask = instructions
    for step in range(PASSES):
        waiting: list[str] = []
        for number in range(SUBMISSIONS):
            is_empty = number == 4 and step % 2 == 0
            while len(waiting) == 2 or (is_empty and waiting):
                objects = [f"{waiting.pop(0)}01000000"]
                builder.call("get", time, 0.01, objects=objects, count=1, line=LINE)
                time += 0.011
            task = task_of(step, number)
            waiting.append(task)
            values = {"name": "A.run", "line": LINE, "instruction": begin if number < 2 else ask}
            builder.call("call", time, 0.001, kind="method", task=task, **values)
            builder.task(task, "A.run", time + 0.001, 0.005, actor="a")
            time += 0.002
        objects = [f"{task}01000000" for task in waiting]
        builder.call("get", time, 0.01, objects=objects, count=2, line=LINE)
        time += 0.011
    return builder.program()


def test_a_loop_over_results_of_a_library_begins_with_the_instruction_that_calls_it():
    assert find_steps(make_iterator((10, 34))).count == PASSES
    assert find_steps(make_iterator((-1, -1))).count > PASSES


def test_a_pipeline_that_is_never_empty_keeps_its_passes():
    builder = Builder()
    for number in range(30):
        time = 1.0 + 0.02 * number
        task = task_of(0, number)
        builder.call("call", time, 0.001, kind="method", task=task, name="A.run", line=LINE)
        builder.task(task, "A.run", time + 0.001, 0.005, actor="a")
        if number:
            objects = [f"{task_of(0, number - 1)}01000000"]
            builder.call("get", time + 0.002, 0.01, objects=objects, count=1, line=LINE)
    assert find_steps(builder.program()).count >= 28


def test_a_program_without_steps_whose_threads_wait_for_each_other_is_never_said_to_move_nothing():
    program = make_pool(others=SUBMISSIONS)
    end = 1.0 + PASSES * PASS_SECONDS
    moving = without_data(program, Steps("the program", [(1.0, end)]))
    assert moving.is_upper_limit
    assert moving.saved_seconds > 0.5 * PASSES * PASS_SECONDS


def make_training(entries: list[int]) -> Program:
    """Return a loop whose one statement runs a library's function, which sends and gets in four rounds, and then puts.

    entries: the number of the run of this function in each pass; 0 if it is not known.
    """
    builder = Builder()
    time = 1.0
    for step, entry in enumerate(entries):
        values = {"line": LINE, "entry": entry}
        for number in range(4):
            task = task_of(step, number)
            builder.call("call", time, 0.001, kind="method", task=task, name="A.apply", **values)
            builder.task(task, "A.apply", time + 0.001, 0.02, actor="a")
            objects = [f"{task}01000000"]
            builder.call("get", time + 0.002, 0.02, objects=objects, count=1, **values)
            time += 0.03
        builder.call("put", time, 0.001, object=f"{step:056x}", **values)
        time += 0.01
    return builder.program()


def test_a_statement_that_runs_a_loop_of_a_library_is_one_step():
    passes = list(range(1, PASSES + 1))
    steps = find_steps(make_training(passes))
    assert (steps.count, steps.line) == (PASSES, LINE)
    assert find_steps(make_training([0] * PASSES)).count == 4 * PASSES


def test_a_program_that_is_one_statement_has_the_steps_of_the_loop_inside():
    assert find_steps(make_training([1] * PASSES)).count == 4 * PASSES


def make_epochs(
    begin: int, ask: int, passes: int = PASSES, entry: int = 0, calls_of_run: int = 3, **others
) -> Program:
    """Return a loop over epochs, in which one line makes all calls: it begins an iteration, and asks for batches.

    begin, ask: these two instructions; entry: the number of the first run of the library's function, which makes so
    many calls, if it is known. Before it, the driver does other things for as long as two epochs take. others: what
    comes before and after that.
    """
    builder = Builder()
    add_others(builder, **others)
    time = EPOCHS_BEGIN - 2 * PASS_SECONDS
    builder.call("put", time, 0.01, object="c" * 56, line="/made/train.py:3")
    for step in range(passes):
        time = EPOCHS_BEGIN + PASS_SECONDS * step
        for number in range(3):
            values = {"name": "Stats.update", "instruction": begin if number == 0 else ask}
            task = task_of(step, number)
            start = time + number * PASS_SECONDS / 3
            if entry:
                values["entry"] = entry + (3 * step + number) // calls_of_run
            builder.call("call", start, 0.001, kind="method", task=task, line=LINE, **values)
    return builder.program()


def add_others(
    builder: Builder, before: float = 0.0, after: float = 0.0, is_start: bool = False
) -> None:
    """Add a call that submits a task, which ends after so many seconds, and a wait for one after the epochs.

    is_start: the worker starts in most of the time before, and no call of the thread waits for it, as in a library.
    """
    if before:
        begin = EPOCHS_BEGIN - 2 * PASS_SECONDS - before
        end = begin + before
        name = "b" * 48
        builder.call(
            "call", begin, 0.01, kind="task", task=name, name="read", line="/made/train.py:2"
        )
        process = builder.process_of("read")
        builder.recording.processes[-1].start = end - 0.2 if is_start else begin - 1.0
        executed = end - 0.1 if is_start else begin + 0.1
        task = Task(name, "read", "NORMAL_TASK", pid=builder.pid_of(process), submitted=begin)
        task.execute = (executed, end)
        task.finished = end
        builder.recording.tasks.append(task)
    if after:
        begin = EPOCHS_BEGIN + PASS_SECONDS * PASSES
        objects = [f"{'b' * 48}01000000"]
        builder.call("get", begin, after, objects=objects, count=1, line="/made/train.py:9")


@pytest.mark.parametrize(("others", "count"), [
    ({"before": 0.5, "after": 0.5}, PASSES),
    ({"after": 3.0}, 1),
    ({"before": 3.0}, 1),
    ({"before": 3.0, "is_start": True}, PASSES),
])  # fmt: skip
def test_runs_of_a_statement_are_steps_if_little_work_is_outside_of_them(others, count):
    """What a worker takes to start is no work. The runs take 1.2 s, the rest of the program 0.4 s and the others."""
    steps = find_steps(make_epochs(10, 34, **others))
    assert steps.count == count


@pytest.mark.parametrize("program", [make_epochs(10, 34), make_epochs(10, 10, entry=7)])
def test_a_statement_that_makes_all_calls_of_a_loop_is_one_step(program):
    steps = find_steps(program)
    assert (steps.count, steps.line) == (PASSES, LINE)
    assert max(lengths_of(steps)[:-1]) < 1.01 * PASS_SECONDS


@pytest.mark.parametrize(
    "program",
    [
        make_epochs(10, 34, passes=2),
        make_epochs(10, 10),
        make_epochs(10, 10, entry=7, calls_of_run=1),  # a row of calls of Ray itself
    ],
)
def test_a_row_of_calls_from_one_line_is_no_loop(program):
    assert find_steps(program).is_whole_program
