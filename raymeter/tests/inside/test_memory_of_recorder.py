# SPDX-License-Identifier: Apache-2.0
"""What the recorder remembers does not grow without end in a program that makes new code and types in each step."""

import sys
from types import FrameType

import pytest

pytest.importorskip("ray")
from raymeter.inside import calls, place

MAX = 5
STEPS = 40
TEXT = """
def step():
    return find()
"""


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget all places, and remember few."""
    monkeypatch.setattr(place, "MAX_CODES", MAX)
    monkeypatch.setattr(place, "MAX_LINES", MAX)
    for name in ("kinds", "lines", "entries"):
        monkeypatch.setattr(place, name, {})
    monkeypatch.setattr(place, "kept_codes", [])


def make_frame(number: int) -> FrameType:
    """Return the frame of a new function of a file of its own, whose line 3 has run."""
    names = {"find": lambda: sys._getframe(1)}
    exec(compile(TEXT, f"/users/step_{number}.py", "exec"), names)
    return names["step"]()


def test_new_functions_in_each_step_are_found_and_not_kept(places):
    for number in range(STEPS):
        frame = make_frame(number)
        assert place.kind_of(frame.f_code) == place.USERS
        assert place.line_of(frame) == (f"/users/step_{number}.py:3", "step")
    assert len(place.kinds) == MAX
    assert len(place.lines) == MAX
    assert len(place.kept_codes) == 3 * MAX  # each line keeps two


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget all kinds of messages, and remember few."""
    monkeypatch.setattr(calls, "MAX_KINDS", MAX)
    monkeypatch.setattr(calls, "kinds_seen", {})
    monkeypatch.setattr(calls, "measured_kinds", {})


def test_new_types_in_each_step_are_forgotten_and_the_others_are_not(kinds):
    for step in range(1, STEPS):
        assert calls.count_kind("in each step") == step
        new = f"only in step {step}"
        assert calls.count_kind(new) == 1
        calls.measured_kinds[new] = {}
    assert len(calls.kinds_seen) <= MAX
    assert len(calls.measured_kinds) <= MAX
