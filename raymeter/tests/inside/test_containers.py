# SPDX-License-Identifier: Apache-2.0
"""Containers of the standard library are measured like dicts and lists in other ways; subclasses of users are not."""

import dataclasses
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from typing import NamedTuple

import numpy as np
import pytest
from raymeter.inside import alternatives, containers, conversions, describe, samples

torch = pytest.importorskip("torch")

Point = namedtuple("Point", ["x", "y"])


class Transition(NamedTuple):
    task: str
    reward: float


class Counted(NamedTuple("Counted", [("x", int)])):
    """Counts how often one is made."""

    made = 0

    def __new__(cls, *values):
        cls.made += 1
        return super().__new__(cls, *values)


class OwnDict(dict):
    def items(self):
        raise AssertionError("code of the user has run")


@dataclasses.dataclass
class Sample:
    observation: np.ndarray
    action: int


def measure(value) -> dict:
    return alternatives.measure(value, {"bytes": 2**20})


def fill_default():
    groups = defaultdict(list)
    groups["weights"].append(torch.ones(20_000))
    return groups


@pytest.mark.parametrize("make", [
    lambda: torch.nn.Linear(200, 100).state_dict(),
    fill_default,
    lambda: Point(torch.ones(20_000), 1),
    lambda: deque([torch.ones(20_000)], maxlen=4),
])  # fmt: skip
def test_tensors_in_containers_of_the_standard_library_are_measured_as_arrays(make):
    value = make()
    measured = measure(value)
    assert measured["as it is"]["inband_bytes"] > 80_000
    assert measured["numpy arrays"]["inband_bytes"] < 2_000
    assert type(conversions.tensors_to_arrays(value)) is type(value)


@pytest.mark.parametrize("make", [
    lambda: Counter({f"word {number}": number for number in range(2_000)}),
    lambda: defaultdict(int, {f"word {number}": number for number in range(2_000)}),
    lambda: deque(f"word {number}" for number in range(2_000)),
    lambda: [Transition(f"task {number}", 1.0) for number in range(2_000)],
])  # fmt: skip
def test_items_of_containers_of_the_standard_library_become_columns(make):
    measured = measure(make())
    assert measured["as it is"]["inband_bytes"] > 18_000
    assert measured["columns"]["inband_bytes"] < 5_000


@pytest.mark.parametrize("make", [
    lambda: [Sample(np.arange(16.0), number) for number in range(2_000)],
    lambda: [{"tokens": torch.arange(16), "action": number} for number in range(2_000)],
    lambda: {number: np.arange(number % 7) for number in range(2_000)},
    lambda: objects([np.arange(number % 7) for number in range(2_000)]),
])  # fmt: skip
def test_small_arrays_in_rows_become_one_array(make):
    measured = measure(make())
    parts = measured["as it is"]["buffers"] + measured["as it is"]["inband_bytes"] / 100
    assert parts > 1_000
    assert measured["columns"]["buffers"] < 10
    assert measured["columns"]["inband_bytes"] < 5_000


def objects(items) -> np.ndarray:
    """Return an array of Python objects."""
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def test_joined_arrays_hold_what_the_rows_did():
    rows = [np.arange(number % 3) for number in range(300)]
    made = conversions.columns(rows)
    ends = np.cumsum(made["sizes"])[:-1]
    parts = np.split(made["numbers"], ends)
    assert [part.tolist() for part in parts] == [row.tolist() for row in rows]


@pytest.mark.parametrize("make", [
    lambda: [np.zeros(10_000)] * 300,
    lambda: [np.zeros(3), np.zeros(3, np.float32)] * 150,
    lambda: [np.array([None, "a"])] * 300,
    lambda: [torch.zeros(3).to_sparse()] * 300,
    lambda: [torch.zeros(3, device="meta")] * 300,
])  # fmt: skip
def test_large_arrays_and_those_of_other_kinds_are_not_joined(make):
    rows = make()
    assert conversions.columns(rows) is rows


def test_no_code_of_a_users_class_runs():
    value = [OwnDict(a=torch.ones(1_000)), Counted(1)]
    Counted.made = 0
    assert not containers.is_mapping(value[0]) and not containers.is_sequence(value[1])
    assert conversions.tensors_to_arrays(value) is value
    assert Counted.made == 0


class Sequence(namedtuple("Sequence", ["ids"])):
    """Has a dict of attributes besides its items."""


class OwnItems(namedtuple("OwnItems", ["ids"])):
    """Says itself which items it has."""

    __slots__ = ()

    def __iter__(self):
        raise AssertionError("code of the user has run")

    __len__ = __getitem__ = __iter__


class OwnList(list):
    """Has a dict of attributes besides its items."""


def with_tokens(value):
    """Return an object with an attribute that takes long to pickle."""
    value.tokens = [str(number) for number in range(50_000)]
    return value


@pytest.mark.parametrize("value", [
    with_tokens(Sequence(torch.ones(20_000))),
    with_tokens(OrderedDict(ids=torch.ones(20_000))),
])  # fmt: skip
def test_a_container_with_attributes_is_not_sent_without_them(value):
    assert conversions.tensors_to_arrays(value) is value
    measured = measure([value, torch.ones(20_000)])
    assert measured["numpy arrays"]["inband_bytes"] > 280_000  # the attribute's


@pytest.mark.parametrize("make", [
    lambda number: with_tokens(Sequence(number)),
    lambda number: with_tokens(OwnList([number])),
    lambda number: OwnItems(number),
])  # fmt: skip
def test_rows_with_more_than_columns_hold_are_no_table(make):
    first = make(1)
    rows = [first, *[make(number) for number in range(3)]] * 100
    assert conversions.columns(rows) is rows


def test_the_metadata_of_a_state_dict_is_kept_and_no_column():
    state = torch.nn.Linear(200, 100).state_dict()
    made = conversions.tensors_to_arrays(state)
    assert made is not state and made._metadata == state._metadata
    counts = OrderedDict({f"word {number}": number for number in range(2_000)})
    assert conversions.columns(counts) is not counts
    counts._metadata = {}
    assert conversions.columns(counts) is counts


def test_a_named_tuple_that_gives_its_items_itself_is_not_asked():
    value = [OwnItems(torch.ones(20_000)), torch.ones(20_000)]
    made = conversions.tensors_to_arrays(value)
    assert made[0] is value[0] and made[1] is not value[1]


def test_a_part_of_a_container_has_its_type():
    counts = Counter({f"word {number}": number for number in range(100_000)})
    words = OrderedDict(counts)
    lines = deque(words, maxlen=10**6)
    for value in (words, lines):
        fewer = samples.take_sample(value, 2**21)
        assert type(fewer) is type(value) and len(fewer) < 10_000
    assert len(samples.take_sample(counts, 2**21)) < 10_000


def test_the_arrays_in_a_deque_are_described():
    (field,) = describe.describe(deque([np.zeros(1_000)]))
    assert field["type"] == "numpy.ndarray" and field["bytes"] == 8_000
