# SPDX-License-Identifier: Apache-2.0
"""The advice about many small calls says how many bytes each of them sends, if this is known."""

import pytest
from raymeter.causes.calls import Line, say_bytes
from raymeter.profile.events import Call


@pytest.mark.parametrize(("sizes", "words"), [
    ([100, 140], ", of 120 B each,"), ([120, 0], ", of 120 B each,"), ([0, 0], ""),
])  # fmt: skip
def test_the_bytes_of_a_call_are_those_of_its_known_messages(sizes, words):
    calls = [Call(event="call", small_bytes=size) for size in sizes]
    assert say_bytes(Line("call", "/made/train.py:3", "step", calls)) == words
