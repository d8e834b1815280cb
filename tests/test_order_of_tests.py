# SPDX-License-Identifier: Apache-2.0
"""Two workers begin with the tests that take long, and only one of them needs the shared cluster."""

import pytest
from marks_and_order import order_for_two


class Item:
    """A test, as far as the order reads it."""

    def __init__(self, name, *marks, fixtures=()):
        self.name, self.marks, self.fixturenames = name, marks, fixtures

    def get_closest_marker(self, name):
        return name in self.marks


@pytest.mark.parametrize("count", [6, 7, 61])
def test_each_worker_begins_with_long_tests(count):
    long = [
        Item("alone", "runs"),
        Item("busy", "busy"),
        Item("joins", "runs", fixtures=["join_cluster"]),
        Item("begins no run", "runs", "skip"),
        Item("cluster", "runs", fixtures=["cluster"]),
    ]
    short = [Item(f"short {number}") for number in range(count)]
    ordered = [item.name for item in order_for_two([*short, *long])]
    assert sorted(ordered) == sorted(item.name for item in (*short, *long))
    half = len(ordered) // 2  # what the first worker gets
    assert ordered[:2] == ["joins", "cluster"]
    assert ordered[half : half + 2] == ["alone", "busy"]


def test_more_long_tests_on_the_cluster_than_a_half_come_first():
    joins = [Item(f"joins {number}", "runs", fixtures=["cluster"]) for number in range(5)]
    alone, short = Item("alone", "runs"), Item("short")
    assert order_for_two([short, alone, *joins]) == [*joins, alone, short]
