# SPDX-License-Identifier: Apache-2.0
"""Test what a page fault takes inside iterations: made runs whose times follow from their page faults."""

import random

import pytest
from made_records import make_run

from dataflow.analysis.fault_price import estimate_price

FAULTS = [100, 20_000, 300, 50, 4_000, 900, 120, 9_000, 200, 80] * 3


def run_of(price, level, faults=FAULTS, noise=0.0):
    """Return a run whose iterations take a time of its own, and so many seconds more for each page fault."""
    random.seed(1)
    seconds = [level + price * count + random.gauss(0, noise) for count in faults]
    return make_run(seconds, group_faults=faults)


def test_the_price_is_the_slope_within_the_runs_whatever_the_levels_of_the_runs_are():
    price = estimate_price([run_of(9e-6, 0.1), run_of(9e-6, 5.0)])
    assert price.seconds == pytest.approx(9e-6)
    assert price.error == pytest.approx(0, abs=1e-9)
    assert price.is_known


def test_a_price_below_the_noise_is_not_known():
    price = estimate_price([run_of(0.01e-6, 0.4, noise=0.05)])
    assert not price.is_known
    # The noise is in the error: with less of it, the price is known.
    known = estimate_price([run_of(9e-6, 0.4, noise=0.005)])
    assert known.is_known
    assert known.seconds == pytest.approx(9e-6, rel=0.1)
    assert abs(known.seconds - 9e-6) < 3 * known.error


@pytest.mark.parametrize(
    "run",
    [
        run_of(9e-6, 0.1, faults=FAULTS[:10]),
        run_of(9e-6, 0.1, faults=[500] * 30),
        make_run([0.1] * 30, group_faults=[100, 200, 300]),  # verified ten at once
        make_run([0.1] * 30),  # of a version that did not count
    ],
    ids=["too few", "equal", "groups", "not counted"],
)
def test_without_page_faults_that_differ_in_enough_iterations_there_is_no_price(run):
    assert estimate_price([run]) is None
