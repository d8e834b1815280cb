# SPDX-License-Identifier: Apache-2.0
"""What comes before a function runs is not blamed on it, and has its own causes: workers, actors, CPUs, other lines."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from made_programs import Builder, make_profile
from raymeter.causes import independent_calls, new_actors, new_environments, unused_cpus
from raymeter.findings import Finding
from raymeter.inside.tasks import sums_of_parts
from raymeter.profile.effects import acts_alone
from raymeter.profile.events import Cluster, Process, RecorderCost, Run, Task
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.profile.workers import Workers
from raymeter.report import html
from raymeter.report.waiting import say_waiting
from raymeter.simulate.predict import predict

STEPS = 6
LINE = "/made/train.py:28"
GIB = 2**30
ACTORS = """
for step in range(6):
    actor = Scorer.remote({argument})
    ray.get(actor.score.remote())

class Scorer:
    def __init__(self, rows=None):
        self.weights = torch.ones(4)

import torch
"""
TWO_LINES = """
class Trainer:
    def run(self, batch):
        {train}
        return batch

class Judge:
    def run(self, batch):
        return batch.mean()

for step in range(6):
    loss = ray.get(trainer.run.remote(batch))
    {between}
    score = ray.get(judge.run.remote({argument}))
"""


def make_steps(line: str = LINE) -> Steps:
    times = [(1.0 + step, 2.0 + step) for step in range(STEPS)]
    return Steps(f"a pass of the loop at {line}", times, "node-1", 1, line)


def write_source(folder: Path, text: str) -> Path:
    """Write a program that is older than the recording of one."""
    path = folder / "program.py"
    path.write_text(text)
    os.utime(path, (0, 0))
    return path


def add_worker(builder: Builder, start: float) -> Process:
    """Add a process that begins to record at a time."""
    number = len(builder.recording.processes)
    process = Process(f"node-{number}", pid=1000 + number, role="worker", start=start)
    builder.recording.processes.append(process)
    return process


def add_task(builder: Builder, task: Task, begin: float, end: float) -> None:
    """Add a task that runs from one time to another, when it has read its arguments."""
    task.deserialise = (begin, begin)
    task.execute = (begin, end)
    task.running = begin
    task.finished = end
    builder.recording.tasks.append(task)


def make_environments(differ: bool = True) -> Program:
    """Return a loop whose task waits 0.9 s for a worker to start in each step of one second, and runs for 10 ms."""
    builder = Builder()
    builder.recording.clusters.append(Cluster(2.0))
    for step in range(STEPS):
        begin = 1.0 + step
        name = f"{step:048x}"
        builder.call("call", begin, 0.001, kind="task", task=name, name="simulate", line=LINE)
        worker = add_worker(builder, begin + 0.8)
        task = Task(
            name, "simulate", "NORMAL_TASK", pid=worker.pid, cpus=1.0, submitted=begin + 0.001,
            waits_for_node=begin + 0.001, sent_to_worker=begin + 0.7, runtime_env=step + 1 if differ else 1,
        )  # fmt: skip
        add_task(builder, task, begin + 0.9, begin + 0.91)
        builder.call("get", begin + 0.002, 0.91, objects=[f"{name}01000000"], count=1, line=LINE)
    return builder.program()


def test_a_worker_that_starts_is_not_blamed_on_its_task():
    text = say_waiting(make_environments(), make_steps())
    assert text == ", which waits 91 % of its time for a worker to start for simulate"


def test_the_page_shows_the_workers_that_start():
    text = html.render(make_profile(make_environments(), make_steps()))
    assert "starts a process" in text


def test_a_new_runtime_env_in_each_step_is_named_with_what_starting_a_worker_takes():
    program = make_environments()
    steps = make_steps()
    (finding,) = new_environments.find(program, steps)
    assert "Workers start (1 per step), because simulate" in finding.title
    assert "only if the code of the task can do it with an argument" in finding.price
    (advice,) = predict(program, steps, [finding])
    assert not advice.prediction.is_upper_limit
    assert advice.prediction.saved_seconds == pytest.approx(0.897, abs=0.005)


def test_workers_that_start_for_another_reason_are_not_blamed_on_an_environment():
    assert not new_environments.find(make_environments(differ=False), make_steps())


@pytest.mark.parametrize(("part", "count"), [("pip", 0), ("working_dir", 0), ("env_vars", 1)])
def test_only_variables_may_become_an_argument(part, count):
    program = make_environments()
    for number, task in enumerate(program.tasks.values()):
        environment = json.dumps({part: {"name": number}, "config": {}})
        task.parts_of_env = sums_of_parts(environment)
    assert len(new_environments.find(program, make_steps())) == count


@pytest.mark.parametrize("text", ["", "{}", "no json", "[]"])
def test_an_environment_that_can_not_be_read_has_no_parts(text):
    assert sums_of_parts(text) == {}


def make_actors(path: Path, failed: bool = False, later: bool = False) -> Program:
    """Return a loop that makes an actor in each step, which is there after 0.8 s, 0.1 s of which are its `__init__`."""
    builder = Builder()
    for step in range(STEPS):
        begin = 1.0 + step
        actor = f"{step:032x}"
        creation = f"{'f' * 16}{actor}"
        name = f"{step:016x}{actor}"
        values = {"actor": actor, "line": f"{path}:3"}
        builder.call("call", begin, 0.001, kind="actor", task=creation, name="S.__init__", **values)
        worker = add_worker(builder, begin + 0.6)
        made = Task(
            creation, "S.__init__", "ACTOR_CREATION_TASK", actor=actor, pid=worker.pid,
            submitted=begin + 0.001, waits_for_node=begin + 0.001,
        )  # fmt: skip
        add_task(builder, made, begin + 0.7, begin + 0.8)
        values["line"] = f"{path}:4"
        builder.call(
            "call", begin + 0.002, 0.001, kind="method", task=name, name="S.score", **values
        )
        task = Task(
            name, "S.score", "ACTOR_TASK", actor=actor, pid=worker.pid, submitted=begin + 0.003,
            waits_for_node=begin + 0.003, failed=begin + 0.81 if failed else None,
        )  # fmt: skip
        add_task(builder, task, begin + 0.801, begin + 0.81)
        if later and step:
            earlier = f"{step - 1:032x}"
            kept = Task(
                f"{step:015x}a{earlier}", "S.score", "ACTOR_TASK", actor=earlier, submitted=begin
            )
            add_task(builder, kept, begin, begin + 0.01)
        objects = [f"{name}01000000"]
        builder.call("get", begin + 0.004, 0.807, objects=objects, count=1, line=f"{path}:4")
    return builder.program()


@pytest.mark.parametrize(("argument", "saved"), [("", 0.795), ("1", 0.795), ("rows", 0.695)])
def test_actors_of_one_step_are_named_and_init_counts_if_it_is_always_the_same(
    argument, saved, tmp_path
):
    path = write_source(tmp_path, ACTORS.format(argument=argument))
    program = make_actors(path)
    steps = make_steps(f"{path}:3")
    assert "for the actor of S.score to be created" in say_waiting(program, steps)
    (finding,) = new_actors.find(program, steps)
    assert ("is not in this number" in finding.price) == (argument == "rows")
    (advice,) = predict(program, steps, [finding])
    assert advice.prediction.saved_seconds == pytest.approx(saved, abs=0.01)


@pytest.mark.parametrize("init", ["torch.load('latest.pt')", "Weights()", "open('latest').read()"])
def test_an_init_that_may_read_what_has_changed_does_not_count(init, tmp_path):
    path = write_source(tmp_path, ACTORS.format(argument="").replace("torch.ones(4)", init))
    (finding,) = new_actors.find(make_actors(path), make_steps(f"{path}:3"))
    assert "read what has changed" in finding.price
    assert not any(saving.part == "execute" for saving in finding.savings)


@pytest.mark.parametrize("init", [
    "torch.rand(4)", "np.random.default_rng(3)", "torch.zeros(4).uniform_()", "time.time()", "random.random()"
])  # fmt: skip
def test_an_init_that_makes_something_else_each_time_does_not_count(init, tmp_path):
    text = f"{ACTORS}import numpy as np\nimport random, time\n".format(argument="")
    path = write_source(tmp_path, text.replace("torch.ones(4)", init))
    (finding,) = new_actors.find(make_actors(path), make_steps(f"{path}:3"))
    assert "since it may differ" in finding.price
    assert not any(saving.part == "execute" for saving in finding.savings)


@pytest.mark.parametrize(("code", "counts"), [
    ("return self.weights.sum()", True),
    ("self.count = 1", False),
    ("self.weights += 1", False),
    ("del self.weights", False),
    ("return torch.randn(3)", False),
])  # fmt: skip
def test_an_actor_that_has_changed_itself_is_not_as_good_as_a_new_one(code, counts, tmp_path):
    method = f"\n    def score(self):\n        {code}\n\nimport torch"
    text = ACTORS.format(argument="").replace("\nimport torch", method)
    path = write_source(tmp_path, text)
    (finding,) = new_actors.find(make_actors(path), make_steps(f"{path}:3"))
    assert any(saving.part == "execute" for saving in finding.savings) == counts


def test_an_init_that_is_defined_elsewhere_does_not_count(tmp_path):
    path = write_source(tmp_path, ACTORS.format(argument="").replace("class Scorer", "class Other"))
    (finding,) = new_actors.find(make_actors(path), make_steps(f"{path}:3"))
    assert not any(saving.part == "execute" for saving in finding.savings)


@pytest.mark.parametrize("values", [{"failed": True}, {"later": True}])
def test_actors_that_fail_or_are_used_later_can_not_be_made_once(values, tmp_path):
    path = write_source(tmp_path, ACTORS.format(argument=""))
    assert not new_actors.find(make_actors(path, **values), make_steps(f"{path}:3"))


def test_actors_that_a_library_makes_are_not_named(tmp_path):
    path = write_source(tmp_path, "\n\ndata.materialize()\n\n")
    assert not new_actors.find(make_actors(path), make_steps(f"{path}:3"))


def make_one_step() -> Steps:
    return Steps("the whole program", [(0.0, 10.0)], "node-1", 1)


def test_what_a_program_without_a_loop_makes_is_made_once(tmp_path):
    path = write_source(tmp_path, ACTORS.format(argument=""))
    assert not new_actors.find(make_actors(path), make_one_step())


@pytest.mark.parametrize(("environments", "count"), [(2, 0), (3, 1), (6, 1)])
def test_several_environments_on_a_line_of_a_program_without_a_loop_are_named(environments, count):
    program = make_environments()
    for task in program.tasks.values():
        task.runtime_env = 1 + task.runtime_env % environments
    found = new_environments.find(program, make_one_step())
    assert len(found) == count
    assert all("has a runtime_env of its own" in finding.title for finding in found)


@pytest.mark.parametrize(("cpus", "saved"), [(1.0, 5), (2.0, 4), (8.0, 0)])
def test_the_first_workers_of_a_program_without_a_loop_must_start_in_any_case(cpus, saved):
    program = make_environments()
    program.recording.clusters[0].cpus = cpus
    (finding,) = new_environments.find(program, make_one_step())
    assert [saving.part for saving in finding.savings].count("start") == saved


def make_cpus(run: Run | None = None, memory: float = 8 * GIB, **values) -> Program:
    """Return four tasks of 200 ms in each step, each of which has asked for all four CPUs."""
    builder = Builder()
    builder.recording.clusters.append(Cluster(4.0, memory))
    builder.recording.processes[0].cores = 4
    builder.process_of("ask")
    for step in range(STEPS):
        begin = 1.0 + step
        names = [f"{step:024x}{number:024x}" for number in range(4)]
        for number, name in enumerate(names):
            builder.call(
                "call",
                begin + 0.0003 * number,
                0.0002,
                kind="task",
                task=name,
                name="ask",
                line=LINE,
            )
            starts = begin + 0.002 + 0.2 * number
            task = Task(
                name, "ask", "NORMAL_TASK", pid=2, cpus=4.0, submitted=begin + 0.001,
                waits_for_node=begin + 0.001, sent_to_worker=starts, **values,
            )  # fmt: skip
            add_task(builder, task, starts, starts + 0.2)
            if run is not None:
                measured = replace(
                    run, by=name, by_name="ask", start=starts, line="/made/train.py:7"
                )
                builder.recording.runs.append(measured)
        objects = [f"{name}01000000" for name in names]
        builder.call("get", begin + 0.0015, 0.8015, objects=objects, count=4, line=LINE)
    return builder.program()


RUN = Run(
    "node-ask-0", "function", seconds=0.2, code_seconds=0.2, cpu_seconds=0.001, process_seconds=0.004, peak_bytes=2**27
)  # fmt: skip


def test_waiting_for_cpus_is_not_blamed_on_the_function():
    text = say_waiting(make_cpus(RUN), make_steps())
    assert text == (
        ", which waits 80 % of its time: 60 % for CPUs of Ray for ask, 20 % for ask (it waits itself)"
    )


def test_cpus_that_are_asked_for_and_not_used_are_named_where_that_is_said():
    program = make_cpus(RUN)
    (finding,) = unused_cpus.find(program, make_steps())
    assert (finding.line, finding.is_limit) == ("/made/train.py:7", True)
    (advice,) = predict(program, make_steps(), [finding])
    assert advice.prediction.saved_seconds == pytest.approx(0.6, abs=0.02)


def test_tasks_that_compute_save_no_more_than_the_cores_allow():
    computing = replace(RUN, cpu_seconds=0.19, process_seconds=0.2)
    program = make_cpus(computing)
    program.recording.processes[0].cores = 2
    for process in program.recording.processes:
        process.cores = 2
    (finding,) = unused_cpus.find(program, make_steps())
    assert not finding.is_limit
    (advice,) = predict(program, make_steps(), [finding])
    assert advice.prediction.saved_seconds == pytest.approx(0.4, abs=0.02)


@pytest.mark.parametrize("run", [
    None,  # nothing was measured
    replace(RUN, process_seconds=0.06),  # other threads compute
    replace(RUN, process_seconds=-1.0),  # it has had child processes
    replace(RUN, peak_bytes=2 * GIB),  # four of them would not fit
    replace(RUN, peak_bytes=0),
])  # fmt: skip
def test_tasks_that_may_need_their_cpus_are_not_named(run):
    assert not unused_cpus.find(make_cpus(run), make_steps())


def test_tasks_that_take_other_resources_are_not_named():
    assert not unused_cpus.find(make_cpus(RUN, resources=["GPU"]), make_steps())


def add_actor(program: Program, end: float, has_ended: bool = True) -> None:
    """Add an actor with all four CPUs that is made at 0.1 s, and whose process is heard of until a time."""
    cost = RecorderCost(time=end, has_ended=has_ended)
    process = Process("node-actor", pid=99, role="worker", start=0.2, recorder=cost)
    program.recording.processes.append(process)
    made = Task("a" * 48, "A.__init__", "ACTOR_CREATION_TASK", actor="a", pid=99, cpus=4.0)
    made.submitted = 0.1
    made.execute = (0.2, 0.3)
    program.recording.tasks.append(made)
    program.tasks[made.task] = made
    program.workers = Workers(program.recording)


@pytest.mark.parametrize(
    ("end", "has_ended", "count"), [(0.8, True, 1), (9.0, True, 0), (0.8, False, 0)]
)
def test_an_actor_keeps_its_cpus_until_it_has_ended(end, has_ended, count):
    program = make_cpus(RUN)
    add_actor(program, end, has_ended)
    assert len(unused_cpus.find(program, make_steps())) == count


def make_two_lines(path: Path, references: bool = False, calls_others: bool = False) -> Program:
    """Return two methods of two actors, of 0.3 and 0.4 s, whose results are got on two lines."""
    text = path.read_text().splitlines()
    numbers = [number for number, line in enumerate(text, 1) if "ray.get" in line]
    builder = Builder()
    for step in range(STEPS):
        time = 1.0 + step
        last = ""
        for number, (name, seconds) in enumerate([("Trainer.run", 0.3), ("Judge.run", 0.4)]):
            task = f"{step:024x}{number:024x}"
            actor = f"{number:032x}"
            line = f"{path}:{numbers[number]}"
            process = builder.process_of(name)
            values = {"references": [last] if last and references else []}
            builder.call(
                "call",
                time,
                0.001,
                kind="method",
                task=task,
                name=name,
                actor=actor,
                line=line,
                **values,
            )
            made = Task(
                task, name, "ACTOR_TASK", actor=actor, pid=builder.pid_of(process), submitted=time + 0.001,
                waits_for_node=time + 0.001,
            )  # fmt: skip
            add_task(builder, made, time + 0.002, time + 0.002 + seconds)
            defined = f"{path}:{3 if number == 0 else 8}"
            builder.recording.runs.append(Run(
                process, "function", task, name, line=defined, start=time + 0.002, seconds=seconds,
                code_seconds=seconds, cpu_seconds=0.01,
            ))  # fmt: skip
            if calls_others:
                builder.call(
                    "call",
                    time + 0.01,
                    0.001,
                    place=name,
                    by=task,
                    kind="method",
                    task=f"{number:048x}",
                )
            last = f"{task}01000000"
            builder.call("get", time + 0.002, seconds + 0.001, objects=[last], count=1, line=line)
            time += seconds + 0.004
    for process in builder.recording.processes:
        process.cores = 4
    return builder.program()


def find_lines(
    folder: Path, between: str = "pass", argument: str = "batch", **values
) -> list[Finding]:
    train = values.pop("train", "batch.sum()")
    text = TWO_LINES.format(train=train, between=between, argument=argument)
    path = write_source(folder, text.replace("    pass\n", ""))
    program = make_two_lines(path, **values)
    return independent_calls.find(program, make_steps(f"{path}:13"))


def test_two_lines_whose_tasks_do_not_need_each_other_are_named(tmp_path):
    (finding,) = find_lines(tmp_path)
    assert finding.is_limit
    assert finding.title.startswith("The next call, Judge.run, begins when Trainer.run has ended")
    assert sum(saving.seconds for saving in finding.savings) / STEPS == pytest.approx(0.3, rel=0.01)


IN_FUNCTIONS = """
class Trainer:
    def run(self, batch):
        return batch.sum()

