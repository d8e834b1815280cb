# SPDX-License-Identifier: Apache-2.0
"""What a step is, judged by the lines that call Ray."""

import os

import pytest
from made_programs import Builder
from raymeter.errors import UserError
from raymeter.profile.steps import Steps, find_steps

PASSES = 30
GAP = 0.01


class Driver:
    """A driver that calls Ray, one call after the other. Lines are numbers."""

    def __init__(self) -> None:
        self.builder = Builder()
        self.time = 1.0

    def call(self, line: int, name: str, number: int) -> None:
        """Submit a task."""
        task = self.task_of(name, number)
        self.add("call", line, 0.01, kind="task", task=task, name=name)
        self.builder.task(task, name, self.time, 0.01)

    def wait(self, event: str, line: int, name: str, number: int) -> None:
        """Wait for a task, or get its result."""
        objects = [f"{self.task_of(name, number)}01000000"]
        self.add(event, line, 0.05, objects=objects, count=1)

    def task_of(self, name: str, number: int) -> str:
        return f"{name}{number}".ljust(48, "_")

    def add(self, event: str, line: int | str, seconds: float, **values) -> None:
        place = line if isinstance(line, str) else f"/made/a.py:{line}"
        self.builder.call(event, self.time, seconds, line=place, **values)
        self.time += seconds + GAP

    def steps(self) -> Steps:
        return find_steps(self.builder.program())


def test_an_evaluation_every_ten_passes_is_a_part_of_the_loop():
    driver = Driver()
    for number in range(PASSES):
        driver.call(1, "train", number)
        driver.wait("get", 2, "train", number)
        if number % 10 == 9:
            driver.call(5, "evaluate", number)
            driver.wait("get", 6, "evaluate", number)
    steps = driver.steps()
    assert (steps.count, steps.line) == (PASSES, "/made/a.py:1")


def test_a_loop_that_submits_the_next_task_before_it_gets_the_last_one():
    driver = Driver()
    driver.call(1, "sample", 0)
    for number in range(PASSES):
        driver.call(3, "sample", number + 1)
        driver.wait("get", 4, "sample", number)
    steps = driver.steps()
    assert (steps.count, steps.line) == (PASSES, "/made/a.py:3")


def test_a_loop_that_submits_one_task_for_each_that_has_ended():
    driver = Driver()
    for number in range(8):
        driver.call(1, "sample", number)
    for number in range(PASSES):
        driver.wait("wait", 3, "sample", number)
        driver.wait("get", 4, "sample", number)
        driver.call(5, "sample", number + 8)
    steps = driver.steps()
    assert (steps.count, steps.line) == (PASSES, "/made/a.py:3")


def test_results_that_are_taken_one_by_one_belong_to_the_step_that_submits_them():
    driver = Driver()
    for step in range(6):
        numbers = range(8 * step, 8 * step + 8)
        for number in numbers:
            driver.call(1, "sample", number)
        for number in numbers:
            driver.wait("wait", 3, "sample", number)
            driver.wait("get", 4, "sample", number)
    steps = driver.steps()
    assert (steps.count, steps.line) == (6, "/made/a.py:1")


def test_without_the_tasks_of_ray_there_are_steps_as_well():
    driver = Driver()
    for number in range(PASSES):
        driver.call(1, "train", number)
        driver.wait("get", 2, "train", number)
    driver.builder.recording.tasks.clear()
    assert driver.steps().count == PASSES


def test_a_thread_of_a_library_is_not_the_loop_of_the_program():
    driver = Driver()
    for number in range(PASSES):
        driver.call(1, "sample", number)
        driver.wait("get", 2, "sample", number)
        for _ in range(5):
            driver.add("wait", "/venv/lib/python3.11/threading.py:982", 0.001, thread=7)
    driver.add("wait", "/venv/lib/python3.11/threading.py:982", 60.0, thread=7)
    steps = driver.steps()
    assert (steps.count, steps.line) == (PASSES, "/made/a.py:1")


def test_ending_a_compiled_graph_is_one_call_of_the_user():
    driver = Driver()
    for number in range(8):
        driver.call(1, "setup", number)
        driver.wait("get", 1, "setup", number)
    calls = driver.builder.recording.calls
    for _ in range(PASSES):
        driver.add("channel", 3, 0.001)
        driver.add("get", 3, 0.05)
        driver.add("get", 3, 0.05)
    for number in range(40):
        driver.call(4, "cancel", number)
        driver.wait("get", 4, "cancel", number)
    for call in calls:
        if call.line != "/made/a.py:3":
            call.graph_function = "teardown"
    steps = driver.steps()
    assert (steps.count, steps.line) == (PASSES, "/made/a.py:3")
    assert max(end - start for start, end in steps.times) < 0.2


