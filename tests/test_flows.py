import pytest

from common.flows import DRIVER, FLOWS, Edge, Flow, Role, online_dpo
from common.sizing import Sizes

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
        ([Role("b", (DRIVER,), 12)], ["b"], "b emits 12 B"),
        ([Role("b", (DRIVER,), 0)], ["b"], "b emits 0 B"),
    ],
)
def test_a_flow_that_cannot_run_is_refused(roles, returns, reason):
    with pytest.raises(ValueError, match=reason):
        flow(*roles, returns=returns)


def test_a_query_of_no_whole_words_is_refused():
    with pytest.raises(ValueError, match="driver emits 4 B"):
        flow(Role("b", (DRIVER,), 8), query_bytes=4)


def test_a_role_that_does_not_exist_is_a_key_error():
    with pytest.raises(KeyError):
        online_dpo(Sizes()).role("trainer")
