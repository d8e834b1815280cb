# SPDX-License-Identifier: Apache-2.0
"""A message is measured in other ways as Ray itself would serialise it, and only in ways that fit it."""

import copyreg
import dataclasses
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from raymeter.inside import alternatives, conversions, describe, ray_internals
from raymeter.inside.limits import TooSlow

pa = pytest.importorskip("pyarrow")
torch = pytest.importorskip("torch")


@dataclasses.dataclass
class Sample:
    task: str
    reward: float


@dataclasses.dataclass
class Batch:
    name: str
    data: Any


class Packed:
    """Pickles its array into bytes."""

    def __init__(self, array):
        self.array = array

    def __getstate__(self):
        return self.array.tobytes()

    def __setstate__(self, state):
        self.array = np.frombuffer(state)


class Registered:
    def __init__(self, array):
        self.array = array


def reduce_registered(value):
    return Registered, (value.array.tolist(),)


def measure(value) -> dict:
    return alternatives.measure(value, {"bytes": 2**20})


def make_slice():
    batch = pa.RecordBatch.from_arrays([pa.array(np.arange(80_000.0))], names=["value"])
    return batch.slice(10_000, 10_000)


@pytest.mark.parametrize("make", [
    make_slice,
    lambda: make_slice().column(0),
    lambda: pa.chunked_array([make_slice().column(0)]),
    lambda: {"step": 1, "rows": make_slice()},
    lambda: Batch("a", make_slice()),
])  # fmt: skip
def test_slices_of_arrow_data_without_the_rows_behind_them_are_smaller(make):
    value = make()
    measured = measure(value)
    assert measured["as it is"]["bytes"] > 600_000
    assert measured["own rows"]["bytes"] < 100_000


def test_a_slice_of_a_table_is_sent_without_the_rows_behind_it():
    table = pa.Table.from_batches([make_slice()])
    measured = measure(table)
    assert measured["as it is"]["bytes"] < 100_000
    assert describe.describe(table)[0]["columns"] == 1


@pytest.mark.parametrize("make", [
    lambda rows: {"tokens": rows, "step": 1},
    lambda rows: [{"tokens": row, "reward": 0.5} for row in rows],
    lambda rows: rows,
    lambda rows: [row[:20] for row in rows],
])  # fmt: skip
def test_rows_of_numbers_of_different_lengths_are_measured_as_flat_arrays(make):
    rows = [[1000 * number + item for item in range(100 + number % 50)] for number in range(400)]
    measured = measure(make(rows))
    assert measured["columns"]["buffers"] > 0
    assert measured["columns"]["inband_bytes"] < measured["as it is"]["inband_bytes"] / 10


def test_no_conversion_looks_at_each_number_of_rows(monkeypatch):
    looks = []
    original = conversions.replace_parts

    def count(value, replace_part, limits=None):
        looks.append(type(value))
        return original(value, replace_part, limits)

    monkeypatch.setattr(conversions, "replace_parts", count)
    value = {"rows": [list(range(100))] * 50, "labels": {"a": 1, "b": 2}}
    assert conversions.to_contiguous(value) is value
    assert int not in looks and looks.count(list) == 51


def test_flat_arrays_hold_what_the_rows_did():
    rows = [[0.5] * (number % 3) for number in range(300)]
    made = conversions.columns(rows)
    ends = np.cumsum(made["lengths"])[:-1]
    assert [part.tolist() for part in np.split(made["numbers"], ends)] == rows


@pytest.mark.parametrize("rows", [[[]] * 300, [[1, "a"]] * 300 + [[1]], [[[1], 2]] * 300 + [[1]]])
def test_rows_that_are_no_numbers_do_not_become_a_flat_array(rows):
    assert conversions.columns(rows) is rows


def test_a_table_of_many_chunks_is_measured_with_one():
    table = pa.table({"value": pa.chunked_array(np.arange(100_000.0).reshape(500, 200))})
    measured = measure({"table": table})
    assert measured["as it is"]["buffers"] >= 500
    assert measured["one chunk"]["buffers"] <= 2
    assert describe.describe(table)[0]["chunks"] == 500
    assert not measured["one column"]


