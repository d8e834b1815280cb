# SPDX-License-Identifier: Apache-2.0
"""Recording keeps no class of the program alive, whatever it remembers about the class."""

import gc
import weakref

import pytest
from raymeter.inside import by_class, calls, describe, ray_internals, recorder

SMALL, LARGE = 100, 5_000
SLOW_SECONDS = 1.0


class Result:
    """What Ray's serialisation returns."""

    contained_object_refs = ()

    def __init__(self, total_bytes):
        self.total_bytes = total_bytes


@pytest.fixture
def made_recorder(tmp_path, monkeypatch):
    made = recorder.Recorder(tmp_path, 1_000, [])
    monkeypatch.setattr(calls, "recorder", made)
    for name in ("current_task", "current_name", "current_node"):
        monkeypatch.setattr(calls.ray_internals, name, lambda: "")
    yield made
    made.close()


def send(value, size):
    wrapper = calls.make_serialise_wrapper(lambda _, __: Result(size))
    wrapper(None, value)


def note_slow(value):
    calls.note_speed(type(value), SLOW_SECONDS)


USES = {
    "small messages": lambda value: [send(value, SMALL) for _ in range(2)],
    "large messages": lambda value: [send(value, LARGE) for _ in range(5)],
    "slow messages": note_slow,
    "own pickling": lambda value: describe.find_own_pickling({"x": value}),
    "coroutines": lambda value: ray_internals.has_coroutines(type(value)),
}


@pytest.mark.parametrize("use", USES)
def test_a_class_ends_with_its_last_object(made_recorder, use):
    kind = type("Step", (), {"__reduce__": lambda step: (int, ())})
    reference = weakref.ref(kind)
    USES[use](kind())
    del kind
    gc.collect()
    assert reference() is None


def test_values_are_those_of_a_class_and_gone_with_it():
    known = by_class.ByClass()
    kinds = [type("Step", (), {}) for _ in range(3)]
    for number, kind in enumerate(kinds):
        known.set(kind, number)
    assert [known.get(kind) for kind in kinds] == [0, 1, 2]
    known.discard(kinds[0])
    assert kinds[0] not in known and kinds[1] in known
    known.set(kinds[0], None)
    assert kinds[0] in known
    del kind, kinds
    gc.collect()
    assert not known.values and not known.references