class Judge:

    def run(self, batch):
        return batch.mean()

class Loop:
    def train(self, batch):
        return ray.get(self.trainer.run.remote(batch))

    def judge(self, batch):
        return ray.get(self.judge.run.remote(batch))

    def step(self, batch):
        loss = self.train(batch)
        return self.judge({argument})
"""


@pytest.mark.parametrize(("argument", "count"), [("batch", 1), ("loss", 0)])
def test_tasks_of_two_functions_are_named_if_neither_gets_the_other_ones_result(
    argument, count, tmp_path
):
    path = write_source(tmp_path, IN_FUNCTIONS.format(argument=argument))
    found = independent_calls.find(make_two_lines(path), make_steps(f"{path}:13"))
    assert len(found) == count
    assert all(finding.savings for finding in found)


def test_reading_a_result_in_between_changes_nothing(tmp_path):
    assert find_lines(tmp_path, between="print(loss)")


@pytest.mark.parametrize(
    "train", ["torch.save(batch, path)", "self.store.push(batch)", "open(path)"]
)
def test_tasks_that_may_reach_something_outside_are_only_asked_about(train, tmp_path):
    (finding,) = find_lines(tmp_path, train=train)
    assert not finding.savings
    assert finding.change.startswith("Do they?")


ALONE = """
import shutil
import numpy as np
import ray
import torch
r = connect()

