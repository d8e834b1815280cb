"""Test the flags of ChatLearn's transport: what follows from them, and what is rejected before anything starts."""

import pytest
from conftest import parse_options, reject_options

from dataflow.plan import memory

REF_QUEUE = ("--transport", "ref-queue")
PPO = (*REF_QUEUE, "--flow", "ppo", "--batch-size", "2", "--prompt-len", "8", "--response-len", "8")
TRAINED = (*REF_QUEUE, "--message", "fields", "--sink", "trainer")


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--transport", "refs", "--episode", "8"], "of --transport ref-queue: give this transport, or"),
        ([*REF_QUEUE, "--episode", "8", "--in-flight", "4"], "give --in-flight 8"),
        ([*REF_QUEUE, "--episode", "200"], "--iterations 100: give 200"),
        ([*REF_QUEUE, "--replicas", "critic=2"], "there is no model critic: give policy, reference, reward"),
        ([*REF_QUEUE, "--replicas", "reward=9", "--ranks", "reward=8"], "reward has 72 processes"),
        ([*REF_QUEUE, "--ranks", "policy"], "--ranks policy: give NAME=VALUE"),
        (["--sink", "trainer", "--flow", "slime"], "give --message fields, or one of ChatLearn's flows"),
        (["--train-micro-batch", "4"], "give --sink trainer too"),
        (["--flow", "ppo", "--message", "jagged", "--sink", "trainer"], "cannot cut jagged messages"),
        ([*TRAINED, "--episode", "4"], "give --in-flight 4"),
        ([*TRAINED, "--train-global-batch", "4"], "give a multiple of 8"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_flags_that_cannot_be_used_are_rejected_in_one_line(no_gpu, flags, reason):
    assert reason in reject_options("store", *flags)


@pytest.mark.parametrize(
    ("flags", "group_size", "new_queues"),
    [("--in-flight 4 --episode 4", 4, True), ("--in-flight 4", 4, False), ("--episode 2 --keep-queues", 2, False)],
)
def test_an_episode_is_a_group_with_new_queues(flags, group_size, new_queues):
    (options,) = parse_options("store", *REF_QUEUE, *flags.split())
    assert (options.group_size, options.new_queues) == (group_size, new_queues)


def test_workers_are_named_by_replica_and_rank_if_an_actor_has_several(make_plan):
    plan = make_plan("store", *PPO, "--replicas", "policy=2,reward=3", "--ranks", "policy=2")
    assert plan.worker_names == (
        "driver", "policy.0.0", "policy.0.1", "policy.1.0", "policy.1.1", "reference", "value",
        "reward.0", "reward.1", "reward.2",
    )  # fmt: skip
    answering = [name for name, worker in plan.workers.items() if worker.answers and worker.actor == "policy"]
    assert answering == ["policy.0.1", "policy.1.1"]


def test_replicas_ranks_and_trainers_have_memory_of_their_own(make_plan):
    def resident(*flags):
        plan = make_plan("store", *PPO, "--in-flight", "2", *flags)
        return memory.resident_bytes(plan.transport, plan.options, plan.task_flow), plan.task_flow

    alone, flow = resident()
    several, _ = resident("--replicas", "reward=2", "--ranks", "reward=3")
    inputs = sum(edge.bytes for edge in flow.edges_to("reward"))
    assert several - alone == 5 * (5 * flow.message("reward").bytes + 3 * inputs)
    two, flow = resident("--sink", "trainer")  # policy and value
    one, _ = resident("--sink", "trainer", "--trainers", "1")
    assert two - one == 2 * sum(edge.bytes for edge in flow.edges_to("stream-dataset"))
