# SPDX-License-Identifier: Apache-2.0
"""A slow message is measured in other ways although no other one of its kind follows."""

import pytest
from raymeter.inside import calls, ray_internals

MIB = 2**20
PICKLED = {"how": "", "seconds": 0.05, "bytes": 8 * MIB, "inband_bytes": 8 * MIB}


@pytest.fixture(autouse=True)
def is_driver(monkeypatch):
    monkeypatch.setattr(ray_internals, "is_worker", lambda: False)


def test_a_slow_message_in_the_pickle_is_measured_from_the_first_one_on():
    assert calls.is_measured(PICKLED, 1)


@pytest.mark.parametrize("values", [
    {"seconds": 0.001},
    {"inband_bytes": 1_000},
    {"bytes": 100 * MIB, "inband_bytes": 100 * MIB},
])  # fmt: skip
def test_fast_large_and_mostly_unpickled_messages_are_measured_if_others_follow(values):
    event = PICKLED | values
    assert not calls.is_measured(event, 1)
    assert not calls.is_measured(event, 2)
    assert calls.is_measured(event, 3)


def test_a_worker_that_sends_one_message_measures_nothing(monkeypatch):
    monkeypatch.setattr(ray_internals, "is_worker", lambda: True)
    assert not calls.is_measured(PICKLED, 1)
    assert calls.is_measured(PICKLED, 3)


def test_tensors_that_ray_does_not_pickle_are_never_measured():
    assert not calls.is_measured(PICKLED | {"how": "rdt"}, 3)


def test_the_first_message_of_a_kind_has_what_was_measured_of_it(monkeypatch):
    measured = []
    monkeypatch.setattr(calls, "kinds_seen", {})
    monkeypatch.setattr(calls, "add_alternatives", lambda *values: measured.append(values))
    event = PICKLED | {"by_name": "", "type": "dict"}
    calls.add_description(event, {}, ("/made/train.py:9", "main"))
    assert len(measured) == 1