def test_a_loop_that_sets_up_workers_is_none_of_steps():
    driver = Driver()
    for number in range(8):
        driver.call(1, "setup", number)
        driver.wait("get", 2, "setup", number)
    for number in range(6):
        driver.call(3, "train", number)
        driver.add("wait", 4, 0.3)
        driver.wait("get", 5, "train", number)
    steps = driver.steps()
    assert (steps.count, steps.line) == (6, "/made/a.py:3")


def test_an_evaluation_in_the_last_pass_does_not_end_the_loop():
    driver = Driver()
    for number in range(5):
        driver.call(1, "train", number)
        if number == 4:
            driver.call(5, "evaluate", number)
            driver.wait("get", 6, "evaluate", number)
        driver.wait("get", 2, "train", number)
    steps = driver.steps()
    assert (steps.count, steps.line) == (5, "/made/a.py:1")


def test_a_named_line_with_several_calls_begins_one_step_with_them():
    driver = Driver()
    for number in range(PASSES):
        driver.call(1, "train", number)
        driver.wait("get", 1, "train", number)
    assert find_steps(driver.builder.program(), "a.py:1").count == PASSES


def test_a_named_line_begins_a_step_in_each_pass_of_its_loop():
    driver = Driver()
    for number in range(PASSES):
        driver.call(1, "train", number)
        driver.wait("get", 2, "train", number)
    steps = find_steps(driver.builder.program(), "a.py:2")
    assert (steps.count, steps.line) == (PASSES, "/made/a.py:2")
    lengths = [end - start for start, end in steps.times[:-1]]
    assert max(lengths) < 1.01 * min(lengths)


def test_each_call_of_a_named_line_is_a_step_if_nothing_lies_between_them():
    driver = Driver()
    for number in range(PASSES):
        driver.call(1, "train", number)
    assert find_steps(driver.builder.program(), "a.py:1").count == PASSES


