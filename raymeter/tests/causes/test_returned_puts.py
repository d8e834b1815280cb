# SPDX-License-Identifier: Apache-2.0
"""Tasks that return a reference of what they have put are named, with what the second ray.get takes."""

import os
from pathlib import Path

import pytest
from made_programs import Builder
from raymeter.causes import calls, returned_puts
from raymeter.profile.program import Program
from raymeter.profile.returned import returns_put
from raymeter.profile.steps import Steps

STEPS = 4
PUT_SECONDS = 0.002
GET_SECONDS = 0.003
RETURNED = "def rollout(self):\n    return ray.put(rewards)\n"


def write_source(folder: Path, text: str) -> str:
    """Write a program that is older than the recording of one; return the line of its ray.put."""
    path = folder / "program.py"
    path.write_text(text)
    os.utime(path, (0, 0))
    lines = text.splitlines()
    number = next(number for number, line in enumerate(lines, 1) if "ray.put" in line)
    return f"{path}:{number}"


@pytest.mark.parametrize(("text", "expected"), [
    (RETURNED, True),
    ("def rollout(self):\n    ref = ray.put(rewards)\n    return ref\n", True),
    ("async def rollout(self):\n    ref = ray.put(rewards)\n    return {'ref': ref}, 1\n", True),
    ("def rollout(self):\n    return [ray.put(rewards)]\n", True),
    ("def rollout(self):\n    ref = ray.put(rewards)\n    return ray.get(work.remote(ref))\n", False),
    ("def rollout(self):\n    return work.remote(ray.put(rewards))\n", False),
    ("def rollout(self):\n    self.ref = ray.put(rewards)\n    return len(rewards)\n", False),
    ("def rollout(self):\n    return [ray.put(part) for part in rewards]\n", False),
    ("def other(self):\n    return ray.put(rewards)\n", False),
    ("def rollout(self):\n    def other():\n        return ray.put(rewards)\n    return 1\n", False),
    ("ref = ray.put(rewards)\n", False),
])  # fmt: skip
def test_what_a_function_returns_is_read_in_its_code(tmp_path, text, expected):
    line = write_source(tmp_path, text)
    assert returns_put(line, "rollout", start=1.0) is expected


def test_code_that_was_changed_since_is_not_read(tmp_path):
    line = write_source(tmp_path, RETURNED)
    os.utime(tmp_path / "program.py", (9, 9))
    assert not returns_put(line, "rollout", start=1.0)
    assert not returns_put("/nowhere/program.py:2", "rollout", start=1.0)


def make_program(
    line: str, number: str = "02000000", other: str = "Environment.rollout"
) -> Program:
    """Return a driver that gets the reference that a method has put, and then the value with this number."""
    builder = Builder()
    for step in range(STEPS):
        task = f"{step:048x}"
        begin = float(step)
        builder.call(
            "call", begin, 0.001, kind="method", task=task, name="Environment.rollout", actor="a",
            line="/made/a.py:1",
        )  # fmt: skip
        builder.task(task, other, begin + 0.002, 0.01, actor="a")
        builder.call(
            "put", begin + 0.004, PUT_SECONDS, place="Environment.rollout", by=task, line=line,
            object=f"{task}02000000",
        )  # fmt: skip
        first = f"{task}01000000"
        builder.call("get", begin + 0.001, 0.012, objects=[first], count=1, line="/made/a.py:2")
        builder.call(
            "get", begin + 0.014, GET_SECONDS, objects=[f"{task}{number}"], count=1,
            deserialise_seconds=0.001, line="/made/a.py:3",
        )  # fmt: skip
    return builder.program()


def make_steps() -> Steps:
    return Steps("a pass", [(float(step), step + 0.02) for step in range(STEPS)], "node-1", 1, "")


def test_a_returned_put_costs_itself_and_the_second_get_without_reading(tmp_path):
    line = write_source(tmp_path, RETURNED)
    (finding,) = returned_puts.find(make_program(line), make_steps())
    assert (finding.line, finding.other_lines) == (line, ["/made/a.py:3"])
    assert finding.title.startswith("1 times per step, Environment.rollout puts its result")
    assert finding.seconds == pytest.approx(PUT_SECONDS + GET_SECONDS - 0.001)


@pytest.mark.parametrize(("number", "other"), [
    ("01000000", "Environment.rollout"),  # the first result of a task is what it returns
    ("02000000", "Environment.other"),
])  # fmt: skip
def test_a_get_of_another_value_is_no_second_one(tmp_path, number, other):
    program = make_program(write_source(tmp_path, RETURNED), number, other)
    (finding,) = returned_puts.find(program, make_steps())
    assert finding.other_lines == []
    assert finding.seconds == pytest.approx(PUT_SECONDS)


def test_a_put_that_is_passed_on_is_none(tmp_path):
    text = "def rollout(self):\n    return work.remote(ray.put(rewards))\n"
    assert returned_puts.find(make_program(write_source(tmp_path, text)), make_steps()) == []


def test_it_is_not_called_many_small_calls_too(tmp_path, monkeypatch):
    monkeypatch.setattr(calls, "MIN_CALLS", 1)
    text = "def rollout(self):\n    self.ref = ray.put(rewards)\n"
    folders = [tmp_path / "kept", tmp_path / "returned"]
    for folder in folders:
        folder.mkdir()
    line, other = [write_source(*pair) for pair in zip(folders, (text, RETURNED), strict=True)]
    kept = calls.find(make_program(line), make_steps())
    assert any("ray.put" in finding.title for finding in kept)
    returned = calls.find(make_program(other), make_steps())
    assert not any("ray.put" in finding.title for finding in returned)