def test_a_table_of_many_columns_is_measured_with_one_per_type():
    columns = {f"x{number}": np.arange(100.0) for number in range(300)}
    columns |= {f"y{number}": np.arange(100) for number in range(300)}
    measured = measure(pa.table(columns))
    assert measured["one column"]["buffers"] < 10 < measured["as it is"]["buffers"]
    assert not measured["one chunk"]


@pytest.mark.parametrize("make", [
    lambda: [{"task": f"task {number}", "reward": 1.0} for number in range(2_000)],
    lambda: [Sample(f"task {number}", 1.0) for number in range(2_000)],
    lambda: {"rows": [(f"task {number}", 1.0) for number in range(2_000)]},
    lambda: {f"user {number}": f"label {number}" for number in range(2_000)},
    lambda: np.array([f"task {number}" for number in range(2_000)], dtype=object),
    lambda: {f"task {number}" for number in range(2_000)},
    lambda: Batch("a", [f"task {number}" for number in range(2_000)]),
])  # fmt: skip
def test_rows_and_strings_become_columns_outside_of_the_pickle(make):
    measured = measure(make())
    assert measured["as it is"]["inband_bytes"] > 18_000
    assert measured["columns"]["inband_bytes"] < 5_000


@pytest.mark.parametrize("make", [
    lambda: [1, "a"] * 1_000,
    lambda: [{"a": 1}, {"b": 2}] * 1_000,
    lambda: [{"a": None}] * 1_000,
    lambda: {"a": 1, "b": "text"},
    lambda: np.arange(1_000),
])  # fmt: skip
def test_what_is_no_table_does_not_become_columns(make):
    value = make()
    converted = conversions.columns(value)
    is_same = converted is value or (isinstance(converted, dict) and converted["a"] is not None)
    assert is_same


def test_a_list_of_numbers_is_measured_as_ray_sends_it_and_not_as_a_pickle():
    pack, pickled, buffers = ray_internals.serialise_parts(list(range(5_000)))
    assert len(pack) > 5_000
    assert not pickled and not buffers
    assert ray_internals.deserialise_parts(pack, pickled, buffers, list) == list(range(5_000))


def test_objects_in_a_list_come_back():
    value = [1, {"x": np.arange(10)}, "a"]
    parts = ray_internals.serialise_parts(value)
    assert parts[2]
    assert ray_internals.deserialise_parts(*parts, list)[1]["x"].tolist() == list(range(10))


def test_a_message_with_references_is_not_measured():
    assert alternatives.measure([1], {"bytes": 1, "references": 1}) == {}


def test_what_there_is_no_time_for_is_measured_later():
    value = {"x": list(range(5_000))}
    answers = [True, True, False]
    first = alternatives.measure(value, {"bytes": 1}, {}, lambda: answers.pop(0))
    assert not alternatives.is_complete(first)
    assert "arrays of numbers" not in first
    later = alternatives.measure(value, {"bytes": 1}, first)
    assert later["as it is"] is first["as it is"]
    assert alternatives.is_complete(later)
    assert later["arrays of numbers"]["buffers"] == 1


@pytest.mark.parametrize("path", ["", "data", "[]"])
def test_a_class_that_pickles_itself_is_found_anywhere_and_measured_without(path):
    packed = Packed(np.arange(20_000.0))
    value = {"": packed, "data": Batch("a", packed), "[]": [1, packed]}[path]
    own = describe.find_own_pickling(value)
    assert (own["class"], own["path"]) == (describe.type_name(packed), path)
    measured = measure(value)
    assert measured["as it is"]["inband_bytes"] > 160_000
    assert measured["without its own pickling"]["inband_bytes"] < 1_000


def test_a_registered_serializer_is_own_pickling():
    value = Registered(np.arange(20_000.0))
    describe.own_methods.discard(Registered)
    ray_internals.ray.util.register_serializer(
        Registered, serializer=lambda item: item.array.tobytes(), deserializer=np.frombuffer
    )
    try:
        own = describe.find_own_pickling({"x": value})
        assert own["method"] == "a registered serializer"
        assert "test_alternatives.py:" in own["line"]
    finally:
        ray_internals.ray.util.deregister_serializer(Registered)
        describe.own_methods.discard(Registered)


