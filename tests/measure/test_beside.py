# SPDX-License-Identifier: Apache-2.0
"""Run another flow beside a run, and end the run if the other flow has not moved."""

import time
from dataclasses import replace

import pytest

from dataflow.errors import RunFailed, UsageError
from dataflow.measure.monitor import run_beside
from dataflow.plan.plan import resolve_plan

SMALL = ("--flow", "a -> b: 1kB", "--iterations", "50")


@pytest.mark.runs
def test_the_iterations_of_the_flow_beside_are_counted(measure):
    (run,) = measure("torch gloo", *SMALL, "--beside", "trainer -> rollout: 1MB").runs
    assert (
        run.beside_iterations > 0
        and run.beside_seconds >= sum(run.seconds)
        and run.other_cores is None
    )


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
