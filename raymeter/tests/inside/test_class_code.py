# SPDX-License-Identifier: Apache-2.0
"""Reading a message in its sender, to measure this, leaves the classes of the script as they are."""

import gc
import weakref
from typing import ClassVar

import numpy as np
from raymeter.inside import class_code, ray_internals


class Base:
    """A class that knows its subclasses."""

    announced: ClassVar[list] = []

    def __init_subclass__(cls):
        Base.announced.append(cls.__name__)


def make_class():
    """Return a class whose code travels with each message, because no reader can import it."""

    class Sample(Base):
        seen: ClassVar[list] = []

        def __init__(self):
            self.array = np.arange(1_000)

        def remember(self):
            return self.seen

    return Sample


def test_a_class_keeps_its_variables_and_methods_and_is_announced_once():
    kind = make_class()
    variable = kind.seen
    method = kind.remember
    announced = len(Base.announced)
    parts = ray_internals.serialise_parts([kind(), {"x": kind()}])
    assert ray_internals.has_class_code(parts[1])
    first, second = ray_internals.deserialise_parts(*parts, list)
    assert type(first) is kind and type(second["x"]) is kind
    assert first.array.tolist() == list(range(1_000))
    assert kind.seen is variable
    assert kind.remember is method
    assert len(Base.announced) == announced


def test_the_class_whose_code_travels_is_found_with_its_bytes():
    kind = make_class()
    value = {"rows": [kind(), Base()]}
    _, inband, _ = ray_internals.serialise_parts(value)
    found = class_code.find_class_code(value, inband)
    assert found["type"] == "make_class.<locals>.Sample"
    assert 300 < found["bytes"] < len(inband)
    assert found["seconds"] > 0
    _, without, _ = ray_internals.serialise_parts({"x": Base()})
    assert class_code.find_class_code({"x": Base()}, without) is None


def test_a_class_that_readers_import_brings_no_code():
    parts = ray_internals.serialise_parts({"x": Base()})
    assert not ray_internals.has_class_code(parts[1])
    assert type(ray_internals.deserialise_parts(*parts, dict)["x"]) is Base


class Witness:
    """A variable of a class that notes how it is pickled, as Ray asks for each reference."""

    def __init__(self, context):
        self.context = context
        self.seen = []

    def __reduce__(self):
        self.seen.append(self.context.is_in_band_serialization())
        return str, ()


def test_references_in_the_code_of_a_class_are_not_pinned(monkeypatch):
    context = ray_internals.serialisation_context()
    monkeypatch.setattr(ray_internals, "serialisation_context", lambda: context)
    kind = make_class()
    kind.table = Witness(context)
    size, _ = class_code.measure_code(kind)
    assert size > 300
    assert kind.table.seen == [True] * class_code.PASSES


def test_a_class_that_was_measured_is_not_kept_alive():
    kind = make_class()
    value = [kind()]
    _, inband, _ = ray_internals.serialise_parts(value)
    assert class_code.find_class_code(value, inband)
    reference = weakref.ref(kind)
    del kind, value
    gc.collect()
    assert reference() is None
