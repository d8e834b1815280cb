# SPDX-License-Identifier: Apache-2.0
"""What is held at the same time is counted once, for tasks, CPUs and other resources."""

import math

import pytest
from raymeter.causes.at_once import Hold, most_at_once


@pytest.mark.parametrize(("holds", "most"), [
    ([], 0),
    ([Hold(0, 2), Hold(1, 3), Hold(4, 5)], 2),
    ([Hold(0, 1), Hold(1, 2)], 1),  # one after the other
    ([Hold(0, 2, 0.5), Hold(1, 3, 0.5)], 1),
    ([Hold(0, 1, 2), Hold(0, math.inf, 3), Hold(2, 3, 1)], 5),
    ([Hold(0, 9, 0.1), Hold(1, 9, 0.2), Hold(2, 9, 0.7)], 1),
    ([Hold(2, 1), Hold(0, 3), Hold(1.2, 1.8)], 2),  # the first one has no time at all
])  # fmt: skip
def test_the_most_at_one_time_is_counted(holds, most):
    assert most_at_once(holds) == most
