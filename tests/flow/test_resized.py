"""Flows of other sizes: the same shares of a trip, and the same bytes in more tensors."""

import pytest

from common.flow.catalogue import FLOWS, build_flow, sizes_of
from common.flow.message import WORD

OWN = "rollout-1, rollout-2 -> trainer: 12MB"
FLAT = ["online-dpo", "chain", "scatter-gather", "round-trip", OWN]


@pytest.mark.parametrize("name", FLAT)
@pytest.mark.parametrize("trip_bytes", [1024, 2**20 + 1, 10**9])
def test_a_trip_has_the_bytes_that_are_asked_for_in_the_flows_own_shares(name, trip_bytes):
    usual, flow = build_flow(name, {}), build_flow(name, {"payload": trip_bytes})
    assert flow.bytes_per_trip == pytest.approx(trip_bytes, abs=4 * len(flow.edges))  # half a word a message
    ends = sum(edge.bytes for edge in usual.edges if edge.message == WORD)
    for before, after in zip(usual.edges, flow.edges, strict=True):
        assert str(before) == str(after)
        if before.message == WORD:
            assert after.message == WORD
        else:
            share = before.bytes / (usual.bytes_per_trip - ends)
            assert after.bytes == pytest.approx(share * (trip_bytes - ends), abs=4)
            assert after.message.fields[0].dtype == "int64"


@pytest.mark.parametrize("name", FLAT)
@pytest.mark.parametrize("count", [1, 3, 64])
def test_the_same_bytes_travel_in_more_tensors(name, count):
    sizes = {"payload": 2**20}
    flow, cut = build_flow(name, sizes), build_flow(name, {**sizes, "fields": count})
    for whole, parts in zip(flow.edges, cut.edges, strict=True):
        if whole.message == WORD:
            assert parts.message == WORD
            continue
        assert (parts.bytes, len(parts.message.fields), parts.message.bare) == (whole.bytes, count, False)
        items = [field.shape[0] for field in parts.message.fields]
        assert max(items) - min(items) <= 1
    assert build_flow(name, {**sizes, "fields": count}, "packed") == cut  # packed is how they travel, not what they are


@pytest.mark.parametrize("name", [name for name in FLOWS if "rows" in sizes_of(name)])
def test_messages_of_fields_are_sized_by_their_own_flags(name):
    with pytest.raises(ValueError, match=r"--payload scales flat messages.*--rows"):
        build_flow(name, {"payload": 2**20})
    with pytest.raises(ValueError, match=r"--fields cuts flat messages.*leave it out"):
        build_flow(name, {"fields": 2})


def test_what_is_less_than_a_word_a_message_is_refused_with_what_is_not():
    with pytest.raises(ValueError, match="give 40 or more"):
        build_flow("online-dpo", {"payload": 39})
    assert {edge.bytes for edge in build_flow("online-dpo", {"payload": 40}).edges} == {8, 16}
    with pytest.raises(ValueError, match=r"--fields 65: a message of .* has 512 bytes"):
        build_flow("round-trip", {"payload_bytes": 512, "fields": 65})
