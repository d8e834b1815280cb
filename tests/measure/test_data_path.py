# SPDX-License-Identifier: Apache-2.0
"""Check that a run with another data path fails, and that a path that nothing shows is recorded as requested."""

from dataclasses import replace

import pytest
from conftest import KILOBYTES

from dataflow.catalogue.catalogue import TRANSPORTS
from dataflow.measure.data_path import (
    expected_stored_bytes,
    find_other_data_path,
    mark_requested_paths,
)
from dataflow.plan import validate
from dataflow.records.schema import NodeCosts, Run

MIB = 2**20
TIMED = range(3, 6)  # three timed iterations after the first one and a warm-up
PLACED = {"driver": 0, "policy": 0, "reference": 1, "reward": 1}
MESSAGE_BYTES = 96 * MIB  # of the policy, in the demo's flow


def find_problem(plan, stored=0.0, received=0.0):
    """Return the problem of a run that stored and received so many bytes per iteration; "" if there is none."""
    run = Run(stored_bytes=round(len(TIMED) * stored), loopback_bytes=round(len(TIMED) * received))
    return find_other_data_path(plan, run, {}, TIMED) or ""


@pytest.mark.parametrize(("runtime", "transport", "stored_mib", "loopback_mib", "words"), [
    ("store", "refs", 352, 0, ""), ("store", "refs", 320, 0, "took in 320 MiB per iteration, and 352"),
    ("store", "refs", 400, 0, "took in 400 MiB"), ("store", "driver-queue", 608, 0, ""),
    ("store", "driver-queue", 352, 0, "608 MiB are expected"),
    ("graph", "shm", 0, 0, ""), ("graph", "shm", 352, 0, "another data path was used"),
    ("torch", "gloo", 0, 450, ""), ("torch", "gloo", 0, 300, "loopback interface received 300 MiB"),
])  # fmt: skip
def test_counted_bytes_are_those_of_the_transport(
    make_plan, runtime, transport, stored_mib, loopback_mib, words
):
    plan = make_plan(runtime, "--transport", transport)
    problem = find_problem(plan, stored_mib * MIB, loopback_mib * MIB)
    assert bool(problem) == bool(words) and words in problem
    many = make_plan(
        runtime, "--transport", transport, "--iteration-bytes", "448MiB", "--fields", "10000"
    )
    stored = expected_stored_bytes(many)
    assert find_problem(many, 1.12 * stored, 450 * MIB) == ""  # each tensor has a header
    assert stored or "took in 230 MiB" in find_problem(
        many, 230 * MIB, 450 * MIB
    )  # of 448 MiB, and it stores nothing


@pytest.mark.parametrize(
    ("stored_mib", "words"), [(1.3, ""), (4.0, ""), (0.9, "took in 921.6 KiB")]
)
def test_a_number_in_a_list_needs_one_byte_at_least(make_plan, stored_mib, words):
    """The values of a list take 8 bytes each in the size of the message, and fewer in a pickle."""
    plan = make_plan("store", "--transport", "refs", "--flow", "a -> b: n int64 8B, x ints 8MiB")
    problem = find_problem(plan, stored_mib * MIB)
    assert bool(problem) == bool(words) and words in problem


GRPO_MATH = ("--flow", "grpo-math")  # the reward by rule answers with 1 KiB


@pytest.mark.parametrize("flow", [GRPO_MATH, (*GRPO_MATH, "--as-sent")], ids=" ".join)
@pytest.mark.parametrize("transport", [
    "refs", "driver-queue", "bytes", pytest.param("ref-queue", marks=pytest.mark.study("chatlearn")),
])  # fmt: skip
def test_large_messages_are_checked_beside_small_ones(make_plan, flow, transport):
    plan = make_plan("store", "--transport", transport, *flow)
    sizes = [message.bytes for message in plan.sent_flow.messages]
    assert min(sizes) < 100 * 1024 < max(sizes)
    large = expected_stored_bytes(plan, 100 * 1024)
    for stored in (
        large,
        expected_stored_bytes(plan),
    ):  # Ray may keep the small ones in its calls, or not
        assert find_problem(plan, stored) == ""
    assert all("took in" in find_problem(plan, share * large) for share in (0, 0.9, 1.5))


def costs_of_nodes(*received):
    return {str(node): NodeCosts(received_bytes=count) for node, count in enumerate(received)}


@pytest.mark.parametrize(("transport", "messages"), [
    ("store refs", 1), ("graph shm", 1), ("torch gloo", 2), ("rdt nixl", 0), ("rdt nccl", 0), ("graph nccl", 0),
])  # fmt: skip
def test_a_node_that_received_too_little_fails_the_run_if_its_interface_counts(
    make_plan, transport, messages
):
    """The policy's message has two readers on node 1: Ray sends it once, and torch once per reader."""
    plan, placed = (
        replace(make_plan("store"), transport=TRANSPORTS[transport]),
        PLACED | {"proxy": 0},
    )
    plan = replace(plan, options=replace(plan.options, address="127.0.0.1:1"))

    def find(*received):
        return find_other_data_path(plan, Run(node_costs=costs_of_nodes(*received)), placed, TIMED)

    assert find(3 * 160 * MIB, 3 * messages * MESSAGE_BYTES) is find(10**9, None) is None
    for node, received in enumerate(
        ((3 * 100 * MIB, 10**12), (10**12, (3 * messages - 1) * MESSAGE_BYTES))
    ):
        assert not messages or f"node {node} received " in find(*received)


NAMES = (
    "driver -> policy",
    "policy -> reference",
    "policy -> reward",
    "reference -> reward",
    "reward -> driver",
)
CLUSTER = ("--address", "127.0.0.1:1")


@pytest.mark.parametrize(("transport", "flags", "counts", "views", "unseen"), [
    ("store refs", (), (), False, ()), ("store refs", KILOBYTES, (), False, NAMES),
    ("torch gloo", KILOBYTES, (), False, ()), ("graph shm", KILOBYTES, (), False, ()),
    ("torch mapped", KILOBYTES, (), True, ()), ("torch mapped", ("--copy-out",), (), False, NAMES),
    ("store refs", CLUSTER, (10, 10), False, ("driver -> policy", "reference -> reward")),
    ("store refs", CLUSTER, (None, 10), False, ("driver -> policy", "reference -> reward", "reward -> driver")),
    ("store refs", CLUSTER, (10, None), False, NAMES[:-1]),
])  # fmt: skip
def test_a_path_that_nothing_shows_is_as_requested(
    make_plan, monkeypatch, transport, flags, counts, views, unseen
):
    monkeypatch.setattr(validate, "require_cluster", lambda _: None)
    runtime, name = transport.split()
    plan = make_plan(runtime, "--transport", name, *flags)
    run = Run(data_paths=dict.fromkeys(NAMES, "path"), node_costs=costs_of_nodes(*counts))
    nodes = PLACED if counts else dict.fromkeys(PLACED, 0)
    for _ in range(2):  # the second time, all of them are marked already
        mark_requested_paths(plan, run, nodes, dict.fromkeys(NAMES, views))
        assert {
            edge for edge, path in run.data_paths.items() if path == "path (as requested)"
        } == set(unseen)
