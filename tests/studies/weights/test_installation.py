# SPDX-License-Identifier: Apache-2.0
"""Weights in receivers: late writes and torn reads are found, and nothing else is."""

import threading
from unittest.mock import Mock

import pytest
import torch
from in_process import LocalEndpoints, LocalRingEndpoints

from dataflow.endpoints.tensors import list_tensors
from dataflow.flows.catalogue import build_flow

SMALL = {"model": "gpt2", "model_scale": 0.001}


@pytest.fixture(autouse=True)
def no_reader(monkeypatch):
    """Let no thread read the weights: a test calls `read` itself, so that its reads have a number and a moment."""
    monkeypatch.setattr(threading, "Thread", Mock())


def update(endpoints, number):
    """Run one update as the timing loop does; return the wrong bytes and the times by actor."""
    endpoints.run(number)
    times = {endpoint.name: endpoint.end_group(number)["weights"] for endpoint in endpoints.all}
    return endpoints.verify(number), times


def parameters_of(endpoints, actor="rollout-1"):
    return endpoints.actors[actor].parts[0].parameters


def make(kind=LocalEndpoints, folder=None, sizes=SMALL, **options):
    flow = build_flow("weights", sizes)
    return kind(flow, **({"shared_folder": folder} if folder else {}), **options)


@pytest.mark.parametrize("options", [{}, {"copy_out": True}, {"message": "packed"}], ids=str)
@pytest.mark.parametrize("sizes", [{}, {"bucket_size": 10_000}, {"senders": 2}], ids=str)
def test_updates_arrive_and_every_version_differs(options, sizes):
    endpoints = make(sizes=SMALL | sizes, **options)
    versions = []
    for number in (1, 2, 3):
        wrong, times = update(endpoints, number)
        assert wrong == {}
        served = parameters_of(endpoints, "rollout-2").served
        versions.append(torch.cat([tensor.reshape(-1)[4:] for tensor in served]).clone())
        assert min(times["rollout-2"].install_seconds, times["rollout-2"].stall_seconds) > 0
    assert not torch.equal(versions[0], versions[1]) and torch.equal(versions[0], versions[2])


@pytest.mark.parametrize("model", ["gpt2", "opt-350m", "qwen2.5-0.5b"])
def test_changes_give_the_same_parameters_as_all_values(model):
    """The verification compares all parameters of the receivers, not only what was sent."""
    endpoints = make(
        sizes={"model": model, "model_scale": 0.001, "changed": 0.05}, message="indices"
    )
    for number in (1, 2, 3, 4):
        assert update(endpoints, number)[0] == {}
    sent = endpoints.plan.sent_flow.bytes_per_iteration
    assert sent < 0.2 * endpoints.plan.task_flow.bytes_per_iteration
    parameters_of(endpoints).served[3].reshape(-1)[17] += (
        1  # no update changes it, so no message has it
    )
    assert len(update(endpoints, 5)[0]) == 1


class AliasedEndpoints(LocalEndpoints):
    """Readers get the sender's own memory, as from a transport that acknowledges before it has copied."""

    def carry(self, payload):
        return payload


def test_a_late_write_is_found_unless_readers_copy():
    endpoints = make(AliasedEndpoints)
    weights = sum(
        edge.bytes for edge in endpoints.plan.task_flow.edges if edge.message.is_parameters
    )
    assert sum(update(endpoints, 1)[0].values()) > 0.9 * weights
    assert update(make(AliasedEndpoints, copy_out=True), 1)[0] == {}


@pytest.mark.parametrize("copy_in", [False, True])
@pytest.mark.parametrize("copy_out", [False, True])
def test_updates_through_rings_arrive(tmp_path, copy_in, copy_out):
    """A reader that copies has acknowledged its copy. One that serves views keeps the slot."""
    endpoints = make(LocalRingEndpoints, tmp_path, copy_in=copy_in, copy_out=copy_out)
    outbox = endpoints.actors["trainer"].outboxes["trainer"]
    own, sent = (
        {tensor.data_ptr() for tensor in list_tensors(p[1])} for p in (outbox.pool, outbox.sent)
    )
    assert own.isdisjoint(sent) == copy_in
    for number in (1, 2, 3, 4):
        assert update(endpoints, number)[0] == {}
    if copy_out:
        endpoints.actors["rollout-1"].parts[0].write = lambda task, inputs: (
            inputs
        )  # does not copy: a late write
        assert {name.partition(",")[0] for name in update(endpoints, 5)[0]} == {
            "trainer -> rollout-1"
        }


def test_torn_reads_are_found_in_memory_that_changes_while_it_is_served():
    endpoints = make()
    update(endpoints, 1)
    parameters = parameters_of(endpoints)
    for _ in range(9):
        parameters.read()
    assert (parameters.reads, parameters.torn_reads) == (9, 0)
    for tensor in parameters.served[::2]:  # another version in some of the tensors, without a stall
        tensor.reshape(-1).view(torch.uint8)[0] ^= 1
    for _ in range(9):
        parameters.read()
    assert parameters.reads == 18 and parameters.torn_reads > 0
    parameters.stop_engine()
    parameters.read()
    assert parameters.reads == 18


def test_a_tensor_whose_end_is_of_another_version_is_torn():
    endpoints = make(sizes={"model": "1kB"})
    update(endpoints, 1)
    parameters = parameters_of(endpoints)
    (tensor,) = parameters.served
    assert parameters.read_versions(tensor, 0) == (1, 1)
    tensor.reshape(-1).view(torch.uint8)[-8:].bitwise_not_()
    assert parameters.read_versions(tensor, 0) == (1, -1)


@pytest.mark.parametrize("copy_out", [False, True])
def test_a_receiver_whose_update_breaks_off_never_serves_a_mixture(copy_out):
    """The trainer dies after the first bucket: an engine serves the old version, or is stopped."""
    endpoints = make(sizes=SMALL | {"bucket_size": 100_000}, copy_out=copy_out)
    update(endpoints, 1)
    message = endpoints.actors["trainer"].forward_step("trainer.0", endpoints.make_query(2))
    endpoints.actors["rollout-1"].forward_step("rollout-1.0", endpoints.carry(message))
    parameters = parameters_of(endpoints)
    is_stopped = parameters.changes % 2 == 1
    versions = {
        v for index, t in enumerate(parameters.served) for v in parameters.read_versions(t, index)
    }
    assert is_stopped if copy_out else versions == {1}
