# SPDX-License-Identifier: Apache-2.0
"""Spilling, from samples of the stores."""

from raymeter.memory.stores import find_spilling
from raymeter.profile.events import Store


def sample(time: float, spilled: int, restored: int = 0, used: int = 0) -> Store:
    return Store(time=time, used=used, capacity=1_000, spilled=spilled, restored=restored)


def test_only_bytes_that_were_spilled_during_the_program_count() -> None:
    stores = [sample(0.0, 500, 100), sample(1.0, 900, 150, used=800)]
    spilling = find_spilling(stores)
    assert (spilling.spilled, spilling.restored) == (400, 50)
    assert (spilling.capacity, spilling.peak_used) == (1_000, 800)


def test_a_second_cluster_begins_with_zero() -> None:
    stores = [sample(0.0, 0), sample(1.0, 700), sample(2.0, 0), sample(3.0, 50)]
    assert find_spilling(stores).spilled == 750


def test_without_samples_nothing_is_known() -> None:
    assert find_spilling([]).spilled == 0
