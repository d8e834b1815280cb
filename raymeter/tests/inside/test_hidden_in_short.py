# SPDX-License-Identifier: Apache-2.0
"""A message in full says whether its largest array would be another one in short, where fewer parts are looked at."""

import numpy as np
import pytest

pytest.importorskip("ray")
from raymeter.inside import calls, identity, recorder

LARGE = np.arange(1_000_000.0)
FEW = identity.FEW_PARTS


@pytest.fixture
def made_recorder(tmp_path, monkeypatch):
    made = recorder.Recorder(tmp_path, 1, [])
    monkeypatch.setattr(calls, "recorder", made)
    monkeypatch.setattr(calls, "measured_kinds", {})
    monkeypatch.setattr(calls, "live_objects", identity.LiveObjects())
    yield made
    made.close()


@pytest.mark.parametrize(("value", "is_hidden"), [
    ({"x": LARGE}, False),
    ({"rows": [{"id": number} for number in range(2 * FEW)], "x": LARGE}, False),
    ([*range(2 * FEW), LARGE], True),
    ([*(np.ones(1_000) for _ in range(2 * FEW)), LARGE], True),
    ([LARGE, *(np.ones(1_000) for _ in range(2 * FEW))], False),
])  # fmt: skip
def test_the_array_is_hidden_if_many_parts_stand_before_it(made_recorder, value, is_hidden):
    event = {"bytes": LARGE.nbytes, "how": "", "by_name": "", "type": "", "seconds": 0.1}
    calls.add_content_and_fields(event, value, ("train.py:3", "main"))
    short = {"bytes": LARGE.nbytes}
    calls.add_content_of_short(short, value)
    assert event["is_hidden_in_short"] == is_hidden
    assert (short["token"] != event["token"]) == is_hidden
