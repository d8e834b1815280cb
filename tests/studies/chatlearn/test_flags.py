"""Test the flags of ChatLearn's transport and trainer: what is rejected, and what follows."""

import pytest
from conftest import parse_options, reject_options

from dataflow.measure.data_path import expected_stored_bytes, find_missing_bytes, find_other_data_path
from dataflow.plan import memory
from dataflow.records.schema import NodeCosts, Run

MIB = 2**20
REF_QUEUE = ("--transport", "ref-queue")
TRAINED = (*REF_QUEUE, "--message", "fields", "--sink", "trainer")
pytestmark = pytest.mark.usefixtures("no_gpu")


def parse(*flags):
    (options,) = parse_options("store", *flags)
    return options


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--transport", "refs", "--episode", "8"], "--episode is a flag of --transport ref-queue: give"),
        ([*REF_QUEUE, "--episode", "8", "--in-flight", "4"], "give --in-flight 8"),
        ([*REF_QUEUE, "--episode", "2", "--in-flight", "4"], "a verification after 2 iterations: give 2 or less"),
        ([*REF_QUEUE, "--episode", "2", "--in-flight", "2", "--check-every", "2"], "--check-every: every episode"),
        ([*REF_QUEUE, "--episode", "200"], "--iterations 100: give 200"),
        ([*REF_QUEUE, "--replicas", "critic=2"], "there is no model critic: give policy, reference, reward"),
        ([*REF_QUEUE, "--replicas", "reward=9", "--ranks", "reward=8"], "reward has 72 processes"),
        ([*REF_QUEUE, "--ranks", "policy"], "--ranks policy: give NAME=VALUE"),
        (["--transport", "refs", "--sink", "trainer"], "--sink is a flag of --transport ref-queue: give"),
        ([*REF_QUEUE, "--sink", "trainer", "--flow", "slime"], "give --message fields, or one of ChatLearn's flows"),
        (
            [*REF_QUEUE, "--sink", "trainer"],
            "the flat messages of online-dpo cannot be cut into samples: give --message fields",
        ),
        ([*REF_QUEUE, "--train-micro-batch", "4"], "give --sink trainer too"),
        (
            [*REF_QUEUE, "--flow", "ppo", "--message", "jagged", "--sink", "trainer"],
            "jagged messages of ppo cannot be cut",
        ),
        ([*TRAINED, "--episode", "4"], "give --in-flight 4"),
        ([*TRAINED, "--train-global-batch", "4"], "give a multiple of --train-micro-batch 8"),
        (["--model-seconds", "trainer=1s"], "there is no actor trainer: give policy, reference, reward"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_flags_that_cannot_be_used_are_rejected_in_one_line(flags, reason):
    assert reason in reject_options("store", *flags)


def test_an_episode_is_a_group_of_iterations():
    assert parse("--in-flight", "4", "--episode", "4").group_size == 4
    assert parse("--model-seconds", "trainer=1s", *TRAINED).model_times == {"trainer": 1}
    flags = ["--sink", "trainer", "--in-flight", "8", "--episode", "8"]
    assert parse(*flags).configuration_flags == {"in_flight": 8, "sink": "trainer", "episode": 8}


def test_workers_are_named_by_replica_and_rank_if_an_actor_has_several(make_plan):
    layout = ("--replicas", "policy=2,reward=3", "--ranks", "policy=2")
    plan = make_plan("store", *REF_QUEUE, "--flow", "ppo", "--batch-size", "2", *layout)
    assert plan.worker_names == (
        "driver", "policy.0.0", "policy.0.1", "policy.1.0", "policy.1.1", "reference", "value",
        "reward.0", "reward.1", "reward.2",
    )  # fmt: skip
    answering = [name for name, worker in plan.workers.items() if worker.answers and worker.actor == "policy"]
    assert answering == ["policy.0.1", "policy.1.1"]
    assert [plan.workers["reward.1"].last_due(number) for number in range(7)] == [0, 0, 2, 2, 2, 5, 5]


def test_replicas_and_ranks_have_memory_of_their_own(make_plan):
    def resident(*flags):
        plan = make_plan("store", *REF_QUEUE, "--flow", "ppo", "--in-flight", "2", "--batch-size", "8", *flags)
        return memory.resident_bytes(plan.transport, plan.options, plan.task_flow), plan.task_flow

    alone, flow = resident()
    several, _ = resident("--replicas", "reward=2", "--ranks", "reward=3")
    inputs = sum(edge.bytes for edge in flow.edges_to("reward"))
    assert several - alone == 5 * (5 * flow.message("reward").bytes + 3 * inputs)


def test_the_micro_batches_of_the_trainer_are_stored_too(make_plan):
    sizes = ("--message", "fields", "--batch-size", "64", "--prompt-len", "389", "--response-len", "512")
    counts = ("--episode", "4", "--in-flight", "4", "--iterations", "4", "--warmup", "0", "--sink", "trainer")
    flags = (*REF_QUEUE, *sizes, *counts)
    plan = make_plan("store", *flags)
    messages, batches = expected_stored_bytes(plan), plan.task_flow.edges_to("stream-dataset")[0].bytes
    for stored, is_expected in ((messages + batches, True), (messages + 2 * batches, False)):
        problem = find_other_data_path(plan, Run(stored_bytes=4 * stored), range(2, 6))
        assert (problem is None) == is_expected
    uneven = make_plan("store", *flags, "--prompt-len", "uniform:10:100")  # the longest sample sets the length
    assert uneven.options.added_store_bytes(uneven.task_flow) > uneven.task_flow.edges_to("stream-dataset")[0].bytes
    plan = make_plan("store", *flags[:-2])
    assert plan.options.added_store_bytes(plan.task_flow) == 0


def test_each_replica_receives_its_share_on_its_own_node(make_plan):
    """Half of the queries and of the policy's messages cross: those of the replica on node 1, and on node 0."""
    plan = make_plan("store", *REF_QUEUE, "--replicas", "policy=2", "--iteration-bytes", "448MiB")
    placed = {"driver": 0, "policy.0": 0, "policy.1": 1, "reference": 1, "reward": 1}
    even = range(3, 7)
    assert plan.crossings(placed).bytes_by_link(even) == {
        (0, 1): 2 * 96 * MIB + 2 * 32 * MIB, (1, 0): 4 * 160 * MIB,
    }  # fmt: skip

    def received(*counts):
        return {str(node): NodeCosts(received_bytes=count) for node, count in enumerate(counts)}

    assert find_missing_bytes(plan, received(4 * 160 * MIB, 4 * 64 * MIB), placed, even) is None
    assert "node 1" in find_missing_bytes(plan, received(4 * 160 * MIB, 4 * 50 * MIB), placed, even)
    assert plan.crossings(placed).bytes_by_link(range(3, 6))[0, 1] == 2 * 96 * MIB + 32 * MIB  # 3, 4 and 5
