# SPDX-License-Identifier: Apache-2.0
"""Lists of numbers in the batches of Ray Data are found where it makes blocks of them, and nothing else changes."""

import functools
import os
import subprocess
import sys
import time
import weakref
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
from raymeter.inside import data_batches, ray_internals

SLOW_SECONDS = 0.01
ROWS = 4


class Accessor:
    """As Ray Data's: it takes long for lists."""

    @classmethod
    def batch_to_block(cls, batch, block_type=None):
        if any(type(column) is list for column in batch.values()):
            time.sleep(SLOW_SECONDS)
        return cls, dict(batch), block_type


def embed(batch):
    return batch


class Transformer:
    """As Ray Data's, with a function of the user inside of one of its own."""

    def __init__(self, function):
        def transform(batches):
            return map(function, batches)

        self._transform_fns = [len, functools.partial(transform)]


Transformer.__module__ = f"{ray_internals.DATA_PACKAGE}made"


@pytest.fixture
def recorded(monkeypatch):
    """Return a list with what is recorded of each slow batch."""
    found = []
    original = Accessor.__dict__["batch_to_block"]
    transformer = Transformer(embed)
    made_module = SimpleNamespace(BlockAccessor=Accessor)
    monkeypatch.setitem(sys.modules, ray_internals.DATA_BLOCK, made_module)
    monkeypatch.setattr(data_batches, "counts", {})
    monkeypatch.setattr(data_batches, "functions", {})
    monkeypatch.setattr(ray_internals, "current_name", lambda: "MapBatches(embed)")
    monkeypatch.setattr(ray_internals, "current_task", lambda: "task")
    monkeypatch.setattr(ray_internals, "data_transformer", lambda: transformer)
    # The function around the user's one is Ray's own.
    inner = Transformer(embed)._transform_fns[1].func.__code__
    monkeypatch.setitem(data_batches.place.kinds, id(inner), data_batches.place.SKIPPED)

    def record(make_block, batch, start, seconds):
        lists = data_batches.lists_of(batch)
        if lists:
            found.append(data_batches.describe_batch(make_block, batch, lists, lambda: True))

    data_batches.install_if_used(record)
    data_batches.install_if_used(record)  # once is enough
    yield found
    Accessor.batch_to_block = original


def make_batch(column):
    return {"embedding": column, "label": numpy.zeros(ROWS)}


def test_lists_are_found_and_arrays_are_measured_in_their_place(recorded):
    batch = make_batch([[0.5, 1.5]] * ROWS)
    for _ in range(3):
        made = Accessor.batch_to_block(batch, "arrow")
        assert made == (Accessor, batch, "arrow")
    assert len(recorded) == 3
    first, second, third = recorded
    assert (first["column"], first["rows"], first["function"]) == ("embedding", ROWS, "embed")
    assert first["line"] == f"{__file__}:{embed.__code__.co_firstlineno}"
    assert "array_seconds" not in first
    assert 0 < second["array_seconds"] < SLOW_SECONDS
    assert "to_list_seconds" not in second  # embed makes none
    assert "array_seconds" not in third


def embed_as_lists(batch):
    batch["embedding"] = batch["embedding"].tolist()
    return batch


def test_a_function_that_makes_lists_of_arrays_is_known_by_its_code(recorded, monkeypatch):
    transformer = Transformer(embed_as_lists)
    monkeypatch.setattr(ray_internals, "data_transformer", lambda: transformer)
    for _ in range(2):
        Accessor.batch_to_block(make_batch([[0.5, 1.5]] * ROWS))
    assert recorded[1]["function"] == "embed_as_lists"
    assert recorded[1]["to_list_seconds"] > 0


def run_task(monkeypatch, task: str, function, batch, times: int = 2) -> None:
    """Make blocks of a batch in a task that runs a function."""
    transformer = Transformer(function)
    monkeypatch.setattr(ray_internals, "current_task", lambda: task)
    monkeypatch.setattr(ray_internals, "data_transformer", lambda: transformer)
    for _ in range(times):
        Accessor.batch_to_block(batch)


def test_functions_with_one_name_keep_their_lines_and_are_all_measured(recorded, monkeypatch):
    batch = make_batch([[0.5, 1.5]] * ROWS)
    run_task(monkeypatch, "first", embed, batch)
    run_task(monkeypatch, "second", embed_as_lists, batch)
    names = [event["function"] for event in recorded]
    assert names == ["embed", "embed", "embed_as_lists", "embed_as_lists"]
    assert len({event["line"] for event in recorded}) == 2
    assert [("array_seconds" in event) for event in recorded] == [False, True] * 2


def test_the_functions_of_very_many_tasks_are_not_kept(recorded, monkeypatch):
    batch = make_batch([[0.5, 1.5]] * ROWS)
    monkeypatch.setattr(data_batches, "MAX_TASKS", 3)
    for number in range(8):
        run_task(monkeypatch, f"task {number}", embed, batch, times=1)
    assert len(data_batches.functions) <= 3
    assert sum("array_seconds" in event for event in recorded) == 1


def refuse(*_):
    raise ConnectionError("code of the user has run")


def make_proxy_class() -> type:
    """Return a class whose objects are as those of a library whose connection is closed. pytest would ask it."""
    meta = type("Meta", (type,), {"__getattribute__": refuse})
    return meta("Proxy", (), {"__getattribute__": refuse})


class Rows(list):
    __iter__ = __reversed__ = refuse


