# SPDX-License-Identifier: Apache-2.0
"""Measuring a message in other ways ends soon, whatever the message refers to."""

import contextlib
import time

import numpy as np
import pytest
from raymeter.inside import alternatives, calls, conversions, recorder, samples
from raymeter.inside.limits import Limits, OutOfBudget, TooSlow

pytest.importorskip("pyarrow")

SECONDS = 30.0  # on a busy machine; without limits, these take minutes or hours


class Node:
    """A part of a tree that knows the part above it."""

    def __init__(self, name, parent=None):
        self.name = name
        self.parent = parent
        self.children = []
        if parent is not None:
            parent.children.append(self)


def make_tree(leaves: int, name: str = "leaf") -> Node:
    root = Node("root")
    for number in range(leaves):
        Node(f"{name} {number}", root)
    return root


class Pair:
    """Two parts, which Ray pickles; lists in lists it packs without looking at what they share."""

    def __init__(self, left, right):
        self.left = left
        self.right = right


def make_shared(levels: int) -> Pair:
    """Return an object with a short pickle, and 2**levels ways to its only array."""
    value = Pair(np.arange(10.0), 1)
    for _ in range(levels):
        value = Pair(value, value)
    return value


def describe(value) -> dict:
    inband, buffers = alternatives.dumps(value)
    size = len(inband) + sum(buffer.raw().nbytes for buffer in buffers)
    return {"bytes": size, "inband_bytes": len(inband)}


def test_a_large_tree_with_links_to_its_root_is_measured_as_it_is():
    tree = make_tree(5_000)
    begin = time.perf_counter()
    measured = alternatives.measure(tree, describe(tree))
    assert time.perf_counter() - begin < SECONDS
    assert measured["as it is"]["serialise"] > 0
    assert not measured["columns"]


def test_the_way_back_to_the_root_is_seen_at_once():
    limits = Limits()
    with pytest.raises(RecursionError):
        conversions.columns(make_tree(300), limits)
    assert limits.depth < 10


def test_a_tree_of_which_no_sample_can_be_taken_is_not_measured():
    tree = make_tree(200, "x" * 4_000)
    event = describe(tree)
    assert event["inband_bytes"] > samples.LARGE_BYTES
    measured = alternatives.measure(tree, event)
    assert measured == {"as it is": None}
    assert alternatives.is_complete(measured)


def test_rows_of_very_many_fields_become_columns_in_about_the_time_of_looking_at_each_once():
    rows = [[f"{row * item % 97}" for item in range(300)] for row in range(300)]
    begin = time.process_time()
    made = conversions.columns(rows)
    assert (
        time.process_time() - begin < 1.0
    )  # 3 s and more if each row becomes a dict for each field
    assert len(made) == 300
    assert made[299].to_pylist() == [row[299] for row in rows]


@pytest.mark.parametrize("convert", conversions.CONVERSIONS.values())
def test_a_conversion_of_parts_that_are_shared_again_and_again_is_given_up(convert):
    begin = time.perf_counter()
    value = make_shared(40)
    with contextlib.suppress(TooSlow):  # a few look at a limited number of parts
        assert convert(value, Limits(0.05)) is value
    assert time.perf_counter() - begin < SECONDS


def test_what_was_given_up_is_not_measured_and_not_tried_again():
    value = make_shared(40)
    measured = alternatives.measure(value, describe(value))
    assert measured["as it is"]["serialise"] > 0
    assert measured["contiguous arrays"] is None
    assert alternatives.is_complete(measured)
    assert alternatives.measure(value, describe(value), measured) == measured


def test_a_sample_of_parts_that_are_shared_again_and_again_is_given_up():
    with pytest.raises(TooSlow):
        samples.take_sample(make_shared(40), 10**7, Limits(0.05))


def test_a_conversion_ends_when_the_budget_of_all_is_spent():
    answers = iter([True] * 3 + [False])
    value = make_shared(40)
    measured = alternatives.measure(value, describe(value), {}, lambda: next(answers))
    assert set(measured) == {"as it is"}
    with pytest.raises(OutOfBudget):
        conversions.columns(value, Limits(has_time=lambda: False))


def test_a_linked_list_of_rows_does_not_become_columns_of_columns():
    rows = [{"next": None} for _ in range(400)]
    for row, following in zip(rows, [*rows[1:], rows[0]], strict=True):
        row["next"] = following
    with pytest.raises(RecursionError):
        conversions.columns(rows)


def test_the_recorder_of_a_message_with_cycles_goes_on(tmp_path, monkeypatch):
    made = recorder.Recorder(tmp_path, 1, [])
    monkeypatch.setattr(calls, "recorder", made)
    monkeypatch.setattr(calls, "measured_kinds", {})
    tree = make_tree(200, "x" * 4_000)
    event = describe(tree) | {"seconds": 0.01}
    calls.add_alternatives(event, "kind", tree)
    assert event["alternatives"] == {"as it is": None}
    made.close()


def test_rows_of_ints_and_floats_become_one_array_whatever_their_number(monkeypatch):
    monkeypatch.setattr(conversions, "CHUNK", 100)
    rows = [[number] * (number % 3) for number in range(300)] + [[0.5]]
    made = conversions.columns(rows)
    assert made["numbers"].dtype == np.float64
    assert made["numbers"].tolist() == [item for row in rows for item in row]
