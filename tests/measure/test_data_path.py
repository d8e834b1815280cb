"""Check that a run with another data path fails, and that a path that nothing shows is recorded as requested."""

from dataclasses import replace

import pytest
from conftest import KILOBYTES

from dataflow.catalogue.catalogue import TRANSPORTS
from dataflow.flows.flow import collective_bytes
from dataflow.measure.data_path import (
    expected_stored_bytes,
    find_missing_bytes,
    find_other_data_path,
    mark_requested_paths,
)
from dataflow.plan import validate
from dataflow.records.schema import NodeCosts, Run

MIB = 2**20
TIMED = range(3, 6)  # three timed iterations after the first one and a warm-up
PLACED = {"driver": 0, "policy": 0, "reference": 1, "reward": 1}
MESSAGE_BYTES = 96 * MIB  # of the policy, in the demo's flow


@pytest.mark.parametrize(
    ("runtime", "transport", "stored_mib", "loopback_mib", "words"),
    [
        ("store", "refs", 352, 0, ""), ("store", "refs", 320, 0, "took in 320 MiB per iteration, and 352"),
        ("store", "refs", 400, 0, "took in 400 MiB"), ("store", "driver-queue", 608, 0, ""),
        ("store", "driver-queue", 352, 0, "608 MiB are expected"), ("store", "payload-queue", 896, 0, ""),
        ("graph", "shm", 0, 0, ""), ("graph", "shm", 352, 0, "another data path was used"),
        ("torch", "gloo", 0, 450, ""), ("torch", "gloo", 0, 300, "loopback interface received 300 MiB"),
    ],
)  # fmt: skip
def test_bytes_in_the_store_and_on_the_loopback_interface_are_those_of_the_transport(
    make_plan, runtime, transport, stored_mib, loopback_mib, words
):
    plan = make_plan(runtime, "--transport", transport)
    run = Run(stored_bytes=3 * stored_mib * MIB, loopback_bytes=3 * loopback_mib * MIB)
    problem = find_other_data_path(plan, run, TIMED)
    assert bool(problem) == bool(words) and words in (problem or "")
    many = make_plan(runtime, "--transport", transport, "--payload", "448MiB", "--fields", "10000")
    stored = expected_stored_bytes(many)
    pickled = Run(stored_bytes=3 * int(1.12 * stored), loopback_bytes=3 * 450 * MIB)
    assert find_other_data_path(many, pickled, TIMED) is None  # each tensor has a header
    if not stored:
        wrong = Run(stored_bytes=3 * 230 * MIB, loopback_bytes=3 * 450 * MIB)
        assert "took in 230 MiB" in (
            find_other_data_path(many, wrong, TIMED) or ""
        )  # of 448 MiB, and it stores nothing


GRPO_MATH = ("--flow", "grpo-math")  # the reward by rule answers with 1 KiB


@pytest.mark.parametrize("flow", [GRPO_MATH, (*GRPO_MATH, "--as-sent")], ids=" ".join)
@pytest.mark.parametrize("transport", ["refs", "ref-queue", "driver-queue", "payload-queue", "bytes"])
def test_large_messages_are_checked_beside_small_ones(make_plan, flow, transport):
    plan = make_plan("store", "--transport", transport, *flow)
    messages = plan.sent_flow.messages
    assert min(message.bytes for message in messages) < 100 * 1024 < max(message.bytes for message in messages)
    large = expected_stored_bytes(plan, 100 * 1024)
    for stored in (large, expected_stored_bytes(plan)):  # Ray may keep the small ones in its calls, or not
        assert find_other_data_path(plan, Run(stored_bytes=3 * stored), TIMED) is None
    for share in (0, 0.9, 1.5):
        assert "took in" in (find_other_data_path(plan, Run(stored_bytes=int(3 * share * large)), TIMED) or "")


def test_each_node_of_a_private_cluster_stores_what_its_actors_read(make_plan):
    """Measured: 3.686 MiB per iteration, where the messages have 1.75 MiB and nearly all of them cross."""
    sizes = ("--flow", "grpo-math", "--batch-size", "64", "--prompt-len", "256", "--response-len", "256")
    for flags, is_ok in ((("--placement", "spread"), True), ((), False)):
        plan = make_plan("store", "--transport", "refs", *sizes, *flags)
        assert (find_other_data_path(plan, Run(stored_bytes=int(3 * 3.686 * MIB)), TIMED) is None) == is_ok


