# SPDX-License-Identifier: Apache-2.0
"""What a function or a class of actors brings with it, when Ray pickles it for the workers."""

import functools

import pytest
from raymeter.inside import calls, captured, ray_internals, recorder

TABLE = b"t" * 100_000
OTHER = b"o" * 50_000


def names_of(code) -> list[str]:
    """Return the names of what a function or class brings with it, if it is large."""
    described = captured.describe_captured(code)
    return [variable["name"] for variable in described if variable["bytes"] > 10_000]


class Base:
    weights = b"w" * 30_000


class Worker(Base):
    cache = b"c" * 40_000

    def __init__(self) -> None:
        super().__init__()
        self.first = TABLE[0]

    @staticmethod
    def look_up(position):
        return Worker.cache[position] + OTHER[position]


def test_a_class_brings_its_attributes_and_what_its_methods_use():
    assert names_of(Worker) == ["TABLE", "OTHER", "cache", "weights"]


def test_a_class_of_actors_is_described_as_the_user_has_written_it(tmp_path, monkeypatch):
    class Class(Worker):  # as Ray makes one
        __ray_actor_class__ = Worker

    events = []
    made = recorder.Recorder(tmp_path, 1, [])
    monkeypatch.setattr(calls, "recorder", made)
    monkeypatch.setattr(made, "write", events.append)
    monkeypatch.setattr(ray_internals, "current_task", lambda: "")
    calls.write_export("class", 0.0, 1.0, Class, b"pickle")
    made.close()
    assert [variable["name"] for variable in events[0]["captured"]][:2] == ["TABLE", "OTHER"]


def in_comprehension():
    return [TABLE[position] for position in range(3)]


def in_function_inside():
    def look_up():
        return TABLE[0]

    return look_up()


def as_default(position, other=0, table=TABLE):
    return table[position]


def as_keyword(position, *, table=TABLE):
    return table[position]


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (in_comprehension, "TABLE"),
        (in_function_inside, "TABLE"),
        (as_default, "table"),
        (as_keyword, "table"),
    ],
)
def test_a_function_brings_what_it_uses_anywhere(function, name):
    assert names_of(function) == [name]


def test_an_attribute_with_the_name_of_a_global_variable_is_none():
    def use(message):
        return message.TABLE

    assert names_of(use) == []


def test_a_variable_that_has_no_value_yet_is_left_out():
    def make():
        def use():
            return later, table

        table = TABLE
        found = names_of(use)
        later = 1
        return found, later

    assert make()[0] == ["table"]


def test_a_decorator_and_what_it_wraps_both_bring_something():
    def decorate(function):
        table = b"d" * 60_000

        @functools.wraps(function)
        def call():
            return table, function()

        return call

    @decorate
    def use():
        return OTHER

    assert names_of(use) == ["table", "OTHER"]


def test_what_cannot_be_pickled_has_no_bytes():
    items = (position for position in range(3))

    def use():
        return next(items)

    assert captured.describe_captured(use) == [{"name": "items", "type": "generator", "bytes": 0}]
