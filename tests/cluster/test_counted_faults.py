# SPDX-License-Identifier: Apache-2.0
"""Simulate a layout also with the page faults that its runs have counted."""

import pytest
from made_records import make_record, make_run, rows_of
from made_ways import MB, make_way_cost

from dataflow.analysis.machine_costs import Rates
from dataflow.analysis.result import Result
from dataflow.cluster.check import check_result, count_simulated_faults
from dataflow.cluster.costs import CallCost, LayoutCheck, SizedFaults, WayCalls
from dataflow.cluster.ways import Path
from dataflow.flows.parser import parse_flow
from dataflow.records.schema import ProcessCost
from dataflow.report.cluster_forecast import checks_section
from dataflow.report.render import MAX_PAGE_COLUMNS

FAULTS_PER_MB = 250.0  # of a message that is sent, and of one that is read


def way_cost(path, **changes):
    """Return a cost with FAULTS_PER_MB, and without copies."""
    return make_way_cost(path, **{"copies": 0.0, "faults": 2 * FAULTS_PER_MB} | changes)


def make_check(measured, simulated, with_counted):
    return LayoutCheck(
        layout="one node, 3 actors",
        flow="",
        configuration="store refs",
        iteration_bytes=MB,
        nodes=1,
        link_rate=0.0,
        runs=3,
        measured_seconds=measured,
        simulated_seconds=simulated,
        simulated_faults=2000.0,
        counted_faults=1000.0,
        seconds_with_counted_faults=with_counted,
    )


# A message to two readers is sent once and read twice; through the driver it is read and sent twice more.
@pytest.mark.parametrize(("path", "times"), [(Path.REFERENCES, 3), (Path.DRIVER, 1 + 3 * 2)])
def test_each_message_that_is_sent_or_read_has_page_faults(path, times):
    flow = parse_flow("a -> b, c: 1MB")
    assert count_simulated_faults(flow, way_cost(path)) == pytest.approx(times * FAULTS_PER_MB)


def test_what_calls_and_copies_take_is_no_page_fault():
    flow = parse_flow("a -> b: 1MB")
    call = CallCost(seconds=3.0, core_seconds=4.0, submit_seconds=1.0, source="")
    calls = WayCalls(call=call, reading_call=call)
    cost = way_cost(Path.REFERENCES, copies=3.0, fixed_seconds=1.0, calls=calls)
    assert count_simulated_faults(flow, cost) == pytest.approx(2 * FAULTS_PER_MB)


def test_messages_of_all_sizes_get_as_many_times_more():
    smaller = [SizedFaults(MB // 100, 1e-5)]
    cost = way_cost(Path.REFERENCES, smaller=smaller).multiply_faults(3.0)
    assert cost.faults == pytest.approx(6 * FAULTS_PER_MB)
    assert [item.faults for item in cost.smaller] == pytest.approx([3e-5])


@pytest.fixture
def make_measured():
    """make_measured(seconds, faults) returns the result of two iterations with so many page faults each."""

    def make(seconds, faults):
        processes = {"driver": ProcessCost(peak_memory_bytes=1, minor_faults=2 * faults)}
        run = make_run([seconds, seconds], processes=processes)
        record = make_record("refs", run, flow="fan-in", actors=2, message_bytes=MB)
        return Result([record])

    return make


def test_a_layout_is_also_simulated_with_the_page_faults_that_were_counted(make_measured):
    rates = Rates(byte_seconds=1e-12, fault_seconds=1e-3)
    check = check_result(make_measured(0.2, 100), way_cost(Path.REFERENCES), rates)
    assert (check.simulated_faults, check.counted_faults) == pytest.approx((500.0, 100.0))
    assert check.simulated_seconds == pytest.approx(0.5, rel=0.01)
    assert check.seconds_with_counted_faults == pytest.approx(0.1, rel=0.01)
    assert check.error_with_counted_faults == pytest.approx(-0.5, rel=0.01)


def test_a_layout_without_simulated_page_faults_has_only_one_time(make_measured):
    rates = Rates(byte_seconds=1e-12, fault_seconds=1e-3)
    cost = way_cost(Path.REFERENCES, faults=0.0)
    check = check_result(make_measured(0.2, 100), cost, rates)
    assert check.seconds_with_counted_faults is None
    assert check.error_with_counted_faults is None


def test_the_page_says_how_many_are_near_with_and_without_the_counted_page_faults():
    checks = [make_check(1.0, 1.7, 1.1), make_check(1.0, 1.1, 1.0), make_check(1.0, 0.5, None)]
    section = checks_section(checks)
    assert "1 of all 3, are simulated within 20 % of" in section.sentence
    assert section.sentence.endswith("runs counted, 2 of 2 are (with the predicted number, 1).")
    assert checks_section(checks[:2]).sentence.endswith("runs counted, 2 of 2 are.")
    first, _, last = rows_of(section)
    assert (first["difference"], first["difference with counted page faults"]) == ("+70 %", "+10 %")
    assert first["page faults: counted (simulated)"] == "1,000 (2,000)"
    assert last["difference with counted page faults"] == "-"
    # A page would leave out the others.
    assert len(section.table.headers) <= MAX_PAGE_COLUMNS


def test_without_counted_page_faults_the_page_says_nothing_of_them():
    section = checks_section([make_check(1.0, 1.1, None)])
    assert "counted" not in section.sentence
