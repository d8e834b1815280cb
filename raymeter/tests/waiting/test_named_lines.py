# SPDX-License-Identifier: Apache-2.0
"""Steps that begin with a line which the user names: all calls that a comprehension makes there are one pass."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from made_programs import Builder
from raymeter.inside import place
from raymeter.profile.steps import find_steps

PASSES = 11
FORMS = {
    "in a for loop": (
        3,
        """
for step in range(11):
    ray.get([f.remote(x) for x in range(2)])
""",
    ),
    "in a while loop": (
        4,
        """
step = 0
while step < 11:
    results = ray.get([f.remote(x) for x in range(2)])
    step += 1
""",
    ),
    "in the condition of a while loop": (
        3,
        """
steps = iter(range(11, 0, -1))
while ray.get([f.remote(x) for x in range(2)]) and next(steps) > 1:
    pass
""",
    ),
    "in a function": (
        3,
        """
def step():
    return ray.get([f.remote(x) for x in range(2)])

for number in range(11):
    step()
""",
    ),
    "in a loop of a function": (
        4,
        """
def train():
    for step in range(11):
        ray.get({x: f.remote(x) for x in range(2)})

train()
""",
    ),
    "in a function that is called for each epoch": (
        4,
        """
def train(steps):
    for step in range(steps):
        ray.get([f.remote(x) for x in range(2)])

train(5)
train(6)
""",
    ),
    "over several lines, at its calls": (
        5,
        """
for step in range(11):
    ray.get(
        [
            f.remote(
                x,
            )
            for x in range(2)
        ]
    )
""",
    ),
    "over several lines, at its first one": (
        3,
        """
for step in range(11):
    ray.get([
        f.remote(x)
        for x in range(2)
    ])
""",
    ),
    "a generator": (
        3,
        """
for step in range(11):
    ray.get(list(f.remote(x) for x in range(2)))
""",
    ),
    "one in another one": (
        3,
        """
for step in range(11):
    ray.get([[f.remote(x) for x in range(2)] for y in range(3)])
""",
    ),
    "over what is got": (
        3,
        """
for step in range(11):
    [print for result in ray.get([f.remote(x) for x in range(2)]) or ()]
""",
    ),
    "that also gets": (
        3,
        """
for step in range(11):
    [ray.get(f.remote(x)) for x in range(2)]
""",
    ),
}


class FakeRay:
    """Record calls of a program with the lines and frames that they have in a real one."""

    def __init__(self) -> None:
        self.builder = Builder()
        self.time = 1.0

    def add(self, event: str) -> None:
        frame = sys._getframe(2)
        line, _ = place.line_of(frame)
        frames = list(place.number_frames(frame))
        self.builder.call(event, self.time, 0.01, line=line, frames=frames)
        self.time += 0.02

    def remote(self, *_: object) -> None:
        self.add("call")

    def get(self, _: object) -> list:
        self.add("get")
        return [0]


def run(text: str, path: Path) -> FakeRay:
    path.write_text(text)
    os.utime(path, (0, 0))
    ray = FakeRay()
    program = compile(path.read_text(), str(path), "exec")
    exec(program, {"ray": ray, "f": ray})
    return ray


@pytest.mark.parametrize("form", FORMS)
def test_a_comprehension_in_a_named_line_is_one_pass(form: str, tmp_path: Path) -> None:
    line, text = FORMS[form]
    ray = run(text, tmp_path / "train.py")
    program = ray.builder.program()
    assert find_steps(program, f"train.py:{line}").count == PASSES


@pytest.mark.parametrize("form", [form for form in FORMS if form != "that also gets"])
def test_so_it_is_where_only_generators_have_frames(form: str, tmp_path: Path) -> None:
    line, text = FORMS[form]
    ray = run(text, tmp_path / "train.py")
    inlined = {"a generator": 0, "one in another one": 2}.get(form, 1)
    inline(ray, inlined)
    program = ray.builder.program()
    assert find_steps(program, f"train.py:{line}").count == PASSES


def inline(ray: FakeRay, inlined: int) -> None:
    """Give the calls of comprehensions the frame of the function around them, as Python 3.12 does."""
    recording = ray.builder.recording
    [driver] = recording.processes
    recording.processes[0] = replace(driver, python="3.12.4")
    for call in recording.calls:
        if call.event == "call":
            call.frames = call.frames[inlined:]
