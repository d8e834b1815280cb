# SPDX-License-Identifier: Apache-2.0
"""The first lines of the page about clusters: from how many GPUs on the controller is the limit."""

import pytest

from dataflow.report.cluster_forecast import say_first_limit


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ([20, 24, 20], "from 20 to 24 GPUs on, depending on the system.**"),
        ([20, 24, 20], "simulated for 3 systems, without generation"),
        ([16, 16], "moves, from 16 GPUs on.**"),
        ([None, 20], "for 1 of 2 systems"),
        ([None, None], "at no size"),
    ],
)
def test_the_answer_has_the_smallest_and_the_largest_limit(limits, text):
    assert text in say_first_limit(limits)
