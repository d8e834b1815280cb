# SPDX-License-Identifier: Apache-2.0
"""Parts of messages are compared byte by byte before they are the same."""

import numpy as np
import pytest
from raymeter.inside import calls, identity

SIZE = 100_000


def describe(known: identity.KnownParts, *parts, has_time=lambda: True) -> list[list]:
    large = identity.LargeParts({"step": 1, "parts": list(parts)})
    return known.describe(large.parts, 1_000, has_time)


def sames(described: list[list]) -> list:
    return [is_same for _, _, is_same in described]


def test_an_unchanged_array_is_the_same_from_the_third_time_on():
    known = identity.KnownParts()
    array = np.arange(SIZE)
    answers = [sames(describe(known, array)) for _ in range(3)]
    assert answers == [[None], [None], [True]]


def test_a_change_between_the_samples_is_noticed():
    known = identity.KnownParts()
    array = np.arange(SIZE)
    describe(known, array)
    describe(known, array)
    array[1_000] += 1
    assert sames(describe(known, array)) == [False]


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.uint8])
@pytest.mark.parametrize("distance", [1, 8, 500])
def test_rows_that_change_places_are_noticed(kind, distance):
    rows = (np.arange(1000 * 1024) // 1024 % 251).astype(kind).reshape(1000, 1024)
    before = identity.full_sum([rows])
    rows[[100, 100 + distance]] = rows[[100 + distance, 100]]
    assert identity.full_sum([rows]) != before
    rows[[100, 100 + distance]] = rows[[100 + distance, 100]]
    assert identity.full_sum([rows]) == before


def test_what_one_word_gains_and_another_one_loses_is_noticed():
    counts = np.arange(SIZE)
    before = identity.full_sum([counts])
    for distance in (1, 64, 4_096, 64_000):
        moved = counts.copy()
        moved[[7, 7 + distance]] += [-1, 1]
        assert identity.full_sum([moved]) != before


def test_equal_arrays_inside_of_one_message_are_compared_with_each_other():
    known = identity.KnownParts()
    assert sorted(sames(describe(known, np.arange(SIZE), np.arange(SIZE))), key=str) == [None, True]


def test_nothing_is_compared_without_time():
    known = identity.KnownParts()
    array = np.arange(SIZE)
    answers = [describe(known, array, has_time=lambda: False) for _ in range(3)]
    assert [sames(answer) for answer in answers] == [[None]] * 3


@pytest.mark.parametrize("make", [
    lambda torch: torch.arange(SIZE),
    lambda torch: torch.arange(SIZE * 1.0).requires_grad_(),
    lambda torch: torch.arange(SIZE).to(torch.bfloat16),
])  # fmt: skip
def test_tensors_have_parts(make):
    torch = pytest.importorskip("torch")
    known = identity.KnownParts()
    tensor = make(torch)
    ((size, total, _),) = describe(known, tensor)
    assert size == tensor.nbytes
    assert describe(known, tensor)[0][1] == total


def test_arrays_that_are_not_contiguous_have_none():
    known = identity.KnownParts()
    assert describe(known, np.arange(SIZE)[::2]) == []


def test_arrays_are_found_in_lists_dicts_and_objects_once():
    class Batch:
        pass

    batch = Batch()
    array = np.arange(SIZE)
    batch.values = {"x": [array, array], "name": "a", "few": np.arange(3)}
    large = identity.LargeParts((batch, array))
    assert large.leaves == [[array.__array_interface__["data"][0], array.nbytes]]
    assert large.largest is array
    assert identity.LargeParts("text").largest == "text"


def test_a_message_of_many_arrays_is_sampled():
    buffers = [np.arange(64) for _ in range(10_000)]
    assert identity.sample_sum(buffers) == identity.sample_sum([array.copy() for array in buffers])
    assert identity.sample_sum(buffers) != identity.sample_sum(buffers[:-1])
    changed = [array + 1 for array in buffers]
    assert identity.sample_sum(buffers) != identity.sample_sum(changed)


@pytest.fixture
def content_of(monkeypatch):
    """Return a function that returns what is recorded of the content of a message without a pickle."""
    monkeypatch.setattr(calls, "contents", {})
    monkeypatch.setattr(calls, "has_time_for_repeats", lambda: True)
    monkeypatch.setattr(calls, "full_sum", identity.full_sum)
    calls.parts.clear()

    def describe_content(value) -> dict:
        event: dict = {}
        calls.add_content(event, value)
        return event

    return describe_content


def test_bytes_that_ray_stores_as_they_are_have_a_content(content_of):
    first = content_of(b"a" * SIZE)
    again = content_of(b"a" * SIZE)
    other = content_of(b"b" * SIZE)
    assert again["content"] == first["content"] != other["content"]
    assert again["is_same"]
    assert "is_same" not in other


def test_what_is_not_known_is_never_the_same(content_of):
    for _ in range(2):
        assert content_of(object()) == {"content": 0}