def test_a_reducer_with_a_variable_that_has_no_value_yet_is_found():
    def make_reducer():
        def reduce(item):
            return later, (item.array,)

        if make_reducer is None:  # so that it is a variable of the outer function, and never set
            later = np.asarray
        return reduce

    reducer = make_reducer()
    dispatch = ray_internals.ray.cloudpickle.CloudPickler.dispatch
    dispatch[Registered] = reducer
    try:
        assert ray_internals.registered_reducer(Registered) is reducer
    finally:
        del dispatch[Registered]


def test_a_reducer_of_copyreg_is_own_pickling():
    describe.own_methods.discard(Registered)
    copyreg.pickle(Registered, reduce_registered)
    try:
        own = describe.find_own_pickling(Registered(np.arange(10)))
        assert own["line"].endswith(f":{reduce_registered.__code__.co_firstlineno}")
    finally:
        copyreg.dispatch_table.pop(Registered)
        describe.own_methods.discard(Registered)


def test_arrow_tables_and_dataclasses_do_not_pickle_themselves():
    assert describe.find_own_pickling(Batch("a", pa.table({"x": [1]}))) is None


def test_of_several_classes_the_one_with_most_bytes_counts():
    value = {"small": Registered(1), "a": Packed(np.arange(4.0)), "b": [Packed(np.arange(4.0))]}
    assert describe.find_own_pickling(value)["class"] == describe.type_name(value["a"])


def test_an_image_is_measured_as_an_array():
    image_module = pytest.importorskip("PIL.Image")
    image = image_module.fromarray(np.zeros((300, 300, 3), np.uint8))
    measured = measure({"image": image})
    assert measured["its arrays"]["inband_bytes"] < 1_000


def test_views_of_tensors_that_require_a_gradient_are_measured_as_clones():
    view = torch.arange(80_000.0)[:10_000].requires_grad_()
    measured = measure(view)
    assert measured["clones of views"]["bytes"] < 50_000 < measured["as it is"]["bytes"]
    assert describe.describe(view)[0]["requires_grad"]


def test_frames_of_strings_are_measured_as_columns_and_tables():
    pandas = pytest.importorskip("pandas")
    series = pandas.Series([f"task {number}" for number in range(2_000)], dtype=object)
    frame = pandas.DataFrame({"task": series, "reward": 1.0})
    for value, names in ((series, ["columns"]), (frame, ["columns", "Arrow tables"])):
        measured = measure(value)
        for name in names:
            assert measured[name]["inband_bytes"] < 5_000 < measured["as it is"]["inband_bytes"]


def test_the_fields_of_very_many_items_say_that_they_are_a_part():
    rows = [{"task": f"task {number}"} for number in range(2_000)]
    assert describe.describe(rows)[0]["is_part"]
    assert "is_part" not in describe.describe(rows[:100])[0]


def test_polars_frames_are_measured_as_arrow_tables():
    polars = pytest.importorskip("polars")
    measured = measure({"frame": polars.DataFrame({"x": np.arange(20_000)})})
    assert measured["as it is"]["inband_bytes"] > 160_000
    assert measured["Arrow tables"]["inband_bytes"] < 5_000


def test_the_import_of_a_library_does_not_end_a_conversion(monkeypatch):
    """pyarrow imports pandas for the first array that it makes."""
    monkeypatch.delitem(sys.modules, "made_library", raising=False)
    calls = []

    def convert(value, limits):
        calls.append(value)
        if len(calls) == 1:
            monkeypatch.setitem(sys.modules, "made_library", ModuleType("made_library"))
            raise TooSlow
        return [1.0]

    monkeypatch.setattr(alternatives, "CONVERSIONS", {"made": convert})
    assert measure(["a"])["made"]["bytes"] > 0
    assert len(calls) == 2


def test_a_conversion_that_takes_too_long_is_not_tried_again(monkeypatch):
    calls = []

    def convert(value, limits):
        calls.append(value)
        raise TooSlow

    monkeypatch.setattr(alternatives, "CONVERSIONS", {"made": convert})
    assert measure(["a"])["made"] is None
    assert len(calls) == 1