def make_epochs(line: str, frames: bool = False) -> Driver:
    """Return a driver with three epochs of ten calls of a line, and a call of another line after each."""
    driver = Driver()
    for number in range(PASSES):
        values = {"frames": [2 + number // 10, 1]} if frames else {}
        driver.add("call", line, 0.01, kind="task", task=driver.task_of("train", number), **values)
        if number % 10 == 9:
            driver.wait("get", 9, "train", number)
    return driver


def test_each_call_of_a_named_line_is_a_step_in_several_epochs():
    program = make_epochs("/made/train.py:28").builder.program()
    steps = find_steps(program, "train.py:28")
    assert steps.count == PASSES
    assert steps.times[0][0] == 1.0


@pytest.mark.parametrize("frames", [True, False])
def test_the_calls_of_a_comprehension_in_a_named_line_begin_one_step(frames, tmp_path):
    path = tmp_path / "train.py"
    path.write_text("refs = [worker.train.remote() for worker in workers]")
    os.utime(path, (0, 0))
    program = make_epochs(f"{path}:1", frames).builder.program()
    assert find_steps(program, "train.py:1").count == 3


@pytest.mark.parametrize(
    "name", ["train.py:28", "./train.py:28", "made/train.py:28", "/made/train.py:28"]
)
def test_a_named_line_is_one_of_a_whole_file_name(name):
    driver = make_epochs("/made/train.py:28")
    driver.builder.recording.calls[0].line = "/made/pretrain.py:28"
    assert find_steps(driver.builder.program(), name).count == PASSES - 1


def test_a_part_of_a_file_name_is_no_name_of_a_line():
    program = make_epochs("/made/pretrain.py:28").builder.program()
    with pytest.raises(UserError):
        find_steps(program, "train.py:28")


def test_a_line_without_a_call_is_not_recommended_and_each_recommended_name_is_accepted():
    driver = Driver()
    for number in range(3):
        driver.call(1, "work", number)
        driver.wait("get", 2, "work", number)
    driver.call(5, "rare", 9)
    program = driver.builder.program()
    with pytest.raises(UserError) as caught:
        find_steps(program, "train.py:28")
    asked, text = str(caught.value).split(": no recorded call", 1)
    assert asked == "--step train.py:28"
    assert "train.py:28" not in text
    for name in ("a.py:1", "a.py:2", "a.py:5", "work"):
        assert name in text
        find_steps(program, name)
    assert "rare" not in text


def test_a_task_that_ran_once_is_no_step_and_the_error_says_so():
    driver = Driver()
    driver.call(1, "once", 1)
    with pytest.raises(UserError, match="only 1 task of this name is recorded"):
        find_steps(driver.builder.program(), "once")


def test_without_calls_the_error_recommends_no_name():
    with pytest.raises(UserError, match="leave out --step"):
        find_steps(Driver().builder.program(), "train.py:28")


def test_a_program_that_is_a_library_has_steps():
    driver = Driver()
    for _ in range(PASSES):
        driver.add("call", "/venv/lib/python3.11/site-packages/tool/run.py:9", 0.01)
        driver.add("get", "/venv/lib/python3.11/site-packages/tool/run.py:10", 0.05)
    assert driver.steps().count == PASSES


def test_a_pause_in_which_ray_is_started_again_is_not_a_typical_pass():
    driver = Driver()
    for number in range(PASSES):
        driver.call(3, "sample", number)
        driver.wait("get", 4, "sample", number)
        if number == PASSES // 2:
            driver.time += 5.0
            driver.add("call", 2, 0.1, kind="actor", name="Sampler.__init__")
    steps = driver.steps()
    assert (steps.count, steps.line) == (PASSES, "/made/a.py:3")


@pytest.mark.parametrize("messages", [[], [1]])
def test_a_program_without_a_loop_begins_with_the_first_large_argument_also_of_a_constructor(
    messages,
):
    driver = Driver()
    driver.add("call", 1, 0.2, kind="actor", messages=messages)
    second = driver.time
    driver.call(2, "read", 1)
    driver.wait("get", 3, "read", 1)
    steps = driver.steps()
    begin, _ = steps.times[0]
    assert steps.is_whole_program
    assert begin == (1.0 if messages else second)


def add_warm_up(driver: Driver, is_start: bool) -> None:
    """Wait for a first task, whose worker starts meanwhile, or was there before."""
    builder = driver.builder
    began = driver.time
    task = driver.task_of("warm", 0)
    driver.add("call", 1, 0.01, kind="task", task=task, name="warm")
    process = builder.process_of("warm")
    for item in builder.recording.processes:
        if item.process == process:
            item.start = began + 4.8 if is_start else 0.0
    builder.task(task, "warm", began + 4.9, 0.1)
    builder.recording.tasks[-1].type = "NORMAL_TASK"
    builder.recording.tasks[-1].submitted = began + 0.01
    driver.add("get", 2, 5.0, objects=[f"{task}01000000"], count=1)


@pytest.mark.parametrize(("is_start", "count"), [(True, PASSES), (False, 1)])
def test_a_long_wait_for_workers_before_the_loop_is_no_reason_against_its_steps(is_start, count):
    """The loop takes 2.4 of 7.5 seconds, which is too little only if the rest is work."""
    driver = Driver()
    add_warm_up(driver, is_start)
    for number in range(PASSES):
        driver.call(3, "train", number)
        driver.wait("get", 4, "train", number)
    assert driver.steps().count == count


@pytest.mark.parametrize(("items", "seconds", "line", "recorded"), [
    (120, 0.001, 2, 1),
    (120, 0.001, 2, 2 / 3),  # of the waits: passes without one are joined
    (120, 0.05, 4, 1),  # such as steps of training, in epochs
    (20, 0.001, 4, 1),
])  # fmt: skip
def test_very_many_short_calls_of_an_actor_are_a_part_of_the_loop_around_them(
    items, seconds, line, recorded, tmp_path
):
    path = tmp_path / "program.py"
    path.write_text(
        "for step in range(6):\n"
        "    done = rollout.generate.remote(step)\n"
        "    for _ in range(count):\n"
        "        sample = ray.get(queue.get.remote())\n"
    )
    os.utime(path, (0, 0))
    driver = Driver()
    for step in range(6):
        driver.add("call", f"{path}:2", 0.0, kind="method", task=driver.task_of("generate", step))
        for number in range(items):
            values = {"kind": "method", "actor": "queue"}
            task = driver.task_of("get", items * step + number)
            driver.builder.call(
                "call", driver.time, seconds / 10, line=f"{path}:4", task=task, **values
            )
            if recorded == 1 or number % 3:
                driver.builder.call(
                    "get",
                    driver.time + seconds / 10,
                    seconds / 2,
                    line=f"{path}:4",
                    objects=[f"{task}01000000"],
                    count=1,
                )
            driver.time += seconds
    assert driver.steps().line == f"{path}:{line}"
