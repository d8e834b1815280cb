# SPDX-License-Identifier: Apache-2.0
"""Run another flow beside a run, and end the run if the other flow has not moved."""

import time
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from made_records import make_run

from dataflow.errors import RunFailed, UsageError
from dataflow.measure import supervisor
from dataflow.measure.monitor import Beside, run_beside
from dataflow.plan.plan import resolve_plan

SMALL = ("--flow", "a -> b: 1kB", "--iterations", "50")


@pytest.mark.slow
@pytest.mark.runs
def test_the_iterations_of_the_flow_beside_are_counted(measure):
    (run,) = measure("torch gloo", *SMALL, "--beside", "trainer -> rollout: 1MB").runs
    assert (
        run.beside_iterations > 0
        and run.beside_seconds >= sum(run.seconds)
        and run.other_cores is None
    )


def test_the_record_has_the_iterations_of_the_flow_beside_during_the_timed_ones(
    make_plan, monkeypatch
):
    """Only the processes of both flows are replaced. Iteration N of the run is from 10 N to 10 N + 5 s."""
    plan = make_plan("torch", "--transport", "gloo", *SMALL, "--beside", "a -> b: 1MB")
    run = make_run([0.1] * 4, other_cores=0.5, loopback_bytes=7)
    run.warmup_iterations = 3
    times = SimpleNamespace(iteration=lambda n: (10.0 * n, 10.0 * n + 5), progress=(0, 9, 9))
    monitor = SimpleNamespace(progress=times, follow_driver=lambda folder: None)
    folder = nullcontext(SimpleNamespace(folder=plan.run_folder, shared=plan.shared_folder))
    # Of the flow beside, an iteration ends each second; the run times its iterations 5 to 9, from 50 to 95 s.
    ends = [(number, float(number)) for number in range(1, 120)]
    beside = Beside.__new__(Beside)
    beside.name, beside.timeout = "a -> b: 1MB", 1.0
    beside.monitor = SimpleNamespace(progress=SimpleNamespace(ended_iterations=lambda: ends))
    monkeypatch.setattr(beside, "_wait_for_iteration", lambda moment, seconds: None)
    monkeypatch.setattr(supervisor, "run_beside", lambda plan: nullcontext(beside.count))
    monkeypatch.setattr(supervisor, "RunFolder", lambda: folder)
    monkeypatch.setattr(supervisor, "Monitor", lambda plan, record: monitor)
    supervisor.follow_run(SimpleNamespace(plan=plan, record=SimpleNamespace(runs=[run])))
    assert (run.beside_iterations, run.beside_seconds) == (45, 45.0)
    assert (run.other_cores, run.loopback_bytes) == (None, None)
    ends.clear()
    with pytest.raises(RunFailed, match="a -> b: 1MB: no iteration of it ended during the run"):
        beside.count(50.0, 95.0)


@pytest.mark.runs
@pytest.mark.parametrize(("flags", "text"), [
    (("--iterations", "1", "--warmup", "0"), "it ended after 2 iterations: give it larger messages"),
    (("--iterations", "90000", "--inject", "a:3:flip"), "bytes differ"),
    (("--iterations", "90000", "--inject", "b:3:stop", "--timeout", "2"), "no iteration ended for 2 s"),
], ids=("ends", "corrupt", "stops"))  # fmt: skip
def test_a_flow_beside_that_does_not_go_on_is_an_error(make_plan, flags, text):
    plan = make_plan("torch", "--transport", "gloo", "--flow", "a -> b: 1kB", *flags)
    with (
        pytest.raises(RunFailed, match=f"--beside a -> b: 1kB: .*{text}"),
        run_beside(plan) as count,
    ):
        time.sleep(2)  # all of its iterations have ended, or it has found the fault
        count(time.perf_counter() - 2, time.perf_counter())


def test_a_flow_beside_that_cannot_be_read_is_an_error_before_anything_starts(make_plan):
    plan = make_plan("torch", "--transport", "gloo")
    options = replace(plan.options, beside="a ->")
    with pytest.raises(UsageError, match="cannot read 'a ->'"):
        resolve_plan(plan.transport, options)
