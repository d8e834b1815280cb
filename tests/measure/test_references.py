# SPDX-License-Identifier: Apache-2.0
"""Test the reference times of a run, and the benchmark's own work."""

import os
import sys

import pytest
import torch

from dataflow.measure import references
from dataflow.measure.references import COLD_PASSES, WARM_PASSES, measure_copies


def test_copies_are_of_every_edge_in_every_pass_and_cold_ones_touch_every_page(
    make_plan, monkeypatch
):
    copied, copy, threads = [], torch.Tensor.copy_, torch.get_num_threads()

    def noting_copy(destination, source):
        copied.append((source.nbytes, torch.get_num_threads()))
        assert copy(destination, source).equal(source)

    monkeypatch.setattr(torch.Tensor, "copy_", noting_copy)
    plan = make_plan("store", "--iteration-bytes", "16MiB")
    warm, all_cores, cold, faults = measure_copies(plan)
    sizes = [edge.bytes for edge in plan.task_flow.edges]
    by_one = [(size, 1) for size in sizes]
    by_all = [(size, len(os.sched_getaffinity(0))) for size in sizes]
    assert copied == by_one * (1 + WARM_PASSES) + by_all * (1 + WARM_PASSES) + by_one * COLD_PASSES
    assert (len(warm), len(all_cores), len(cold)) == (WARM_PASSES, WARM_PASSES, COLD_PASSES)
    assert min(*warm, *all_cores, *cold) > 0 and torch.get_num_threads() == threads
    pages = sum(sizes) / 4096
    assert pages <= faults < 1.2 * pages + 100


def test_on_gpus_copies_go_from_the_gpu_of_the_sender_to_that_of_the_reader(make_plan, monkeypatch):
    pairs, hosts = [], []

    def make_pair(size, source, target):
        pairs.append((source, target))
        return [torch.ones(1), torch.ones(1)]

    monkeypatch.setattr(references, "make_pair", make_pair)
    monkeypatch.setattr(references, "time_host_copies", lambda copies, passes: hosts.extend(copies))
    plan = make_plan("store", "--iteration-bytes", "16MiB", device="cuda", gpus=2)
    _, _, cold, _ = references.measure_copies(plan)
    references.measure_host_copies(plan)
    edges = [str(edge) for edge in plan.sent_flow.edges]
    places = {
        "driver -> policy": ("cuda:0", "cuda:0"),
        "policy -> reference": ("cuda:0", "cuda:1"),
        "policy -> reward": ("cuda:0", "cuda:0"),
        "reference -> reward": ("cuda:1", "cuda:0"),
        "reward -> driver": ("cuda:0", "cuda:0"),
    }
    assert dict(zip(edges, pairs, strict=True)) == places
    assert cold == []  # page faults are a cost of host memory
    of_senders = [places[edge][0] for edge in edges]
    assert hosts == list(
        zip([edge.bytes for edge in plan.sent_flow.edges], of_senders, strict=True)
    )


MAPPED = ("torch", "--transport", "mapped")
WEIGHTS = (*MAPPED, "--flow", "weights", "--model", "gpt2", "--model-scale", "0.1")


@pytest.mark.parametrize(("flags", "most_calls"), [
    (MAPPED, 117),  # 115 in Python 3.11, for five messages
    ((*MAPPED, "--copy-out", "--check-every", "9"), 117),  # the user asked for this copy
    ((*MAPPED, "--flow", "chain", "--actors", "16"), 455),
    (("store", "--transport", "refs", "--message", "packed"), 219),
    pytest.param((*MAPPED, "--flow", "pipeline", "--task-seconds", "1h"), 1840, marks=pytest.mark.study("pipeline")),
    pytest.param(WEIGHTS, 1305, marks=pytest.mark.study("weights")),
], ids=str)  # fmt: skip
def test_the_own_work_of_the_benchmark_does_not_grow(make_plan, monkeypatch, flags, most_calls):
    """Count the function calls of one iteration's timed section over the null transport, of Python and of C."""
    calls, time_group, threads = [], references.time_group, torch.get_num_threads()

    def run_and_count(*arguments):
        calls.append(0)
        sys.setprofile(
            lambda frame, event, function: calls.append(calls.pop() + event.endswith("call"))
        )
        try:
            time_group(*arguments)
        finally:
            sys.setprofile(None)

    monkeypatch.setattr(references, "time_group", run_and_count)
    monkeypatch.setattr(references, "MAX_EVICTED_BYTES", 2**20)
    samples = references.measure_null_transport(make_plan(*flags), 3)
    assert len(samples) == 3 and min(samples) > 0 and torch.get_num_threads() == threads
    assert len(calls) == 4 and 0.7 * most_calls < min(calls) <= max(calls) <= most_calls
