# SPDX-License-Identifier: Apache-2.0
"""A function that brings data with it is named with its bytes, and with how often it was exported."""

import pytest
from made_programs import make_loop, make_steps
from raymeter.causes import captured
from raymeter.profile.events import Captured, Export


@pytest.mark.parametrize(("count", "words"), [(1, "exported once:"), (3, "exported 3 times:")])
def test_the_title_says_how_often_a_function_was_exported(count, words):
    program = make_loop()
    call = program.recording.calls[0]
    export = Export(
        process=call.process, kind="function", name="train", bytes=2**20, start=call.start,
        line=call.line, captured=[Captured("table", "dict", 2**20)],
    )  # fmt: skip
    program.recording.exports = [export] * count
    (finding,) = captured.find(program, make_steps())
    assert finding.title == f"train brings 1 MiB with it, and was {words} table (1 MiB)"
