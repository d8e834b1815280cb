"""Flows that are written on the command line."""

import pytest

from common.flow.catalogue import build_flow, sizes_of
from common.flow.flow import with_trainer
from common.flow.message import WORD

QUESTION = "rollout-1, rollout-2 -> trainer: tokens int64 8MB, logprobs float32 4MB"


def edges(text):
    return [(edge.source, edge.reader, edge.bytes) for edge in build_flow(text, {}).edges]


def test_senders_that_nobody_writes_to_are_called_by_the_driver_and_readers_that_send_nothing_answer_it():
    assert edges(QUESTION) == [
        ("driver", "rollout-1", 8), ("driver", "rollout-2", 8), ("rollout-1", "trainer", 12_000_000),
        ("rollout-2", "trainer", 12_000_000), ("trainer", "driver", 8),
    ]  # fmt: skip
    flow = build_flow(QUESTION, {})
    fields = flow.task("rollout-1").emits.fields
    assert [(field.name, field.dtype, field.shape) for field in fields] == [
        ("tokens", "int64", (1_000_000,)), ("logprobs", "float32", (1_000_000,))
    ]  # fmt: skip
    assert (flow.title, flow.query, sizes_of(QUESTION)) == ("rollout-1, rollout-2 -> trainer", WORD, {})


def test_the_driver_may_send_and_read_and_the_order_of_the_steps_does_not_matter():
    text = "judge -> driver: 1kB; left -> judge: 2kB; driver -> left, judge: 4kB"
    assert edges(text) == [
        ("driver", "left", 4000), ("left", "judge", 2000), ("driver", "judge", 4000), ("judge", "driver", 1000)
    ]  # fmt: skip


def test_an_actor_that_stands_in_for_the_driver_is_not_the_flows_own_trainer():
    assert with_trainer(build_flow(QUESTION, {})).actors == ("stand-in", "rollout-1", "rollout-2", "trainer")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a -> b", "write it as"),
        ("a - b: 12MB ->", "write it as"),
        ("->", "write it as"),
        ("a -> : 12MB", "no name"),
        ("a b -> c: 12MB", "'a b' is no name"),
        ("a -> a: 1MB", "to itself"),
        ("a -> b, b: 1MB", "twice"),
        ("a -> b: 1MB; b -> a: 1MB", "goes round in a circle"),
        ("a -> b: 1MB; a -> c: 2MB", "a emits two messages"),
        ("query -> b: 1MB", "the name query is taken"),
        ("a -> b: 0", "0 bytes"),
        ("a -> b: lots", "not a number of bytes"),
        ("a -> b: x int3 4MB", "give name, dtype"),
        ("a -> b: x str 4MB", "give name, dtype"),
        ("a -> b: x int64 7B", "do not fill whole items"),
        ("a -> b: x int64 8B, x int64 8B", "a name of its own"),
    ],
)
def test_what_describes_no_flow_is_refused(text, reason):
    with pytest.raises(ValueError, match=reason) as error:
        build_flow(text, {})
    assert "\n" not in str(error.value)
