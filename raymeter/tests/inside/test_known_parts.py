"""Parts of messages are compared byte by byte before they are the same."""

import numpy as np
import pytest
from raymeter.inside import identity

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
