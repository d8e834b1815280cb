from itertools import pairwise

import pytest

from common.flow.demo_sizes import Sizes
from common.flow.flow import DRIVER, FLOWS, Edge, Flow, Role, build_flow, chain, online_dpo, scatter_gather

MIB = 2**20


def flow(*roles, returns=("b",), query_bytes=8):
    return Flow("test", "a test", query_bytes, tuple(roles), tuple(returns))


def test_online_dpo_has_the_demos_edges_in_the_order_of_their_readers():
    assert online_dpo(Sizes()).edges == (
        Edge(DRIVER, "policy", 32 * MIB),
        Edge("policy", "reference", 96 * MIB),
        Edge("policy", "reward", 96 * MIB),
        Edge("reference", "reward", 64 * MIB),
        Edge("reward", DRIVER, 160 * MIB),
    )


def test_a_trip_of_online_dpo_has_448_mib_and_160_in_its_largest_message():
    assert online_dpo(Sizes()).bytes_per_trip == 448 * MIB
    assert online_dpo(Sizes()).largest_message_bytes == 160 * MIB


@pytest.mark.parametrize("name", FLOWS)
def test_every_flow_is_registered_under_its_own_name(name):
    assert FLOWS[name](Sizes()).name == name


def test_arguments_come_in_the_order_in_which_a_role_reads():
    forth = flow(Role("a", (DRIVER,), 8), Role("b", ("a", DRIVER), 8))
    back = flow(Role("a", (DRIVER,), 8), Role("b", (DRIVER, "a"), 8))
    assert [edge.source for edge in forth.edges_to("b")] == ["a", DRIVER]
    assert [edge.source for edge in back.edges_to("b")] == [DRIVER, "a"]


def test_the_query_may_fan_out_and_several_roles_may_return():
    wide = flow(
        Role("left", (DRIVER,), 16),
        Role("right", (DRIVER,), 24),
        Role("judge", ("right", DRIVER, "left"), 32),
        returns=("judge", "left"),
    )
    assert [str(edge) for edge in wide.edges] == [
        "driver -> left",
        "driver -> right",
        "right -> judge",
        "driver -> judge",
        "left -> judge",
        "judge -> driver",
        "left -> driver",
    ]
    assert wide.edges_from("left") == (Edge("left", "judge", 16), Edge("left", DRIVER, 16))
    assert len(wide.edges_from(DRIVER)) == 3
    assert wide.bytes_per_trip == 8 + 8 + 24 + 8 + 16 + 32 + 16


@pytest.mark.parametrize(
    ("roles", "returns", "reason"),
    [
        ([Role("b", ("nobody",), 8)], ["b"], "b reads nobody"),
        ([Role("b", ("a",), 8), Role("a", (DRIVER,), 8)], ["b"], "b reads a, which does not come before it"),
        ([Role("b", ("b",), 8)], ["b"], "b reads b"),
        ([Role("b", (), 8)], ["b"], "b reads nothing"),
        ([Role("b", (DRIVER,), 8), Role("b", (DRIVER,), 8)], ["b"], "the name b is taken"),
        ([Role(DRIVER, (DRIVER,), 8)], [DRIVER], "the name driver is taken"),
        ([Role("a", (DRIVER,), 8), Role("b", (DRIVER,), 8)], ["b"], "nobody reads what a emits"),
        ([Role("b", (DRIVER,), 8)], [], "nothing returns"),
        ([Role("b", (DRIVER,), 8)], ["nobody"], "returns nobody"),
        ([Role("b", (DRIVER,), 8)], ["b", DRIVER], "returns driver"),
        ([Role("b", (DRIVER,), 0)], ["b"], "b emits nothing"),
        ([Role("b", (DRIVER,), -8)], ["b"], "b emits nothing"),
    ],
)
def test_a_flow_that_cannot_run_is_refused(roles, returns, reason):
    with pytest.raises(ValueError, match=reason):
        flow(*roles, returns=returns)


def test_a_query_of_no_bytes_is_refused():
    with pytest.raises(ValueError, match="driver emits nothing"):
        flow(Role("b", (DRIVER,), 8), query_bytes=0)


def test_messages_need_not_be_whole_words():
    odd = flow(Role("b", (DRIVER,), 12), query_bytes=1)
    assert [edge.bytes for edge in odd.edges] == [1, 12]
    assert odd.bytes_per_trip == 13


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_chain_goes_through_every_role_and_back(count):
    made = chain(13, count)
    names = [DRIVER, *(f"role-{index}" for index in range(1, count + 1)), DRIVER]
    assert made.edges == tuple(Edge(source, reader, 13) for source, reader in pairwise(names))
    assert made.bytes_per_trip == 13 * (count + 1)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_scatter_gather_asks_every_role_and_waits_for_all(count):
    made = scatter_gather(13, count)
    names = [f"role-{index}" for index in range(1, count + 1)]
    assert made.edges == tuple(
        [*(Edge(DRIVER, name, 13) for name in names), *(Edge(name, DRIVER, 13) for name in names)]
    )
    assert made.returns == tuple(names)


def flags(name, **others):
    """The arguments as a script or a record has them: every flag by its name, those of other flows None."""
    sizes = vars(Sizes())
    knobs = sizes if name == "online-dpo" else dict.fromkeys(sizes)
    return knobs | {"flow": name, "payload_bytes": None, "roles": None} | others


@pytest.mark.parametrize(("name", "count", "edges"), [("round-trip", 1, 2), ("chain", 4, 5), ("scatter-gather", 4, 8)])
def test_a_microbenchmark_has_its_usual_size_unless_told(name, count, edges):
    made = build_flow(flags(name))
    assert (len(made.roles), len(made.edges)) == (count, edges)
    assert {edge.bytes for edge in made.edges} == {1024}
    assert {edge.bytes for edge in build_flow(flags(name, payload_bytes=7)).edges} == {7}


@pytest.mark.parametrize("name", ["chain", "scatter-gather"])
def test_roles_says_how_many_a_microbenchmark_has(name):
    assert len(build_flow(flags(name, roles=3)).roles) == 3


def test_flows_of_another_shape_have_another_name():
    """Or charts would show a chain of two beside a chain of four."""
    shapes = [("round-trip", 1), ("chain", 2), ("chain", 4), ("scatter-gather", 2), ("scatter-gather", 4)]
    names = {build_flow(flags(name, roles=count)).name for name, count in shapes}
    assert len(names | {"online-dpo"}) == len(shapes) + 1


def test_a_record_without_the_newer_flags_is_online_dpo_at_its_sizes():
    old = vars(Sizes(batch_size=2)) | {"flow": "online-dpo"}
    assert build_flow(old) == online_dpo(Sizes(batch_size=2))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (flags("online-dpo", payload_bytes=8), "leave them out"),
        (flags("online-dpo", roles=1), "leave them out"),
        (flags("round-trip", roles=2), "a round trip has one role"),
        (flags("chain", payload_bytes=0), "emits nothing"),
        (flags("chain", batch_size=2), "--batch-size is for online-dpo: give chain --payload-bytes"),
        (flags("round-trip", max_new_tokens=0), "--max-new-tokens is for online-dpo"),
    ],
)
def test_flags_of_another_flow_are_refused(given, reason):
    with pytest.raises(ValueError, match=reason):
        build_flow(given)


def test_a_flow_that_is_unknown_is_a_key_error():
    with pytest.raises(KeyError):
        build_flow(flags("offline-dpo"))


def test_a_role_that_does_not_exist_is_a_key_error():
    with pytest.raises(KeyError):
        online_dpo(Sizes()).role("trainer")
