# SPDX-License-Identifier: Apache-2.0
"""Test that verification finds what a transport does wrong, in one process, and when messages are freed."""

import math
import tempfile
import weakref
from collections import ChainMap
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from in_process import COLOCATED, DEMO, FIELDS, RICH, LocalEdge, LocalEndpoints, flip_bit, on_edge

from dataflow.endpoints import inbox as inbox_module
from dataflow.endpoints import tensors
from dataflow.endpoints.inbox import Inbox
from dataflow.endpoints.payload import number_bytes
from dataflow.errors import RunFailed
from dataflow.flows.catalogue import build_flow, chain, scatter_gather
from dataflow.flows.flow import with_proxy_actor
from dataflow.flows.message import ITEM_BYTES, flat_message
from dataflow.measure.loop import Measurement
from dataflow.records.schema import Run

K, GROUP = 4, 10  # iterations in flight, and between two verifications
TENSOR = torch.ones(8)
NUMBER_BYTES = {field.name: count for field in FIELDS.fields if (count := number_bytes(field))}
PPO = build_flow("ppo", {"batch_size": 3, "prompt_len": 5, "response_len": 4}, "fields")
FLOWS = [
    DEMO,
    RICH,
    COLOCATED,
    with_proxy_actor(RICH),
    PPO,
    scatter_gather(9, 3),
    chain(1, 2),
    chain(13, 1),
]
OPTIONS = [
    {}, {"message": "packed"}, {"message": "jagged"}, {"in_flight": K},
    {"message": "packed", "copy_out": True, "in_flight": K},
]  # fmt: skip


def all_bytes(*edges):
    """Return every field of these edges with all of its bytes."""
    counts = {
        f"{e}, {field.name}" if field.name else str(e): field.bytes
        for e in edges
        for field in e.message.fields
    }
    return {name: count for name, count in counts.items() if count}


def in_reward(change):
    return on_edge("policy -> reward", change)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: f"{flow.name} of {flow.query.bytes} B")
def test_right_iterations_have_no_wrong_bytes_and_are_copies(flow, options):
    endpoints = LocalEndpoints(flow, **options)
    count = options.get("in_flight", 1)
    for first in range(1, 4 * count + 1, count):
        for number in range(first, first + count):
            endpoints.run(number)
        assert endpoints.verify(first, number) == {}
        assert endpoints.views == {str(edge): False for edge in flow.edges}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: f"{flow.name} of {flow.query.bytes} B")
def test_memory_to_which_nobody_has_sent_is_wrong_on_every_edge(flow, options):
    endpoints = LocalEndpoints(flow, **options)
    found = dict(ChainMap(*(endpoint.try_on_unsent_memory() for endpoint in endpoints.all)))
    assert {edge for edge, count in found.items() if count} == {
        str(edge) for edge in flow.edges if edge.bytes
    }
    endpoints.run(1)  # it leaves nothing behind
    assert endpoints.verify(1) == {}


def test_a_run_whose_verification_cannot_fail_is_refused():
    found = {"actor-1": {"driver -> actor-1": 13}, "driver": {"actor-1 -> driver": 0}}
    workers, plan = SimpleNamespace(call=lambda _: found), SimpleNamespace(task_flow=chain(13, 1))
    measurement = SimpleNamespace(workers=workers, run=Run(), plan=plan)
    with pytest.raises(
        RunFailed,
        match="actor-1 -> driver: the verification accepts memory to which nobody has sent",
    ):
        Measurement.try_verification(measurement)
    assert measurement.run.unsent_wrong_bytes == {"driver -> actor-1": 13, "actor-1 -> driver": 0}


@pytest.mark.parametrize(
    "message", [FIELDS, *map(flat_message, range(1, 17))], ids=lambda message: f"{message.bytes} B"
)
def test_every_byte_of_every_field_is_compared(message):
    """Of long fields, these are the bytes of the sequence number, some after it, and the last one."""
    edge = LocalEdge(message)
    for field in message.fields:
        name = f"policy -> reward, {field.name}" if field.name else "policy -> reward"
        for item, shape in enumerate(field.shapes):
            count = math.prod(shape) * ITEM_BYTES[field.dtype]
            for index in {*range(min(count, 12)), count - 1} if count else ():
                edge.inbox.last = 0
                edge.send(
                    1, lambda payload, where=(field.name, index, item): flip_bit(payload, *where)
                )
                assert edge.verify(1) == {name: 1}


