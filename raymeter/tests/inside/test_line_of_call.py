# SPDX-License-Identifier: Apache-2.0
"""The line that has called Ray is found again where it was found the last time, or else searched for."""

import sys

import pytest
from raymeter.inside import place

COUNT = 3
RAY_FILE = place.ray_internals.FOLDER + "made.py"
LIBRARY_FILE = "/made/site-packages/made.py"
RAY_TEXT = """
def search():
    return find("wrapped")
def enter():
    return search()
def enter_deep():
    return enter()
"""


def run_text(text, path, names):
    exec(compile(text, path, "exec"), names)
    return names


@pytest.fixture
def ray(monkeypatch):
    """Return functions of Ray that the user calls. They end in the search for the user's line."""
    monkeypatch.setattr(place, "entries", {})
    return run_text(RAY_TEXT, RAY_FILE, {"find": place.find_line_of_call})


def test_each_call_has_its_own_line(ray):
    for _ in range(COUNT):
        first = sys._getframe().f_lineno
        found = [ray["enter"]()[0]]
        found.append(ray["enter"]()[0])
        found.append(ray["enter_deep"]()[0])
        assert found == [f"{__file__}:{first + number}" for number in (1, 2, 3)]


def test_only_the_first_call_in_the_same_way_is_searched_for(ray, monkeypatch):
    searched = []
    find_frame = place.find_frame
    monkeypatch.setattr(place, "find_frame", lambda: searched.append(True) or find_frame())
    for _ in range(COUNT):
        ray["enter"]()
    assert len(searched) == 1


def test_a_library_between_the_user_and_ray_has_the_line_of_the_user(ray):
    library = run_text("def help(enter):\n    return enter()", LIBRARY_FILE, {})
    ray["enter"]()
    first = sys._getframe().f_lineno
    assert library["help"](ray["enter"])[0] == f"{__file__}:{first + 1}"


def test_it_is_searched_for_if_there_are_fewer_frames_than_the_last_time(ray):
    place.entries["wrapped"] = 100_000, 0
    assert ray["enter"]()[0].startswith(f"{__file__}:")
