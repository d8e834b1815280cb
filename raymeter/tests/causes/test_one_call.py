# SPDX-License-Identifier: Apache-2.0
"""An actor that serves one call at a time is named if its methods wait, and others wait for that."""

import os
from pathlib import Path

import pytest
from made_programs import Builder
from raymeter.causes import one_call
from raymeter.findings import Finding
from raymeter.profile.events import Run, Task
from raymeter.profile.own_state import own_state
from raymeter.profile.program import Program
from raymeter.profile.starts import CREATION
from raymeter.profile.steps import Steps
from raymeter.simulate.graph import build
from raymeter.simulate.predict import predict
from raymeter.simulate.replay import replay

STEPS = 4
CALLS = 5  # per step
SECONDS = 0.02  # of a call
LINE = "/made/a.py:9"
CREATED = "c" * 48  # the task that makes the actor
SOURCE = """
class Reward:
    def score(self, answer):
        return answer

    def count(self, answer):
        self.seen.append(answer)
        self.counts[answer] = len(answer)
        self.total += 1
        mean = self.total / 2
        return mean

    @method
    def advance(self, action):
        self.state = self.env.step(self.state, action)

    def decay(self):
        self.rate *= 0.9
"""


def make_actor(
    cpu_share: float = 0.01,
    name: str = "Reward.score",
    other_name: str = "",
    has_one_caller: bool = False,
    is_apart: bool = False,
    **values,
) -> Program:
    """Return an actor that serves five calls per step, each of which takes 20 ms and computes for a part of them.

    other_name: of every second call. is_apart: each call is submitted when the last one has ended. values: of the runs.
    """
    builder = Builder()
    creation = Task(CREATED, "Reward.__init__", CREATION, actor="a")
    builder.recording.tasks.append(creation)
    for step in range(STEPS):
        names = [f"{step:024x}{number:024x}" for number in range(CALLS)]
        for number, task in enumerate(names):
            start = step + 0.01 + SECONDS * number
            asked = start - 0.001 if is_apart else step + 0.005 + number / 10_000
            method = other_name if other_name and number % 2 else name
            caller = 0 if has_one_caller else number
            place = f"Rollout{caller}.generate"
            builder.call(
                "call", asked - 0.0002, 0.0001, kind="method", task=task, name=method, place=place,
                line="/made/a.py:3", actor="a",
            )  # fmt: skip
            builder.task(task, method, start, SECONDS, actor="a")
            ran = builder.recording.tasks[-1]
            ran.submitted = asked
            begin, end = ran.execute or (0.0, 0.0)
            computed = cpu_share * (end - begin)
            known = {
                "process": builder.process_of(method), "kind": "function", "by": task, "by_name": method, "line": LINE,
                "start": begin, "seconds": end - begin, "cpu_seconds": computed, "process_seconds": computed,
            }  # fmt: skip
            builder.recording.runs.append(Run(**known | values))
        end = step + 0.01 + SECONDS * CALLS + 0.001
        objects = [f"{task}01000000" for task in names]
        builder.call(
            "get", step + 0.001, end - step - 0.001, objects=objects, count=CALLS, line="/made/a.py:2",
            by=f"{step}",  # so that a step begins when it did, as the calls of the others do
        )  # fmt: skip
    return builder.program()


def make_steps() -> Steps:
    times = [(step + 0.001, step + 0.111) for step in range(STEPS)]
    return Steps("a pass", times, "node-1", 1, "/made/a.py:2")


def saved_by(program: Program, findings: list[Finding]) -> float:
    """Return what the best of these findings saves of a step; 0 if none does."""
    advice = predict(program, make_steps(), findings)
    return advice[0].prediction.saved_seconds if advice else 0.0


def saved(program: Program) -> float:
    return saved_by(program, one_call.find(program, make_steps()))


def test_calls_of_a_method_that_waits_could_run_at_the_same_time():
    program = make_actor()
    (finding,) = one_call.find(program, make_steps())
    assert finding.cause == one_call.CAUSE
    assert finding.line == LINE
    assert "max_concurrency=5" in finding.change
    assert finding.title.startswith("4 times per step")
    # Five calls of 20 ms one after the other; then each keeps the actor for a fifth of that, and a bit.
    assert 0.05 < saved_by(program, [finding]) < 0.07


@pytest.mark.parametrize("values", [
    {"cpu_share": 0.9},
    {"process_seconds": 0.015},  # of other threads
    {"process_seconds": -1.0},  # perhaps of children
    {"has_event_loop": True},
    {"kind": "generator"},
    {"line": "/usr/lib/python3.12/site-packages/ray/util/queue.py:9"},
    {"is_apart": True},
])  # fmt: skip
def test_other_actors_are_not_named(values):
    assert not saved(make_actor(**values))


