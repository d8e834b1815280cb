# SPDX-License-Identifier: Apache-2.0
"""Lists of numbers in the batches of Ray Data are found where it makes blocks of them, and nothing else changes."""

import functools
import os
import subprocess
import sys
import time
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
