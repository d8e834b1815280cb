# SPDX-License-Identifier: Apache-2.0
"""Read rates of links, and place actors on nodes."""

import pytest

from dataflow.cluster.hardware import format_rate, parse_rate, place
from dataflow.cluster.scaling import scale_flow
from dataflow.errors import UsageError
from dataflow.flows.parser import parse_flow

FLOW = parse_flow("a, b, c -> d: 1MB")


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("400gbit", 50e9),
        ("25Gbit", 3.125e9),
        ("10 Gbit/s", 1.25e9),
        ("50GB/s", 50e9),
        ("3.2tbit", 400e9),
        ("500 MB/s", 0.5e9),
    ],
)
def test_rates_are_bits_or_bytes_per_second(text, rate):
    assert parse_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize(
    "text", ["400", "400gb", "fast", "", "0gbit", "-1gbit", "1e9gbit", "9" * 9 + "tbit"]
)
def test_other_rates_are_rejected(text):
    with pytest.raises(ValueError, match="give a rate"):
        parse_rate(text)


def test_rates_are_shown_in_bits():
    assert format_rate(50e9) == "400 Gbit/s"


@pytest.mark.parametrize(
    ("placement", "numbers"),
    [
        ("blocks", [0, 0, 1, 1]),
        ("spread", [0, 1, 0, 1]),
        ("pack", [0, 0, 0, 0]),
        ("d=1,b=1", [0, 1, 0, 1]),
    ],
)
def test_actors_are_placed(placement, numbers):
    places = place(FLOW, 2, placement)
    assert [places[actor] for actor in "abcd"] == numbers
    assert places["driver"] == 0


@pytest.mark.parametrize(
    ("nodes", "numbers"), [(3, [0, 0, 1, 2]), (4, [0, 1, 2, 3]), (8, [0, 1, 2, 3])]
)
def test_blocks_use_all_nodes_if_there_are_enough_actors(nodes, numbers):
    places = place(FLOW, nodes, "blocks")
    assert [places[actor] for actor in "abcd"] == numbers


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        ("tight", "give blocks, pack, spread or ACTOR=NODE"),
        ("a=x", "give blocks, pack, spread or ACTOR=NODE"),
        ("e=1", "no such actor"),
        ("a=2", "a node from 0 to 1"),
        ("a=99999999999999999999", "a node from 0 to 1"),
    ],
)
def test_wrong_placements_are_one_line(placement, words):
    with pytest.raises(UsageError, match=words) as raised:
        place(FLOW, 2, placement)
    assert "\n" not in str(raised.value)


def reads_of(flow):
    return {task.actor: task.reads for task in flow.tasks}


def test_many_rollouts_share_the_trainers():
    flow = scale_flow(parse_flow("rollout -> trainer: 1MB"), {"rollout": 4, "trainer": 2})
    assert reads_of(flow)["trainer-1"] == ("rollout-1", "rollout-3")
    assert reads_of(flow)["trainer-2"] == ("rollout-2", "rollout-4")
    assert flow.returns == ("trainer-1", "trainer-2")


def test_all_rollouts_read_the_weights_of_a_trainer():
    flow = scale_flow(parse_flow("trainer -> rollout: 1MB"), {"rollout": 4, "trainer": 2})
    assert [reads_of(flow)[f"rollout-{number}"] for number in range(1, 5)] == [
        ("trainer-1",),
        ("trainer-2",),
        ("trainer-1",),
        ("trainer-2",),
    ]


def test_a_flow_without_rollouts_has_no_copies_of_them():
    with pytest.raises(UsageError, match="the flow has no actor rollout"):
        scale_flow(FLOW, {"rollout": 2})