@pytest.mark.parametrize("late", [11, 15, 17, 19])
@pytest.mark.parametrize("name", NUMBER_BYTES)
def test_a_late_sequence_number_is_wrong_although_the_payload_is_right_in_the_end(name, late):
    endpoints = LocalEndpoints(RICH, in_flight=K, check_every=GROUP)
    for number in range(1, 21):
        endpoints.run(
            number,
            in_reward(lambda payload: flip_bit(payload, name, 0, 0)) if number == late else None,
        )
        if number == GROUP:
            assert endpoints.verify(1, GROUP) == {}
    held = dict(endpoints.actors["reward"].inboxes["reward"].held)
    if late in held:  # the right number has arrived by now
        pool = endpoints.actors["policy"].outboxes["policy"].pool
        held[late][0][name] = pool[late % len(pool)][name]
    assert endpoints.verify(11, 20) == {f"policy -> reward, {name}": NUMBER_BYTES[name]}


@pytest.mark.parametrize("flow", [RICH, COLOCATED], ids=lambda flow: flow.name)
def test_every_byte_of_the_newest_messages_of_a_group_is_compared(flow):
    endpoints, changed = LocalEndpoints(flow, in_flight=K, check_every=GROUP), (3, 6, 7, 10)
    for number in range(1, GROUP + 1):
        endpoints.run(
            number,
            in_reward(lambda payload: flip_bit(payload, "corner")) if number in changed else None,
        )
    assert endpoints.verify(1, GROUP) == {
        "policy -> reward, corner": len([n for n in changed if n > GROUP - K])
    }


@pytest.mark.parametrize("in_flight", [1, K])
@pytest.mark.parametrize(
    "numbers", [[1, 2, 3, 5, 6], [1, 2, 3, 4, 4, 5, 6]], ids=["missing", "twice"]
)
def test_a_message_of_a_group_that_is_missing_or_arrives_twice_is_wrong(in_flight, numbers):
    endpoints = LocalEndpoints(RICH, in_flight=in_flight, check_every=6)
    for number in numbers:
        endpoints.run(number)
    wrong = endpoints.verify(1, 6)
    assert all(wrong[name] >= count for name, count in all_bytes(*RICH.edges).items())
    for number in range(7, 13):
        endpoints.run(number)
    assert endpoints.verify(7, 12) == {}
    assert (
        endpoints.verify(12) == endpoints.verify(13) == all_bytes(*RICH.edges)
    )  # what is verified does not count


@pytest.mark.parametrize(("name", "change"), [
    ("tokens", lambda value: value.view(torch.float64)),
    ("tokens", lambda value: value[:-1]),
    ("tokens", lambda value: value.reshape(-1)),
    ("list", lambda value: value[:-1]),
    ("list", torch.cat),
    ("list", lambda value: [value[0], value[2], value[1]]),
    ("list", lambda value: [*value[:-1], value[-1].to("meta")]),  # another device
    ("words", lambda value: value[:-1]),
    ("words", lambda value: [text.encode() for text in value]),
    ("words", lambda value: None),
    ("words", lambda value: [text + "é" for text in value]),
    ("words", lambda value: ["".join(value), *[""] * (len(value) - 1)]),  # the same letters in other strings
])  # fmt: skip
def test_all_bytes_of_a_field_with_another_type_shape_or_length_are_wrong(name, change):
    endpoints = LocalEndpoints(RICH)
    endpoints.run(1, in_reward(lambda payload: payload | {name: change(payload[name])}))
    edge = f"policy -> reward, {name}"
    assert endpoints.verify(1) == {edge: all_bytes(*RICH.edges)[edge]}


INPUTS = [[], [TENSOR] * 2, [None], [ValueError("lost")], [TENSOR.numpy()], [{"x": TENSOR}],
          [{name: [[TENSOR]] for name in FIELDS.names}]]  # fmt: skip
OTHER_OPTIONS = [{}, {"copy_out": True}, {"message": "packed"}]


