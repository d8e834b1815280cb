"""Parameters in receivers: late writes and torn reads are found, and nothing else is."""

import time

import pytest
import torch
from in_process import LocalEndpoints, LocalRingEndpoints

from dataflow.endpoints.codecs import Codec
from dataflow.endpoints.tensors import list_tensors
from dataflow.flows.catalogue import build_flow
from dataflow.studies.weights.updates import UpdateCollector, UpdateTimes

SMALL = {"model": "gpt2", "scale": 0.001}


def update(endpoints, number, keep_time=0.0):
    """Run one update as the timing loop does; return the wrong bytes and the times by actor."""
    endpoints.run(number)
    time.sleep(keep_time)
    times = {endpoint.name: endpoint.end_group(number)["weights"] for endpoint in endpoints.all}
    return endpoints.verify(number), times


def parameters_of(endpoints, actor):
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


@pytest.mark.parametrize("dtype", ["gpt2", "opt-350m", "qwen2.5-0.5b"])
def test_changes_give_the_same_parameters_as_all_values(dtype):
    """The verification compares all parameters of the receivers, not only what was sent."""
    sizes = {"model": dtype, "scale": 0.001, "changed": 0.05}
    endpoints = make(sizes=sizes, message="indices")
    for number in (1, 2, 3, 4):
        assert update(endpoints, number)[0] == {}
    sent = endpoints.plan.sent_flow.bytes_per_iteration
    assert sent < 0.2 * endpoints.plan.task_flow.bytes_per_iteration
    parameter = parameters_of(endpoints, "rollout-1").served[3]
    parameter.reshape(-1)[17] += 1  # was not changed by an update, so no message has it
    wrong, _ = update(endpoints, 5)
    assert len(wrong) == 1


def test_the_sender_of_a_copy_keeps_its_parameters_once():
    outbox = make().actors["trainer"].outboxes["trainer"]
    assert len(outbox.pool) == 1 and len(outbox.digests) == 2


class AliasedEndpoints(LocalEndpoints):
    """Readers get the sender's own memory, as from a transport that acknowledges before it has copied."""

    def carry(self, payload):
        return payload


def test_a_late_write_is_found():
    endpoints = make(AliasedEndpoints)
    wrong, _ = update(endpoints, 1)
    weights = sum(edge.bytes for edge in endpoints.plan.task_flow.edges if edge.message.is_parameters)
    assert sum(wrong.values()) > 0.9 * weights
    assert update(make(AliasedEndpoints, copy_out=True), 1)[0] == {}


def test_a_late_write_into_a_ring_is_found_unless_its_readers_get_views(tmp_path):
    """A reader that copies has acknowledged its copy. One that serves views keeps the slot."""
    for copy_in in (False, True):
        views, copies, broken = (tmp_path / f"{name}-{copy_in}" for name in ("views", "copies", "broken"))
        for folder in (views, copies, broken):
            folder.mkdir()
        for folder, copy_out in ((views, False), (copies, True)):
            endpoints = make(LocalRingEndpoints, folder, copy_in=copy_in, copy_out=copy_out)
            for number in (1, 2, 3, 4):
                assert update(endpoints, number)[0] == {}
        endpoints = make(LocalRingEndpoints, broken, copy_in=copy_in, copy_out=True)
        endpoints.actors["rollout-1"].parts[0].write = lambda task, inputs: inputs
        wrong, _ = update(endpoints, 1)
        assert {name.partition(",")[0] for name in wrong} == {"trainer -> rollout-1"}


def test_with_copy_in_a_trainer_copies_its_own_parameters_when_it_sends_them(tmp_path):
    endpoints = make(LocalRingEndpoints, tmp_path, copy_in=True, copy_out=True)
    outbox = endpoints.actors["trainer"].outboxes["trainer"]
    before = outbox.buffers[1].clone()
    own = {tensor.data_ptr() for tensor in list_tensors(outbox.pool[1])}
    assert own.isdisjoint(tensor.data_ptr() for tensor in list_tensors(outbox.sent[1]))
    assert update(endpoints, 1)[0] == {} and not outbox.buffers[1].equal(before)


def test_torn_reads_are_found_in_memory_that_changes_while_it_is_served():
    endpoints = make()
    update(endpoints, 1, keep_time=0.05)
    parameters = parameters_of(endpoints, "rollout-1")
    assert parameters.reads > 5 and parameters.torn_reads == 0
    half = parameters.served[: len(parameters.served) // 2]
    for tensor in half:  # another version in some of the tensors, without a stall
        tensor.reshape(-1).view(torch.uint8)[0] ^= 1
    time.sleep(0.1)
    assert parameters.torn_reads > 0


def test_a_tensor_whose_end_is_of_another_version_is_torn():
    endpoints = make(sizes={"model": "1kB"})
    update(endpoints, 1)
    parameters = parameters_of(endpoints, "rollout-1")
    (tensor,) = parameters.served
    assert parameters.read_versions(tensor, 0) == (1, 1)
    tensor.reshape(-1).view(torch.uint8)[-8:].bitwise_not_()
    assert parameters.read_versions(tensor, 0) == (1, -1)


def test_nothing_is_read_while_the_engine_is_stopped():
    endpoints = make()
    update(endpoints, 1)
    parameters = parameters_of(endpoints, "rollout-1")
    parameters.stop_engine()
    time.sleep(0.02)
    before = parameters.reads
    time.sleep(0.05)
    assert parameters.reads == before


@pytest.mark.parametrize("copy_out", [False, True])
def test_a_receiver_whose_update_breaks_off_never_serves_a_mixture(copy_out):
    """The trainer dies after the first bucket: an engine serves the old version, or is stopped."""
    endpoints = make(sizes=SMALL | {"bucket_size": 100_000}, copy_out=copy_out)
    update(endpoints, 1)
    receiver, trainer = endpoints.actors["rollout-1"], endpoints.actors["trainer"]
    message = trainer.forward_step("trainer.0", endpoints.make_query(2))
    receiver.forward_step("rollout-1.0", endpoints.carry(message))
    parameters = parameters_of(endpoints, "rollout-1")
    stopped = parameters.changes % 2 == 1
    versions = {v for index, t in enumerate(parameters.served) for v in parameters.read_versions(t, index)}
    assert stopped if copy_out else versions == {1}
    time.sleep(0.03)
    assert parameters.torn_reads == 0


def test_unpacking_at_the_receiver_is_a_part_of_neither_transfer_nor_installation():
    def decode_slowly(payload, message, device):
        time.sleep(0.05)
        return payload

    endpoints = make(codec=Codec(lambda payload: payload, decode_slowly))
    _, times = update(endpoints, 1)
    receiver = times["rollout-1"]
    assert receiver.last_end - receiver.last_begin - receiver.install_seconds > 0.05


@pytest.mark.parametrize(("torn_reads", "expected"), [((0, 0), None), ((1, 2), "3 of 9 reads of served parameters")])
def test_torn_reads_fail_the_run(torn_reads, expected):
    collector = UpdateCollector(make().plan)
    times = {name: UpdateTimes(1.0, 2.0, 3.0, 4.0) for name in collector.plan.workers}
    for name, reads, torn in zip(("rollout-1", "rollout-2"), (4, 5), torn_reads, strict=True):
        times[name].reads, times[name].torn_reads = reads, torn
    collector.add(times, is_timed=True)
    updates, failure = collector.result(lambda name, seconds: seconds)
    assert (updates.reads, updates.publish_seconds, updates.transfer_seconds) == (9, [3.0], [1.0])
    assert failure is None if expected is None else failure.startswith(expected)
