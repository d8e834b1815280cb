# SPDX-License-Identifier: Apache-2.0
"""Measuring a message makes no copy of an object that owns something, and runs no code of a class that reads itself."""

import collections
import dataclasses
from typing import NamedTuple

import numpy as np
import pytest
from raymeter.inside import alternatives, conversions, samples

ended = []
read = []


class Owner:
    """Owns something, and gives it back when it ends."""

    def __init__(self, count: int) -> None:
        self.rows = [float(number) for number in range(count)]
        self.labels = {f"user {number}": f"label {number}" for number in range(count)}

    def __del__(self) -> None:
        ended.append(1)


class OwnerWithSlots:
    __slots__ = ("rows",)

    def __init__(self, count: int) -> None:
        self.rows = list(range(count))

    def __del__(self) -> None:
        ended.append(1)


class SubclassOfOwner(Owner):
    pass


class ArrayOfOwner(np.ndarray):
    def __del__(self) -> None:
        ended.append(1)


def make_local_owner():
    """Return an object whose class travels with its code, as those of a script."""

    class LocalOwner(Owner):
        pass

    return LocalOwner(2_000)


def make_local_point():
    @dataclasses.dataclass
    class LocalPoint:
        values: np.ndarray

        def total(self) -> float:
            return self.values.sum()

    return LocalPoint(np.zeros(1_000))


def make_local_with_state():
    class LocalWithState(WithState):
        pass

    return LocalWithState()


class WithState:
    def __init__(self) -> None:
        self.rows = np.zeros(100_000)

    def __setstate__(self, state: dict) -> None:
        read.append(1)
        vars(self).update(state)


class WithReduce:
    def __init__(self) -> None:
        self.rows = np.zeros(100_000)

    def __reduce__(self) -> tuple:
        return make_again, (self.rows,)


class WithNew:
    def __new__(cls, *_: object) -> "WithNew":
        read.append(1)
        return object.__new__(cls)


class Rows(list):
    def extend(self, items) -> None:
        read.append(1)
        super().extend(items)

    append = extend


class Failure(Exception):
    def __init__(self, rows) -> None:
        read.append(1)
        super().__init__(rows)


def make_again(rows) -> WithReduce:
    read.append(1)
    return WithReduce()


class Point(NamedTuple):
    x: int
    values: np.ndarray


@dataclasses.dataclass
class Sample:
    values: np.ndarray


def measure(value) -> dict:
    pack, buffers = alternatives.dumps(value)
    size = len(pack) + sum(buffer.raw().nbytes for buffer in buffers)
    return alternatives.measure(value, {"bytes": size, "inband_bytes": len(pack)})


@pytest.mark.parametrize(
    "make",
    [
        lambda: Owner(2_000),
        lambda: Owner(80_000),  # of which a sample is taken
        make_local_owner,
        lambda: {"a": [1, {"owner": Owner(2_000)}]},
        lambda: [Sample(SubclassOfOwner(10)) for _ in range(300)],
        lambda: {"owner": OwnerWithSlots(2_000), "numbers": list(range(2_000))},
        lambda: np.array([Owner(10) for _ in range(300)], dtype=object),
        lambda: np.zeros(1_000).view(ArrayOfOwner),
        lambda: collections.deque([Owner(10), list(range(2_000))]),
    ],
)
def test_no_copy_of_an_object_with_a_destructor_ends(make) -> None:
    value = make()
    ended.clear()
    measured = measure(value)
    assert not ended
    assert measured == {"as it is": {}}
    del value


@pytest.mark.parametrize(
    "make",
    [
        WithState,
        WithReduce,
        make_local_with_state,
        lambda: {"x": [WithState(), WithReduce()]},
        lambda: Failure(np.zeros(10_000)),
        lambda: {"new": WithNew(), "x": np.zeros(10_000)},
        lambda: Sample(Rows([np.zeros(10_000), 1])),
    ],
)
def test_a_message_whose_reading_would_run_code_of_its_classes_is_only_serialised(make) -> None:
    value = make()
    read.clear()
    measured = measure(value)
    assert not read
    as_it_is = measured["as it is"]
    assert as_it_is["serialise"] > 0
    assert as_it_is["deserialise"] == 0.0 and as_it_is["is_read"] is False


@pytest.mark.parametrize(
    "value",
    [
        {"x": Sample(np.zeros(1_000)), "y": Point(1, np.zeros(10))},
        [Sample(np.zeros(10))] * 300,
        collections.OrderedDict(x=np.ma.masked_array(np.zeros(10), np.zeros(10))),
        collections.deque([np.zeros(10)]),
        make_local_point(),
        {"f": lambda item: item + 1, "dtype": np.dtype("float32"), "set": {1, "a"}},
    ],
)
def test_other_messages_are_read(value) -> None:
    measured = measure(value)
    assert measured["as it is"]["is_read"] is True
    assert measured["as it is"]["deserialise"] > 0


class Meta(type):
    pass


class WithMeta(metaclass=Meta):
    pass


class WithSlot:
    __slots__ = ("__dict__", "x")


class WithAttributes:
    @property
    def __dict__(self) -> dict:
        return {"rows": list(range(2_000))}


@pytest.mark.parametrize(
    "kind", [WithMeta, WithSlot, WithAttributes, WithState, WithReduce, WithNew, Owner]
)
def test_objects_that_are_more_than_their_attributes_are_not_copied(kind) -> None:
    value = object.__new__(kind)
    assert not conversions.is_plain_object(value)
    assert conversions.is_plain_object(Sample(np.zeros(1)))


def test_a_sample_of_a_message_has_no_copy_of_an_object_with_a_destructor() -> None:
    value = Owner(80_000)
    ended.clear()
    assert samples.take_sample(value, 10**7) is value
    assert not ended
