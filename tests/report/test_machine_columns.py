# SPDX-License-Identifier: Apache-2.0
"""A table of campaigns has the mean of each machine, its tail, and what carries over to others."""

import pytest

from dataflow.analysis.campaigns import combine, load_campaigns
from dataflow.analysis.stored_costs import load_costs
from dataflow.plan.options import CAMPAIGNS
from dataflow.report.machine_columns import (
    FittedCosts,
    MachineTimes,
    boots_of_rows,
    list_by_machine,
    order_of,
    times_of,
)

# With kept memory, as an audit of the records has found it.
SLOW_ITERATIONS = [0.318, 0.050, 0.334, 0.043, 0.339, 0.044, 0.048, 0.049, 0.189, 0.044]


@pytest.fixture(scope="module")
def rows():
    """Return the rows of the first table of the campaigns."""
    return [row for row in combine(load_campaigns(CAMPAIGNS)) if row.newest.table == "headline"]


def row_of(rows, label):
    return next(row for row in rows if row.newest.label == label)


def test_the_mean_comes_first_and_shows_what_the_median_hides():
    times = MachineTimes(SLOW_ITERATIONS)
    assert str(times).startswith("150 (50, 340)")
    assert times.slow_share == pytest.approx(0.4)


def test_equal_times_have_no_slow_ones():
    assert MachineTimes([0.1] * 10).slow_share == 0


def test_all_iterations_of_all_campaigns_of_a_machine_count(rows):
    row = row_of(rows, "store refs")
    times = times_of(row)
    assert [*times] == boots_of_rows([row])
    counted = sum(len(of_boot.seconds) for of_boot in times.values())
    assert counted == sum(len(pair.new.seconds) for pair in row.pairs.values())
    assert order_of(row) < 1 == order_of(row_of(rows, "store driver-queue"))


def test_machines_are_in_the_order_of_the_campaigns_whatever_row_comes_first(rows):
    boots = boots_of_rows(rows)
    assert len(boots) > 2
    incomplete = [row for row in rows if {*boots} - row.boots]
    complete = [row for row in rows if not {*boots} - row.boots]
    assert incomplete and complete
    for first in incomplete:
        assert boots_of_rows([first, *complete]) == boots


def test_copies_and_page_faults_are_those_of_the_stored_costs(rows):
    stored = load_costs()
    costs = FittedCosts(stored)
    row = row_of(rows, "store driver-queue")
    found = costs.of(row)
    assert found in stored.costs
    copies, faults = costs.format(row).split(", ", 1)
    assert float(copies) == pytest.approx(found.copies, rel=0.05)
    assert float(faults.replace(",", "")) == pytest.approx(found.faults, rel=0.05)


def test_the_sentence_has_what_a_copy_and_a_page_fault_take_on_each_machine(rows):
    sentence = FittedCosts(load_costs()).say_machines(rows)
    for boot in boots_of_rows(rows):
        assert f"`{boot[:4]}` " in sentence
    assert sentence.count("µs per page fault") == len(boots_of_rows(rows))


def test_a_machine_without_a_number_keeps_its_place():
    assert list_by_machine({"b": 2.0}, ["a", "b"]) == "-, 2"
    assert list_by_machine({}, ["a", "b"]) == "-"
