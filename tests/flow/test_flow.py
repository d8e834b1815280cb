"""Who reads what: edges, actors, hops, the same flow packed or with a trainer at its ends, and what is refused."""

import pytest
from payload_ends import COLOCATED, RICH

from common.flow.catalogue import chain, online_dpo, ppo, round_trip, scatter_gather
from common.flow.flow import DRIVER, TRAINER, Edge, Flow, Task, packed, with_trainer
from common.flow.message import WORD, flat

WIDE = Flow(
    "wide", "wide", flat(8),
    (Task("left", (DRIVER,), flat(16)), Task("right", (DRIVER,), flat(24)),
     Task("judge", ("right", DRIVER, "left"), flat(32))),
    returns=("judge", "left"),
)  # fmt: skip
FLOWS = [online_dpo(), ppo(), WIDE, RICH, COLOCATED, chain(13, 3), scatter_gather(13, 3)]


def flow(*tasks, returns=("b",)):
    return Flow("test", "a test", flat(8), tuple(tasks), tuple(returns))


def names(edges):
    return [str(edge) for edge in edges]


def test_the_query_may_fan_out_and_several_tasks_may_return_in_argument_order():
    assert names(WIDE.edges) == [
        "driver -> left", "driver -> right",
        "right -> judge", "driver -> judge", "left -> judge",
        "judge -> driver", "left -> driver",
    ]  # fmt: skip
    assert WIDE.edges_from("left") == (Edge("left", "judge", flat(16)), Edge("left", DRIVER, flat(16)))
    assert WIDE.bytes_per_trip == 8 + 8 + 24 + 8 + 16 + 32 + 16
    assert WIDE.emitted_bytes == 8 + 16 + 24 + 32


def test_a_task_runs_on_the_actor_of_its_name_unless_told():
    assert online_dpo().actors == ("policy", "reference", "reward")
    assert COLOCATED.actors == ("one", "two")
    assert [task.name for task in COLOCATED.tasks_of("one")] == ["policy", "critic", "judge"]
    assert [COLOCATED.actor(name) for name in (DRIVER, "judge", "reward")] == [DRIVER, "one", "two"]


def test_tasks_of_one_actor_exchange_no_edge():
    assert names(COLOCATED.edges) == [
        "driver -> policy", "policy -> reward", "critic -> reward", "reward -> judge", "judge -> driver"
    ]  # fmt: skip
    assert names(COLOCATED.edges_into("one")) == ["driver -> policy", "reward -> judge"]
    assert names(COLOCATED.edges_out_of("one")) == ["policy -> reward", "critic -> reward", "judge -> driver"]


@pytest.mark.parametrize(
    ("made", "hops"),
    [
        (round_trip(), 2),
        *((chain(8, count), count + 1) for count in (1, 2, 5)),
        (scatter_gather(8, 5), 2),
        (online_dpo(), 4),
        (ppo(), 4),
        (COLOCATED, 4),
        (WIDE, 3),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_the_longest_path_is_the_hops_of_a_trip(made, hops):
    assert made.longest_path() == hops


@pytest.mark.parametrize(
    ("made", "edges"), [(round_trip(), 2), (chain(8, 4), 5), (scatter_gather(8, 5), 2), (online_dpo(), 3), (ppo(), 3)],
    ids=lambda value: getattr(value, "name", value),
)  # fmt: skip
def test_the_shortest_path_is_where_messages_pile_up_first(made, edges):
    assert made.shortest_path() == edges


@pytest.mark.parametrize("made", FLOWS, ids=lambda made: made.name)
def test_a_packed_flow_has_the_same_edges_with_one_flat_buffer_each(made):
    small = packed(made)
    assert names(small.edges) == names(made.edges)
    for edge, wire in zip(made.edges, small.edges, strict=True):
        assert wire.message.bare
        assert wire.bytes == edge.message.packed_bytes >= edge.bytes


@pytest.mark.parametrize("made", FLOWS, ids=lambda made: made.name)
def test_a_trainer_has_the_drivers_ends_and_the_driver_a_word_each_way(made):
    trained = with_trainer(made)
    ends = {"driver -> query": WORD, "result -> driver": WORD}
    inside = {f"{e.source} -> {e.reader}".replace("driver ->", "query ->").replace("-> driver", "-> result"): e.message
              for e in made.edges}  # fmt: skip
    assert {str(edge): edge.message for edge in trained.edges} == ends | inside
    assert trained.bytes_per_trip == made.bytes_per_trip + 16
    assert [task.name for task in trained.tasks_of(TRAINER)] == ["query", "result"]
    assert set(trained.actors) == {TRAINER, *made.actors}


@pytest.mark.parametrize(
    ("tasks", "returns", "reason"),
    [
        ([Task("b", ("nobody",), WORD)], ["b"], "b reads nobody"),
        ([Task("b", ("a",), WORD), Task("a", (DRIVER,), WORD)], ["b"], "b reads a, which does not come before it"),
        ([Task("b", ("b",), WORD)], ["b"], "b reads b"),
        ([Task("b", (), WORD)], ["b"], "b reads nothing"),
        ([Task("b", (DRIVER,), WORD), Task("b", (DRIVER,), WORD)], ["b"], "the name b is taken"),
        ([Task(DRIVER, (DRIVER,), WORD)], [DRIVER], "the name driver is taken"),
        ([Task("b", (DRIVER,), WORD, actor=DRIVER)], ["b"], "the name b is taken"),
        ([Task("a", (DRIVER,), WORD), Task("b", (DRIVER,), WORD)], ["b"], "nobody reads what a emits"),
        ([Task("b", (DRIVER,), WORD)], [], "nothing returns"),
        ([Task("b", (DRIVER,), WORD)], ["nobody"], "returns nobody"),
        ([Task("b", (DRIVER,), WORD)], ["b", DRIVER], "returns driver"),
    ],
)
def test_a_flow_that_cannot_run_is_refused(tasks, returns, reason):
    with pytest.raises(ValueError, match=reason):
        flow(*tasks, returns=returns)