@ray.remote
class Trainer:
    def __init__(self, size: int):
        self.total = 0
        self.store = size

    {decorator}
    def run(self, batch, queue=None):
        rows = [number * 2 for number in range(3)]
        {code}
        self.total += float(batch.sum())
        return rows
"""


@pytest.mark.parametrize("code", [
    "rows.append(np.random.normal(batch.mean()))",
    "rows[0] = math = 1",
    "self.total = torch.nn.functional.relu(batch).copy()",
    "r = [1]; r.append(2)",
])  # fmt: skip
def test_code_that_computes_acts_alone(code, tmp_path):
    path = write_source(tmp_path, ALONE.format(code=code, decorator="@torch.no_grad()"))
    assert acts_alone(f"{path}:9", start=1.0)


@pytest.mark.parametrize("code", [
    "shutil.copy('a', 'b')", "self.files.copy('a', 'b')", "r.append('key', 1)", "r.keys()", "r[0].keys()",
    "queue.pop()", "self.store.append(1)", "self.store[0] = 1", "del self.store[0]", "queue.size = 1",
    "torch.onnx.export(batch, 'f')", "ray.cancel(batch)", "ray.serve.run(batch)", "np.fromregex('f', 'r', int)",
    "max(rows, key=self.store.push)", "np.add(batch, 1, out=self.store)", "np.negative(batch, r)",
    "rows = queue; rows.append(1)", "with self.store: pass", "math.sqrt(2)", "queue(1)", "async def g(): await queue",
    "def g(): r = []\n        r.append(1)", "[r for r in range(3)]; r.append(1)", "[r for r in range(3)] + [r]",
    "def g(r=r): pass",
])  # fmt: skip
def test_code_that_may_reach_something_outside_does_not_act_alone(code, tmp_path):
    path = write_source(tmp_path, ALONE.format(code=code, decorator="@torch.no_grad()"))
    assert not acts_alone(f"{path}:9", start=1.0)


@pytest.mark.parametrize(("code", "is_alone"), [
    ("time.sleep(1)", True), ("begin = time.perf_counter()", False), ("self.total = time.time()", False)
])  # fmt: skip
def test_code_that_reads_a_clock_may_measure_what_others_change(code, is_alone, tmp_path):
    text = f"import time\n{ALONE.format(code=code, decorator='')}"
    path = write_source(tmp_path, text)
    assert acts_alone(f"{path}:10", start=1.0) == is_alone


METHODS = """
class Reader:
    def open(self):
        return {called}(self.path)

    def read(self):
        def parse(row):
            return float(row)
        return parse(self.open())
