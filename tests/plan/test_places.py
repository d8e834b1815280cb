"""Replicas and ranks: which process takes which message."""

import pytest

from common.plan.plan import Place

FIELDS = ("--flow", "ppo", "--rows", "2", "--prompt-len", "8", "--response-len", "8")


def test_participants_are_named_by_replica_and_rank_where_there_are_several(make_plan):
    plan = make_plan("store", *FIELDS, "--replicas", "policy=2,reward=3", "--ranks", "policy=2")
    assert plan.participants == (
        "driver", "policy.0.0", "policy.0.1", "policy.1.0", "policy.1.1", "reference", "value",
        "reward.0", "reward.1", "reward.2",
    )  # fmt: skip
    assert [name for name, place in plan.places.items() if place.answers and place.actor == "policy"] == [
        "policy.0.1", "policy.1.1"
    ]  # fmt: skip
    assert (plan.layout.replicas, plan.layout.ranks) == ({"policy": 2, "reward": 3}, {"policy": 2})


@pytest.mark.parametrize("replicas", [1, 2, 3, 5])
def test_every_message_is_taken_by_one_replica_in_turn(replicas):
    places = [Place("policy", replica, replicas) for replica in range(replicas)]
    turns = [[place.replica for place in places if place.takes(number)] for number in range(1, 31)]
    assert turns == [[index % replicas] for index in range(30)]
    for place in places:
        for number in range(31):
            taken = [other for other in range(1, number + 1) if place.takes(other)]
            assert place.last_due(number) == max(taken, default=0)