@pytest.mark.parametrize(
    ("options", "inputs"), [*product(OTHER_OPTIONS, INPUTS), ({"message": "packed"}, [TENSOR])],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_inputs_other_than_one_payload_per_edge_are_rejected_with_the_edge(inputs, options):
    for flow in (DEMO, RICH):
        endpoints = LocalEndpoints(flow, **options)
        with pytest.raises(RunFailed, match="driver -> policy"):
            endpoints.actors["policy"].forward_step("policy", *inputs)
        assert endpoints.verify(1) == all_bytes(*flow.edges)


def test_a_payload_that_is_overwritten_before_verification_is_wrong_unless_readers_copy_it():
    """A view shows other bytes if a transport reuses its buffer too early."""
    for options, wrong_edges in (
        ({"copy_out": True}, set()),
        ({}, {str(edge) for edge in RICH.edges}),
    ):
        endpoints, passed = LocalEndpoints(RICH, in_flight=K, **options), []
        for number in range(1, K + 1):
            endpoints.run(
                number, lambda _, payload, passed=passed: passed.append(payload) or payload
            )
        for payload in passed:
            tensors.map_tensors(torch.Tensor.zero_, payload)
        assert {name.partition(",")[0] for name in endpoints.verify(1, K)} == wrong_edges


def test_a_task_that_reads_only_its_own_actor_sends_the_number_that_it_reads():
    """This holds even if the actor receives the next message before the task runs."""
    endpoints = LocalEndpoints(COLOCATED, in_flight=2)
    one = endpoints.actors["one"]
    for number in (1, 2):
        one.forward_step("policy", endpoints.carry(endpoints.make_query(number)))
    assert [int(one.forward_step("critic")["tokens"][0, 0]) for _ in range(2)] == [1, 2]


def test_views_of_shared_memory_are_told_from_copies():
    edge = LocalEdge(FIELDS)
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.truncate(2**20)
        view = torch.from_file(file.name, shared=True, size=2**17, dtype=torch.int64)
        edge.send(1, lambda payload: payload | {"tokens": view[-15:].view(3, 5)})
        edge.verify(1)
        assert edge.views == {"policy -> reward": None}  # one of several tensors is a view
        edge = LocalEdge(flat_message(8))
        for number, tensor in enumerate([view[:1], view[-1:], view[:1].clone()], 1):
            edge.send(number, lambda _, tensor=tensor: tensor)
            edge.verify(number)
            assert edge.views == {"policy -> reward": number < 3}


@pytest.mark.parametrize(("keep", "group"), [(1, 1), (1, 4), (2, 2), (2, 4)])
def test_a_message_is_freed_while_a_newer_one_is_taken_and_never_by_a_verification(keep, group):
    """So its time is inside the clock, or outside of it, in every mode: here it is inside."""
    edge, freed = LocalEdge(flat_message(64), keep + 2, keep), []
    for number in range(1, 9):

        def mark(payload, number=number):
            weakref.finalize(payload, freed.append, number)
            return payload

        edge.send(number, mark)
        assert freed == list(range(1, number - keep + 1))
        if number % group == 0:
            assert edge.verify(number - group + 1, number) == {}
            assert freed == list(range(1, number - keep + 1))


@pytest.mark.parametrize(
    "message", [*map(flat_message, (1, 3, 8, 13, 64)), FIELDS], ids=lambda m: f"{m.bytes} B"
)
def test_a_message_of_an_earlier_iteration_is_wrong(message):
    """At multiples of the three slots, only the number differs. With two slots, a pair of buffers could hide it."""
    for age in range(1, 7):
        edge = LocalEdge(message)
        edge.inbox.last = 9
        assert edge.send(10 - age) == 10
        assert sum(edge.verify(10).values()) > (
            message.bytes / 2 if age % 3 and message.bytes > 13 else 0
        )


def test_the_verification_takes_memory_on_the_gpu_of_its_worker(monkeypatch):
    asked = []

    def make_on_host(message, device):
        asked.append(device)
        return tensors.like(message, "cpu")

    monkeypatch.setattr(inbox_module, "like", make_on_host)
    gpu = torch.device("cuda:1")
    found = Inbox(DEMO.edges_to("reference"), gpu, 1).try_on_unsent_memory({"policy": [[0]]})
    assert asked == [gpu]
    assert found == {"policy -> reference": DEMO.message("policy").bytes}  # it is not on a GPU