"""


@pytest.mark.parametrize(
    ("called", "is_alone"), [("open", False), ("len", True), ("self.open", True)]
)
def test_a_bare_name_is_never_a_method(called, is_alone, tmp_path):
    path = write_source(tmp_path, METHODS.format(called=called))
    assert acts_alone(f"{path}:3", start=1.0) == is_alone


@pytest.mark.parametrize("line", [
    "np = connect()", "from files import *", "import torch as np", "def float(value): pass"
])  # fmt: skip
def test_a_known_name_that_has_another_value_too_shows_nothing(line, tmp_path):
    text = ALONE.format(code="rows.append(np.sin(1))", decorator="")
    path = write_source(tmp_path, text)
    assert acts_alone(f"{path}:9", start=1.0)
    other = tmp_path / "other"
    other.mkdir()
    path = write_source(other, f"{text}\n{line}\n")
    assert not acts_alone(f"{path}:9", start=1.0)


def test_a_decorator_of_the_user_may_reach_something_outside(tmp_path):
    path = write_source(tmp_path, ALONE.format(code="pass", decorator="@logged"))
    assert not acts_alone(f"{path}:9", start=1.0)


@pytest.mark.parametrize("values", [
    {"argument": "loss"},
    {"between": "batch = loss + 1"},
    {"between": "batch.append(loss)"},
    {"references": True},
    {"calls_others": True},
])  # fmt: skip
def test_tasks_that_need_each_other_are_not_named(values, tmp_path):
    assert not find_lines(tmp_path, **values)


@pytest.mark.parametrize(
    "between", ["batch['loss'] = 1", "publish(loss)", "trainer.save.remote(judge)"]
)
def test_tasks_that_may_need_each_other_are_only_asked_about(between, tmp_path):
    (finding,) = find_lines(tmp_path, between=between)
    assert not finding.savings
    assert "the code does not show whether it needs this result: up to 300 ms" in finding.title


def test_tasks_that_take_a_gpu_may_not_fit_at_the_same_time_and_are_not_named(tmp_path):
    path = write_source(
        tmp_path, TWO_LINES.format(train="batch.sum()", between="count = 1", argument="batch")
    )
    program = make_two_lines(path)
    steps = make_steps(f"{path}:13")
    assert independent_calls.find(program, steps)
    for task in program.tasks.values():
        task.resources = ["GPU"]
    assert not independent_calls.find(program, steps)


def test_actors_that_hold_a_gpu_may_share_it_and_are_only_asked_about(tmp_path):
    path = write_source(
        tmp_path, TWO_LINES.format(train="batch.sum()", between="count = 1", argument="batch")
    )
    program = make_two_lines(path)
    steps = make_steps(f"{path}:13")
    (finding,) = independent_calls.find(program, steps)
    assert finding.savings
    made = Task(
        "made", "Judge.__init__", "ACTOR_CREATION_TASK", actor=f"{1:032x}", resources=["GPU"]
    )
    program.tasks["made"] = made
    (finding,) = independent_calls.find(program, steps)
    assert not finding.savings


@pytest.mark.parametrize(("other", "is_named"), [
    ("self.score", True),  # of the same object, but neither of the two actors
    ("self.trainer", False),
    ("trainer", False),  # perhaps the same one
    ("self", False),
])  # fmt: skip
def test_actors_in_attributes_are_told_apart(other, is_named, tmp_path):
    text = TWO_LINES.format(train="batch.sum()", between="count = 1", argument="batch")
    for name in ("trainer", "judge"):
        text = text.replace(f"{name}.run", f"self.{name}.run")
    path = write_source(tmp_path, f"{text}\n\nlogger.log.remote({other})\n")
    (finding,) = independent_calls.find(make_two_lines(path), make_steps(f"{path}:13"))
    assert bool(finding.savings) == is_named


def test_an_actor_of_a_list_that_gets_another_one_is_only_asked_about(tmp_path):
    text = TWO_LINES.format(train="batch.sum()", between="count = 1", argument="batch")
    text = text.replace("trainer.run", "actors[0].run").replace("judge.run", "actors[1].run")
    path = write_source(tmp_path, f"actors[1].use.remote(actors[0])\n{text}")
    (finding,) = independent_calls.find(make_two_lines(path), make_steps(f"{path}:14"))
    assert not finding.savings


def test_a_result_that_nobody_wants_may_be_an_order(tmp_path):
    text = TWO_LINES.format(train="batch.sum()", between="count = 1", argument="batch")
    path = write_source(tmp_path, text.replace("loss = ray", "ray"))
    program = make_two_lines(path)
    (finding,) = independent_calls.find(program, make_steps(f"{path}:13"))
    assert not finding.savings


def test_a_call_that_sends_what_an_actor_needs_is_not_saved(tmp_path):
    path = write_source(tmp_path, ACTORS.format(argument="rows"))
    program = make_actors(path)
    for call in program.recording.calls:
        call.messages = [1] if call.kind == "actor" else []
    (finding,) = new_actors.find(program, make_steps(f"{path}:3"))
    assert not any(saving.part == "call" for saving in finding.savings)


def make_queue() -> Program:
    """Return two calls of one actor in each step, of 0.4 s each; the driver waits for the second one only."""
    builder = Builder()
    process = builder.process_of("Worker.run")
    for step in range(STEPS):
        begin = 1.0 + step
        for number in range(2):
            name = f"{step:024x}{number:024x}"
            called = begin + 0.0003 * number
            builder.call(
                "call", called, 0.0002, kind="method", task=name, name="Worker.run", line=LINE
            )
            task = Task(
                name, "Worker.run", "ACTOR_TASK", actor="a", pid=builder.pid_of(process), submitted=called,
                waits_for_node=called,
            )  # fmt: skip
            starts = begin + 0.001 + 0.4 * number
            add_task(builder, task, starts, starts + 0.4)
        objects = [f"{name}01000000"]
        builder.call("get", begin + 0.001, 0.801, objects=objects, count=1, line=LINE)
    return builder.program()


def test_the_time_behind_other_calls_is_said():
    text = say_waiting(make_queue(), make_steps())
    assert "40 % for calls that came before Worker.run" in text
    assert "40 % for Worker.run" in text


def test_a_task_whose_threads_compute_does_not_wait_itself():
    program = make_cpus(replace(RUN, process_seconds=0.3))
    assert "for ask (it computes)" in say_waiting(program, make_steps())


def test_a_task_without_times_is_not_said_to_run():
    program = make_cpus(RUN)
    for task in program.tasks.values():
        task.execute = None
    text = say_waiting(program, make_steps())
    assert text.endswith("for ask to begin or to end (Ray has no times of it)")
