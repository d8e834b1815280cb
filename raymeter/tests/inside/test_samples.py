# SPDX-License-Identifier: Apache-2.0
"""A message with very many items is measured with a part of them, and the numbers are those of the whole message."""

import dataclasses

import numpy as np
import pytest
from raymeter.inside import alternatives, samples

pa = pytest.importorskip("pyarrow")


@dataclasses.dataclass
class Row:
    task: str
    reward: float


def make_rows(count: int) -> list[Row]:
    return [Row(f"task {number}", 1.0) for number in range(count)]


def make_labels(count: int) -> dict[str, str]:
    return {f"user {number}": f"label {number}" for number in range(count)}


def describe(value) -> dict:
    """Return what the recorder knows of a message before it is measured."""
    inband, buffers = alternatives.dumps(value)
    size = len(inband) + sum(buffer.raw().nbytes for buffer in buffers)
    return {"bytes": size, "inband_bytes": len(inband)}


@pytest.mark.parametrize("value", [
    make_rows(40_000),
    make_labels(40_000),
    {"rows": make_rows(40_000), "step": 1},
    [make_labels(4_000) for _ in range(10)],
    {f"task {number}" for number in range(60_000)},
])  # fmt: skip
def test_a_part_of_the_items_is_measured_and_scaled_to_all(value, monkeypatch):
    sizes = []
    measure_value = alternatives.measure_value

    def measure(item, seconds):
        sizes.append(alternatives.pickled_bytes(item))
        return measure_value(item, seconds)

    monkeypatch.setattr(alternatives, "measure_value", measure)
    event = describe(value)
    measured = alternatives.measure(value, event)
    assert max(sizes) < event["bytes"] / 2
    assert measured["as it is"]["bytes"] == pytest.approx(event["bytes"], rel=0.1)
    assert measured["as it is"]["share"] < 0.5
    assert measured["columns"]["inband_bytes"] < event["inband_bytes"] / 3
    assert measured["columns"]["bytes"] > event["bytes"] / 4


def test_arrays_beside_the_items_are_not_scaled():
    value = {"values": np.zeros(1_000_000), "labels": make_labels(40_000)}
    event = describe(value)
    measured = alternatives.measure(value, event)
    assert measured["columns"]["bytes"] == pytest.approx(event["bytes"], rel=0.1)


@pytest.mark.parametrize("value", [np.zeros(1_000_000), make_labels(100), b"a" * 2**20])
def test_small_messages_and_those_without_items_are_measured_as_they_are(value):
    event = describe(value)
    assert samples.take_sample(value, event["inband_bytes"]) is value
    assert "share" not in alternatives.measure(value, event)["as it is"]


def test_a_list_of_numbers_stays_one():
    value = {"tokens": list(range(400_000))}
    measured = alternatives.measure(value, describe(value))
    assert measured["arrays of numbers"]["bytes"] == pytest.approx(8 * 400_000, rel=0.1)


def test_the_import_of_a_library_does_not_count_as_conversion(monkeypatch):
    seconds = iter([5.0, 0.1])
    names = iter(["a", "b"])

    def convert(value):
        import sys
        import types

        name = f"made_for_{__name__}"
        monkeypatch.setitem(sys.modules, name, types.ModuleType(next(names)))
        return [value]

    monkeypatch.setattr(alternatives, "timed", lambda call, value: (call(value), next(seconds)))
    assert alternatives.measure_converted(1, convert)["convert"] == 0.1


def test_lists_of_numbers_in_many_rows_stay_whole():
    rows = [{"tokens": list(range(2_000))} for _ in range(600)]
    sample = samples.take_sample(rows, 10**7)
    assert len(sample) == 300
    assert len(sample[0]["tokens"]) == 2_000
