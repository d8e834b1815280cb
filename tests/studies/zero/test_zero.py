# SPDX-License-Identifier: Apache-2.0
"""Verify ZeRO's formulas, that wrong results of collectives are found, and what ranks send."""

from dataclasses import replace

import pytest
import torch

from dataflow.catalogue.catalogue import TRANSPORTS
from dataflow.endpoints.actor import Actor
from dataflow.flows.catalogue import build_flow
from dataflow.plan.options import Options
from dataflow.plan.plan import Plan
from dataflow.studies.zero import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from dataflow.studies.zero.collectives import make_numbers


def test_sent_bytes_are_those_of_the_paper():
    flows = [
        build_flow("zero", {"model": "8MB", "zero_ranks": 4, "zero_stage": stage})
        for stage in (1, 2, 3)
    ]
    units = [flow.tasks[0].other_bytes for flow in flows]
    assert units == [bytes_per_rank * 2 * 1_000_000 * 3 / 4 for bytes_per_rank in (2, 2, 3)]


@pytest.mark.parametrize(("stage", "names"), [(1, {ALL_REDUCE}), (3, {ALL_GATHER, REDUCE_SCATTER})])
def test_every_wrong_number_is_counted(stage, names):
    flow = build_flow("zero", {"model": "8KB", "zero_ranks": 2, "zero_stage": stage})
    flow = replace(flow, tasks=flow.tasks[:1], returns=flow.returns[:1])  # a rank that is alone
    plan = Plan(TRANSPORTS["torch collectives"], Options(transport="collectives"), flow)
    actor = Actor(plan, "rank-1")
    (part,) = actor.parts
    part.collectives = dict.fromkeys((ALL_GATHER, REDUCE_SCATTER), torch.Tensor.copy_) | {
        ALL_REDUCE: lambda *_: None
    }
    part.run("rank-1", 1)
    assert part.verify(1) == {}
    assert set(part.verify(2)) == {
        f"rank-1, {name}" for name in names if name != ALL_REDUCE
    }  # no result
    part.run("rank-1", 3)
    for _, _, tensor in part.buffers:
        tensor[3] += 1
    actor.inboxes.clear()  # nothing was sent to it
    wrong, _ = actor.verify(3, 3)
    assert wrong == {f"rank-1, {name}": (4 if name == ALL_GATHER else 2) for name in names}
    part.run("rank-1", 3)  # with the numbers of step 4
    assert set(part.verify(3)) == set(wrong)


def test_numbers_of_ranks_and_steps_differ_and_sums_are_exact():
    steps = [make_numbers(4, 4096, step) for step in range(3)]
    assert all(torch.equal(numbers.sum(0).double(), numbers.double().sum(0)) for numbers in steps)
    numbers = [numbers[rank] for numbers in steps for rank in range(4)]
    pairs = [(a, b) for index, a in enumerate(numbers) for b in numbers[:index]]
    assert all((a != b).float().mean() > 0.9 for a, b in pairs)


@pytest.mark.parametrize(
    ("stage", "times"),
    # A reduce-scatter over gloo sends as much as an all-reduce.
    [pytest.param(1, 1.0, marks=pytest.mark.slow), pytest.param(3, 4 / 3, marks=pytest.mark.long)],
)
def test_ranks_send_the_bytes_of_their_collectives(measure, stage, times):
    sizes = ("--flow", "zero", "--model", "8MB", "--zero-ranks", "3", "--zero-stage", str(stage))
    record = measure("torch collectives", *sizes, "--iterations", "4", "--warmup", "1")
    by_textbook = sum(task.other_bytes for task in build_flow("zero", record.workload.sizes).tasks)
    assert record.runs[0].loopback_bytes / 4 == pytest.approx(times * by_textbook, rel=0.02)