def test_an_actor_that_has_run_calls_at_the_same_time_is_not_named():
    program = make_actor()
    _, first, second, *_ = program.tasks.values()
    second.deserialise = first.deserialise
    assert not one_call.find(program, make_steps())


def test_an_async_actor_is_not_named():
    program = make_actor()
    program.recording.runs[0].has_event_loop = True
    assert not one_call.find(program, make_steps())


def test_a_call_stays_behind_one_that_computes():
    program = make_actor(cpu_share=0.9)
    (actor,) = one_call.ActorFinder(program, make_steps()).find_actors()
    for overlap in actor.overlaps(CALLS):
        assert overlap.earlier in overlap.after


@pytest.mark.parametrize(("resource", "is_named"), [
    ("GPU", False),
    ("GPU_group_0_" + "a" * 36, False),
    ("neuron_cores", False),
    ("bundle_group_" + "a" * 36, True),
    ("memory", True),
])  # fmt: skip
def test_actors_with_devices_are_not_named(resource, is_named):
    program = make_actor()
    program.tasks[CREATED].resources = [resource]
    assert bool(one_call.find(program, make_steps())) == is_named


def test_an_actor_of_which_nothing_tells_its_devices_is_not_named():
    program = make_actor()
    del program.tasks[CREATED]
    assert not one_call.find(program, make_steps())


def test_an_actor_is_not_named_if_the_cores_have_no_time():
    program = make_actor()
    process = program.recording.processes[1].process
    for step in range(STEPS):
        busy = Run(process, start=step + 0.002, seconds=0.1, cpu_seconds=0.1)
        program.recording.runs.append(busy)
    assert not one_call.find(program, make_steps())


def test_calls_of_several_methods_of_one_caller_stay_in_their_order():
    of_several = make_actor(other_name="Reward.reset")
    assert saved(of_several) > 0.05
    of_one = make_actor(other_name="Reward.reset", has_one_caller=True)
    assert not saved(of_one)


@pytest.mark.parametrize(("method", "shares"), [
    ("score", True),
    ("count", True),
    ("advance", False),  # needs the state that the last call has left
    ("decay", False),
])  # fmt: skip
def test_calls_of_one_caller_that_need_the_last_state_stay_in_their_order(tmp_path, method, shares):
    line = write_source(tmp_path, method)
    of_one = make_actor(line=line, has_one_caller=True)
    assert bool(saved(of_one)) == shares
    of_several = make_actor(line=line)
    assert saved(of_several) > 0.05


def test_the_price_names_what_a_method_changes(tmp_path):
    program = make_actor(line=write_source(tmp_path, "count"), has_one_caller=True)
    (finding,) = one_call.find(program, make_steps())
    assert "self.counts, self.total, self.seen:" in finding.price
    assert "of its caller" in finding.price
    assert "while it waits" in finding.price
    (finding,) = one_call.find(make_actor(), make_steps())
    assert "with a lock" in finding.price
    assert "of its caller" not in finding.price


def write_source(folder: Path, method: str) -> str:
    """Write the module of the actor; return the line of one of its methods."""
    file = folder / "rewards.py"
    file.write_text(SOURCE)
    os.utime(file, (0, 0))  # before the program began
    before, _, _ = SOURCE.partition(f"def {method}(")
    return f"{file}:{1 + before.count(chr(10))}"


def test_what_a_method_keeps_is_read_from_its_code(tmp_path):
    state = own_state(write_source(tmp_path, "advance"), 0.0)
    assert (state.changed, state.passed_on) == (["state"], ["state"])
    state = own_state(write_source(tmp_path, "score"), 0.0)
    assert (state.changed, state.passed_on) == ([], [])
    assert own_state("/made/nothing.py:3", 0.0).changed == []


def test_only_so_many_calls_run_at_once(monkeypatch):
    monkeypatch.setattr(one_call, "MAX_AT_ONCE", 2)
    program = make_actor()
    (finding,) = one_call.find(program, make_steps())
    assert "max_concurrency=2" in finding.change
    # Three rounds of two, two and one call in the place of five calls.
    assert saved_by(program, [finding]) == pytest.approx(2 * SECONDS)


def test_the_graph_is_as_before_after_a_prediction():
    program = make_actor()
    graph = build(program)
    before = replay(graph)
    saved(program)
    assert replay(graph) == before
