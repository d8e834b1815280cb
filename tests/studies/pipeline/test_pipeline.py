# SPDX-License-Identifier: Apache-2.0
"""Verify pipeline schedules by a simulation of the flow's tasks, and run them."""

import pytest
from in_process import LocalEndpoints

from dataflow.errors import RunFailed
from dataflow.flows.flow import DRIVER
from dataflow.studies.pipeline import SCHEDULES, pipeline

SMALL = {"sequence_length": 1, "hidden_size": 8}


def seconds_of(task):
    return task.work.seconds if task.work else 0.0


def simulate(flow):
    """Return the bubble of the flow if messages take no time, and the activations that each stage holds at most."""
    free, end, first, held, most = {}, {DRIVER: 0.0}, {}, {}, {}
    for task in flow.tasks:
        begin = max([free.get(task.actor, 0.0), *(end[source] for source in task.reads)])
        end[task.name] = begin + seconds_of(task)
        if task.work:
            free[task.actor] = end[task.name]
            first.setdefault(task.actor, begin)
            held[task.actor] = held.get(task.actor, 0) + max(task.work.held_change, 0)
            most[task.actor] = max(most.get(task.actor, 0), held[task.actor])
            held[task.actor] += min(task.work.held_change, 0)
    assert not any(held.values())  # each activation is freed
    compute = sum(map(seconds_of, flow.tasks)) / len(flow.actors)
    return 1 - compute / max(free[actor] - first[actor] for actor in first), [*most.values()]


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("stages", "batches"), [(1, 3), (2, 4), (3, 9), (4, 8), (4, 16), (5, 10)])
def test_schedules_wait_and_hold_as_their_formulas_say(name, stages, batches):
    bubble, held = simulate(pipeline(stages, batches, name, "1s", **SMALL))
    schedule = SCHEDULES[name]
    assert bubble == pytest.approx(float(schedule.bubble(stages, batches)), abs=1e-9)
    assert held == [schedule.held(stage, stages, batches) for stage in range(stages)]


def test_schedules_have_the_published_order():
    def letters(name, stage):
        order = SCHEDULES[name].order(stage, 2, 4)
        return " ".join(f"{kind[0].upper()}{batch}" for kind, batch, _ in order)

    assert letters("afab", 0) == "F0 F1 F2 F3 B0 B1 B2 B3"
    assert letters("1f1b", 0) == "F0 F1 B0 F2 B1 F3 B2 B3"
    assert letters("1f1b", 1) == "F0 B0 F1 B1 F2 B2 F3 B3"
    assert letters("zb-h1", 1) == "F0 B0 F1 B1 W0 F2 B2 W1 F3 B3 W2 W3"


@pytest.mark.parametrize(("sizes", "error"), [
    ((4, 6, "interleaved"), "multiple of 4 stages"),
    ((4, 6, "zb-h2"), "need 7 or more"),
    ((4, 8, "best"), "--schedule best: give afab"),
    ((4, 8, "afab", "soon"), "--task-seconds 'soon' is not a number"),
])  # fmt: skip
def test_impossible_sizes_are_rejected(sizes, error):
    with pytest.raises(ValueError, match=error):
        pipeline(*sizes)


def test_actors_reject_tasks_in_another_order():
    flow = pipeline(1, 2, "afab", "1ms", **SMALL)
    endpoints = LocalEndpoints(flow)
    actor, (first, second, *_) = endpoints.actors["stage-1"], flow.tasks
    actor.forward_step(first.name, endpoints.make_query(1))
    actor.forward_step(second.name)
    with pytest.raises(RunFailed, match=r"ran stage-1.backward-2 before stage-1.backward-1"):
        actor.parts[0].run("stage-1.backward-2", 1)
    assert actor.end_group(1)["pipeline"][-1] == 2


@pytest.mark.parametrize(
    ("configuration", "schedule"),
    [("torch gloo", "interleaved"), pytest.param("graph shm", "zb-h2", marks=pytest.mark.long)],
)
def test_steps_run_in_the_order_of_their_schedule(measure, configuration, schedule):
    """Actors end the run if a task comes too early."""
    sizes = (
        "--pipeline-stages",
        "2",
        "--micro-batches",
        "4",
        "--task-seconds",
        "2ms",
        "--hidden-size",
        "256",
    )
    flags = (
        "--flow",
        "pipeline",
        "--schedule",
        schedule,
        *sizes,
        "--iterations",
        "4",
        "--warmup",
        "1",
    )
    (run,) = measure(configuration, *flags).runs
    steps = run.measured["pipeline"]
    expected = [SCHEDULES[schedule].held(stage, 2, 4) for stage in range(2)]
    assert [steps["held_activations"][stage] for stage in ("stage-1", "stage-2")] == expected
    for compute, stage, step in zip(
        steps["compute_seconds"], steps["stage_seconds"], run.seconds, strict=True
    ):
        assert 4 * 3 * 0.002 <= compute <= stage <= step