class Kinds:
    """As Ray Data's description of a function with its arguments."""

    def __init__(self, *values):
        self.values = list(values)


Kinds.__module__ = f"{ray_internals.DATA_PACKAGE}made"


@pytest.mark.parametrize("make", [
    make_proxy_class,
    lambda: object.__new__(make_proxy_class()),
    lambda: Rows([1]),
])  # fmt: skip
def test_arguments_of_the_users_function_are_not_asked(make):
    assert data_batches.search_transformer(Kinds(embed, make()))[1] == "embed"


def test_a_variable_without_a_value_hides_no_function():
    def transform():
        return later, embed_inside

    embed_inside = embed
    module = transform.__code__.replace(co_filename=f"{ray_internals.FOLDER}/made.py")
    transform.__code__ = module
    assert data_batches.search_transformer(Kinds(transform))[1] == "embed"
    later = 1


def test_a_function_that_says_that_it_wraps_a_strange_object_has_its_own_line():
    def wrapper():
        pass

    wrapper.__wrapped__ = object.__new__(make_proxy_class())
    line, name, _ = data_batches.search_transformer(Kinds(wrapper))
    assert (line, name) == (f"{__file__}:{wrapper.__code__.co_firstlineno}", "wrapper")


class Number:
    __array__ = __float__ = __len__ = __iter__ = refuse


def objects() -> numpy.ndarray:
    """Return an array of Python objects, of which one is the user's."""
    array = numpy.empty(2, dtype=object)
    array[1] = Number()
    return array


@pytest.mark.parametrize("others", [
    {"embedding": [0.5, Number(), 1.5]},
    {"person": [Number()]},
    {"person": [{"age": [Number()]}]},
    {"person": objects()},
])  # fmt: skip
def test_a_batch_with_objects_of_the_user_is_made_once(recorded, others):
    batch = {"embedding": [0.5, 1.5]} | others
    made = []

    def make_block(batch):
        made.append(batch)

    for _ in range(2):
        lists = {"embedding": batch["embedding"]}
        event = data_batches.describe_batch(make_block, batch, lists, lambda: True)
        assert "array_seconds" not in event
    assert not made


@pytest.mark.parametrize("others", [
    {"text": ["a", None]},
    {"row": [{"a": [1, numpy.float32(2)]}]},
    {"text": numpy.array(["a", b"b"], dtype=object)},
])  # fmt: skip
def test_a_batch_with_texts_and_rows_is_measured(recorded, others):
    batch = {"embedding": [0.5, 1.5]} | others
    lists = {"embedding": batch["embedding"]}
    for _ in range(2):
        event = data_batches.describe_batch(dict, batch, lists, lambda: True)
    assert event["array_seconds"] >= 0


def test_lists_of_a_large_array_are_made_of_its_first_rows():
    lengths = []

    class Column(numpy.ndarray):
        def tolist(self):
            lengths.append(len(self))
            time.sleep(0.01)

    column = numpy.zeros((40_000, 100)).view(Column)
    seconds = data_batches.measure_to_list({"embedding": column})
    assert lengths[0] * 800 <= data_batches.MAX_LIST_BYTES
    assert seconds >= 0.0099 * 40_000 / lengths[0]


def test_a_block_is_gone_while_the_task_still_runs():
    known = []

    def run():
        block = numpy.zeros(3)
        known.append(weakref.ref(block))
        ray_internals.take_local(sys._getframe(), "block")
        del block
        return known[0]()

    assert run() is None


def test_rows_of_several_lengths_have_no_array(recorded):
    for _ in range(2):
        Accessor.batch_to_block(make_batch([[0.5], [1.5, 2.5]]))
    assert recorded[1]["array_seconds"] == -1.0


@pytest.mark.parametrize("column", [numpy.ones((ROWS, 2)), ["text"] * ROWS, [], [None, 1]])
def test_other_columns_are_not_named(recorded, column):
    for _ in range(2):
        Accessor.batch_to_block(make_batch(column))
    assert not recorded


def test_a_process_without_ray_data_does_not_import_it():
    code = (
        "import sys; from raymeter.inside import data_batches; "
        "data_batches.install_if_used(print); sys.exit('ray.data.block' in sys.modules)"
    )
    source = str(Path(data_batches.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": source}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_ray_data_has_these_names():
    folder = Path(ray_internals.FOLDER) / "data"
    block = (folder / "block.py").read_text()
    assert f"class {ray_internals.DATA_ACCESSOR}" in block
    assert f"def {ray_internals.BATCH_TO_BLOCK}(" in block
    task = (folder / "_internal" / "execution" / "operators" / "map_operator.py").read_text()
    head = f"def {ray_internals.DATA_TASK}(\n    {ray_internals.DATA_TRANSFORMER}: "
    assert head in task


def test_a_batch_is_looked_into_only_as_far_as_there_are_few_containers(monkeypatch):
    looked = []
    contents_of = data_batches.contents_of
    monkeypatch.setattr(
        data_batches, "contents_of", lambda value: looked.append(value) or contents_of(value)
    )
    numbers = [float(number) for number in range(1_000)]
    assert data_batches.Contents().is_known([numbers])
    assert len(looked) == 1  # none of its numbers
    monkeypatch.setattr(data_batches, "MAX_CONTAINERS", 10)
    assert not data_batches.Contents().is_known([[numbers]] * 20)
    assert len(looked) < 20
