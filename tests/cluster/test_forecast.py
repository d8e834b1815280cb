# SPDX-License-Identifier: Apache-2.0
"""Forecast clusters: which resource is in use longest, and from how many rollouts on it is full."""

from math import inf

import pytest
from made_ways import MB, make_way_cost

from dataflow.cluster.check import OF_CAMPAIGNS, OF_TABLES, make_forecast
from dataflow.cluster.costs import (
    FORECAST,
    CallCost,
    SizedFaults,
    load_forecast,
    typical_machine,
)
from dataflow.cluster.forecast import Case, Forecast, Point, forecast
from dataflow.cluster.hardware import Cluster, NodeMachine
from dataflow.cluster.presets import load_presets
from dataflow.cluster.ways import Path
from dataflow.errors import RecordError
from dataflow.flows.parser import parse_flow
from dataflow.report.cluster_forecast import format_full

# On it, a byte is sent in 12 ns (three copies), and read in 8 ns (two copies).
MACHINE = NodeMachine(pair_rate=100 * MB, memory_rate=inf, fault_seconds=1e-6, cores=inf)
FLOW = parse_flow("rollout -> trainer: 1MB")


def test_copies_page_faults_and_the_rest_are_spread_over_the_bytes():
    cost = make_way_cost(Path.REFERENCES, faults=1000.0, fixed_seconds=0.001)
    work = cost.costs_on(MACHINE)
    copying = 2 * MB / (100 * MB) + 0.001
    assert work.send.seconds_of(MB) == pytest.approx(copying * 3 / 5 + 0.0005)
    assert work.read.seconds_of(MB) == pytest.approx(copying * 2 / 5 + 0.0005)


def test_only_the_reader_of_a_direct_message_has_page_faults():
    cost = make_way_cost(Path.STREAM, path_bytes=1.0 * MB, path_copies=1.0 * MB, faults=1000.0)
    work = cost.costs_on(MACHINE)
    assert work.send.seconds_of(MB) == pytest.approx(0.02)
    assert work.read.seconds_of(MB) == pytest.approx(0.021)


