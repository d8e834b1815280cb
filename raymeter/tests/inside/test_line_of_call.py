# SPDX-License-Identifier: Apache-2.0
"""A call of Ray is known again by its instruction, which is found where it was the last time, or else searched for."""

import sys

import pytest
from raymeter.inside import place

COUNT = 3
RAY_FILE = place.ray_internals.FOLDER + "made.py"
LIBRARY_FILE = "/made/site-packages/made.py"
RAY_TEXT = """
def search():
    return find("wrapped"), frame_key("wrapped", find_frame())
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
    """Return functions of Ray that the user calls. They return the key of the call, in the quick and the slow way."""
    monkeypatch.setattr(place, "entries", {})
    names = {"find": place.key_of_call, "frame_key": place.key_of_frame}
    return run_text(RAY_TEXT, RAY_FILE, {**names, "find_frame": place.find_frame})


def test_each_call_has_its_own_key_also_on_one_line(ray):
    rounds = []
    for _ in range(COUNT):
        found = [ray["enter"](), ray["enter"]()]
        found.append(ray["enter_deep"]())
        rounds.append(found)
    keys = [[quick for quick, _ in found] for found in rounds]
    assert keys[0] == keys[1] == keys[2]
    assert len(set(keys[0])) == 3
    assert all(quick == slow for quick, slow in [pair for found in rounds for pair in found])


def call_in_comprehension(ray):
    return [ray["enter"]() for _ in range(COUNT)]


def test_a_comprehension_has_one_key(ray):
    found = call_in_comprehension(ray)
    assert {quick for quick, _ in found} == {slow for _, slow in found}
    assert len(set(found)) == 1


def test_only_the_first_call_in_the_same_way_is_searched_for(ray, monkeypatch):
    searched = []
    find_frame = place.find_frame
    monkeypatch.setattr(place, "find_frame", lambda: searched.append(True) or find_frame())
    for _ in range(COUNT):
        ray["enter"]()
    assert len(searched) == 1


def test_a_library_between_the_user_and_ray_has_the_call_of_the_user(ray):
    library = run_text("def help(enter):\n    return enter()", LIBRARY_FILE, {})
    ray["enter"]()
    code = sys._getframe().f_code
    for _ in range(COUNT):
        quick, slow = library["help"](ray["enter"])
        assert quick == slow
        assert id(code) in quick


def test_it_is_searched_for_if_there_are_fewer_frames_than_the_last_time(ray):
    place.entries["wrapped"] = 100_000, 0
    quick, slow = ray["enter"]()
    assert quick == slow


def test_a_call_that_no_user_has_made_has_the_line_of_the_library(ray, monkeypatch):
    monkeypatch.setattr(place, "kind_of", lambda code: place.LIBRARY)
    quick, slow = ray["enter"]()
    assert quick == slow
    assert quick[0] == "wrapped"
    assert ".py:" in quick[1]


def test_code_that_is_not_remembered_is_known_by_its_line(ray, monkeypatch):
    monkeypatch.setattr(place, "MAX_CODES", 0)
    monkeypatch.setattr(place, "kinds", {})
    quick, slow = ray["enter"]()
    assert quick == slow
    assert quick[1].startswith(f"{__file__}:")