def test_sockets_are_checked_whatever_the_size_of_messages(make_plan):
    plan = make_plan("torch", "--transport", "gloo", *KILOBYTES)
    sent = plan.sent_flow.bytes_per_iteration
    assert find_other_data_path(plan, Run(loopback_bytes=3 * sent), TIMED) is None
    assert "another data path" in find_other_data_path(plan, Run(loopback_bytes=2 * sent), TIMED)
    step = make_plan("torch", "--transport", "collectives", "--flow", "zero", "--model", "8MB", "--zero-ranks", "3")
    by_textbook = int(3 * collective_bytes(step.sent_flow))  # of three ranks
    assert find_other_data_path(step, Run(loopback_bytes=3 * by_textbook), TIMED) is None
    assert "another data path" in find_other_data_path(step, Run(loopback_bytes=2 * by_textbook), TIMED)


def received(*counts):
    return {str(node): NodeCosts(received_bytes=count) for node, count in enumerate(counts)}


@pytest.mark.parametrize(("transport", "messages"), [("store refs", 1), ("graph shm", 1), ("torch gloo", 2)])
def test_a_node_that_received_too_little_fails_the_run(make_plan, transport, messages):
    """The policy's message has two readers on node 1: Ray sends it once, and torch once per reader."""
    plan = replace(make_plan("store"), transport=TRANSPORTS[transport])
    enough = received(3 * 160 * MIB, 3 * messages * MESSAGE_BYTES)
    assert find_missing_bytes(plan, enough, PLACED, TIMED) is None
    for costs in (received(3 * 100 * MIB, 10**12), received(10**12, (3 * messages - 1) * MESSAGE_BYTES)):
        assert " received " in find_missing_bytes(plan, costs, PLACED, TIMED)


def test_each_replica_receives_its_share_on_its_own_node(make_plan):
    """Half of the queries and of the policy's messages cross: those of the replica on node 1, and on node 0."""
    replicas = make_plan("store", "--transport", "ref-queue", "--replicas", "policy=2", "--payload", "448MiB")
    placed = {"driver": 0, "policy.0": 0, "policy.1": 1, "reference": 1, "reward": 1}
    even = range(3, 7)
    assert replicas.crossings(placed).bytes_by_link(even) == {
        (0, 1): 2 * MESSAGE_BYTES + 2 * 32 * MIB, (1, 0): 4 * 160 * MIB,
    }  # fmt: skip
    assert find_missing_bytes(replicas, received(4 * 160 * MIB, 4 * 64 * MIB), placed, even) is None
    assert "node 1" in find_missing_bytes(replicas, received(4 * 160 * MIB, 4 * 50 * MIB), placed, even)
    assert replicas.crossings(placed).bytes_by_link(TIMED)[0, 1] == 2 * MESSAGE_BYTES + 32 * MIB  # 3, 4 and 5


@pytest.mark.parametrize(("transport", "count"), [
    ("rdt nixl", 10**5), ("rdt nccl", 10**5), ("graph nccl", 10**5), ("store refs", None), ("torch gloo", None),
])  # fmt: skip
def test_bytes_that_no_interface_counts_do_not_fail_a_run(make_plan, transport, count):
    plan = replace(make_plan("store"), transport=TRANSPORTS[transport])
    assert find_missing_bytes(plan, received(10**9, count), PLACED | {"proxy": 0}, TIMED) is None


NAMES = ("driver -> policy", "policy -> reference", "policy -> reward", "reference -> reward", "reward -> driver")
CLUSTER = ("--address", "127.0.0.1:1")


@pytest.mark.parametrize(("transport", "flags", "counts", "views", "unseen"), [
    ("store refs", (), (), False, ()), ("store refs", KILOBYTES, (), False, NAMES),
    ("torch gloo", KILOBYTES, (), False, ()), ("graph shm", KILOBYTES, (), False, ()),
    ("torch mapped", KILOBYTES, (), True, ()), ("torch mapped", ("--copy-out",), (), False, NAMES),
    ("store refs", CLUSTER, (10, 10), False, ("driver -> policy", "reference -> reward")),
    ("store refs", CLUSTER, (None, 10), False, ("driver -> policy", "reference -> reward", "reward -> driver")),
    ("store refs", CLUSTER, (10, None), False, NAMES[:-1]),
])  # fmt: skip
def test_a_data_path_that_nothing_shows_is_as_requested(
    make_plan, monkeypatch, transport, flags, counts, views, unseen
):
    monkeypatch.setattr(validate, "require_cluster", lambda _: None)
    runtime, name = transport.split()
    plan = make_plan(runtime, "--transport", name, *flags)
    run = Run(data_paths=dict.fromkeys(NAMES, "path"), node_costs=received(*counts))
    nodes = PLACED if counts else dict.fromkeys(PLACED, 0)
    mark_requested_paths(plan, run, nodes, dict.fromkeys(NAMES, views))
    assert {edge for edge, path in run.data_paths.items() if path == "path (as requested)"} == set(unseen)
    again = dict(run.data_paths)
    mark_requested_paths(plan, run, nodes, dict.fromkeys(NAMES, views))
    assert run.data_paths == again