def test_smaller_messages_have_the_page_faults_of_their_size():
    smaller = [SizedFaults(MB // 100, 1 / 4096)]
    cost = make_way_cost(Path.REFERENCES, copies=0.0, faults=2 * MB / 1024, smaller=smaller)
    work = cost.costs_on(MACHINE).send
    per_byte = [work.seconds_of(size) / size for size in (MB // 100, MB // 10, MB, 10 * MB)]
    assert per_byte == pytest.approx([1e-6 / 4096, 2.5e-6 / 4096, 4e-6 / 4096, 4e-6 / 4096])


def forecast_of(path, rollouts, trainers, nodes=1):
    case = Case(FLOW, Cluster(MACHINE, nodes, inf), "blocks", rollouts, trainers)
    [found] = forecast(case, [make_way_cost(path)])
    return found


def test_the_driver_is_the_limit_from_the_number_on_at_which_its_core_is_full():
    found = forecast_of(Path.DRIVER, 64, 64)
    # With N rollouts: the first sends in 12 ms, the driver is busy for N x 20 ms, and the last reader for 8 ms.
    assert found.asked.seconds == pytest.approx(64 * 0.02 + 0.02, rel=1e-6)
    assert found.asked.limit == "the driver's core"
    assert found.asked.share == pytest.approx(64 / 65, rel=1e-6)
    assert found.full_from is not None
    assert found.full_from.case.rollouts == 9  # 9 / 10 of the time


def test_references_are_as_fast_with_more_rollouts_and_trainers():
    found = forecast_of(Path.REFERENCES, 64, 64)
    assert found.asked.seconds == pytest.approx(0.02)
    assert found.full_from is None


def test_one_trainer_is_full_if_it_reads_all():
    found = forecast_of(Path.REFERENCES, 16, 1)
    assert found.asked.limit == "the core of a trainer"
    assert found.full_from is not None
    assert found.full_from.case.rollouts == 14  # 14 x 8 of 12 + 14 x 8 ms
    assert found.full_from.case.trainers == 1


def test_a_larger_cluster_is_tried_if_nothing_is_full():
    found = forecast_of(Path.DRIVER, 6, 6)
    assert found.asked.share < 0.9
    assert found.full_from is not None
    assert found.full_from.case.rollouts == 9


def test_one_trainer_stays_one_on_larger_clusters():
    found = forecast_of(Path.REFERENCES, 8, 1)
    assert found.asked.share < 0.9
    assert found.full_from is not None
    assert found.full_from.case.rollouts == 14
    assert found.full_from.case.trainers == 1


def test_the_resource_is_named_that_is_full_on_larger_clusters_only():
    case = Case(FLOW, Cluster(MACHINE, 1, inf), "blocks", rollouts=8, trainers=1)
    asked = Point(case, seconds=1.0, limit="the core of a rollout", share=0.5)
    larger = Point(case.resize(9), seconds=1.0, limit="the core of a trainer", share=0.9)
    item = Forecast(make_way_cost(Path.REFERENCES), asked, larger)
    assert format_full(item) == "9 on 2 nodes: the core of a trainer"


def test_a_flow_without_rollouts_has_one_size():
    flow = parse_flow("a -> b: 1MB")
    way = make_way_cost(Path.STREAM, path_copies=1.0 * MB)
    [found] = forecast(Case(flow, Cluster(MACHINE, 1, inf), "pack"), [way])
    assert found.asked.seconds == pytest.approx(0.02)
    assert found.full_from == found.asked


@pytest.mark.parametrize("name", load_presets())
def test_the_driver_is_the_limit_of_each_preset(name):
    preset = load_presets()[name]
    stored = load_forecast()
    cluster = Cluster(typical_machine(stored), preset.nodes, 50e9)
    case = Case(preset.make_flow(), cluster, "blocks", preset.rollouts, preset.trainers)
    through_driver, *others = forecast(case, stored.ways)
    assert through_driver.way.path == Path.DRIVER
    assert through_driver.asked.limit == "the driver's core"
    for other in others:
        if other.way.path != Path.DRIVER:
            assert other.asked.seconds < through_driver.asked.seconds


def test_a_preset_moves_the_bytes_that_its_source_names():
    sizes = {}
    for name, preset in load_presets().items():
        case = Case(preset.make_flow(), Cluster(MACHINE, 1, 1.0), "pack", preset.rollouts, 1)
        sizes[name] = case.scaled_flow().bytes_per_iteration / 1e9
    assert sizes["router-replay"] == pytest.approx(6.7)
    assert sizes["weights-72b"] == pytest.approx(8 * 72 * 2, rel=1e-3)
    assert sizes["multimodal"] == pytest.approx(512 * 0.086, rel=1e-3)


def test_the_drivers_core_is_only_busy_with_a_call_while_it_submits_it():
    call = CallCost(seconds=3.0, core_seconds=4.0, submit_seconds=1.0, source="").to_call()
    assert (call.submit_seconds, call.start_seconds, call.start_core_seconds) == (1.0, 2.0, 3.0)


def test_the_stored_forecast_is_that_of_the_committed_records():
    """`make publish` writes it anew."""
    made = make_forecast()
    stored = load_forecast()
    assert {way.configuration for way in stored.ways} == {*OF_CAMPAIGNS, *OF_TABLES}
    assert made == stored


def test_a_missing_forecast_is_one_line(tmp_path):
    with pytest.raises(RecordError, match="make publish"):
        load_forecast(tmp_path / "none.json")


def test_simulated_times_are_as_near_to_the_measured_ones_as_the_page_says():
    errors = {}
    with_counted = {}
    for number, check in enumerate(load_forecast(FORECAST).checks):
        key = number, check.layout, check.configuration
        errors[key] = check.error
        with_counted[key] = check.error_with_counted_faults
    assert max(map(abs, errors.values())) < 0.65, errors
    # The two cores of all nodes limit gloo on the fastest link.
    on_fastest_link = [key for key in errors if "25 Gbit/s" in key[1] and key[2] == "torch gloo"]
    assert len(on_fastest_link) == 1
    far = [key for key in errors if abs(errors[key]) > 0.2 and key not in on_fastest_link]
    # One message over gloo, and references with kept memory from several actors to one.
    others = [key for key in far if key[2] not in ("rdt gloo", "store refs --retain-memory")]
    # Messages of 12 MB: their page faults depend on what processes have freed before.
    assert all(abs(with_counted[key]) <= 0.2 for key in others)
    assert all(layout.startswith("one node, 3 actors") for _, layout, _ in others)
    assert all(layout.startswith("one node") for _, layout, _ in far)
    assert len(far) <= 0.33 * len(errors), far


def test_simulated_times_of_several_nodes_are_of_several_links():
    checks = [check for check in load_forecast(FORECAST).checks if check.nodes > 1]
    rates = {round(check.link_rate * 8 / 1e9) for check in checks}
    assert rates == {1, 10, 25}
    assert {check.nodes for check in checks} == {2, 3}
