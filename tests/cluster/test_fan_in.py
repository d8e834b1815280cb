# SPDX-License-Identifier: Apache-2.0
"""More actors on one node: simulated with what the measured runs tell of their machine, and drawn with their times."""

import pytest
from made_records import make_record, make_run, write_record

from dataflow.cluster import fan_in
from dataflow.cluster.costs import load_forecast
from dataflow.cluster.fan_in import ACTORS, CONFIGURATIONS, MESSAGE_BYTES, simulate_lines
from dataflow.report.cluster_chart import fan_in_section

# A machine that copies 5 GB/s, and takes 2 µs per page fault.
BYTE_SECONDS = 2e-10


def make_runs(size, seconds):
    copying = size * BYTE_SECONDS
    copies = {
        "memcpy_before_seconds": [copying],
        "memcpy_after_seconds": [copying],
        "memcpy_all_cores_seconds": [copying],
        "cold_copy_before_seconds": [copying + 0.02],
        "cold_copy_after_seconds": [copying + 0.02],
        "cold_copy_faults": 10_000,
    }
    return [make_run([seconds, seconds * 1.1], **copies)]


@pytest.fixture
def write(tmp_path, monkeypatch):
    """write(actors, seconds, ...) records a run of references."""
    monkeypatch.setattr(fan_in, "PUBLISHED", tmp_path)

    def add(actors, seconds, transport="refs", **changes):
        sizes = {"actors": actors, "message_bytes": MESSAGE_BYTES} | changes
        runs = make_runs((actors - 1) * MESSAGE_BYTES, seconds)
        record = make_record(transport, *runs, flow="fan-in", **sizes)
        write_record(tmp_path / "fan-in" / f"{transport}-{actors}.json", record)

    return add


def test_the_machine_is_that_of_the_measured_runs(write):
    stored = load_forecast()
    write(8, 0.5)
    lines = {line.configuration: line for line in simulate_lines(fan_in.load_fan_in(), stored)}
    assert [*lines] == [*CONFIGURATIONS]
    way = next(way for way in stored.ways if way.configuration == "store refs")
    refs = lines["store refs"]
    rates = fan_in.Rates(BYTE_SECONDS, 2e-6)
    assert refs.simulated[8] == pytest.approx(fan_in.simulate_actors(8, way, rates))
    assert {*refs.simulated} == {*ACTORS} and [*refs.measured] == [8]
    assert refs.simulated[64] > refs.simulated[8] > refs.simulated[2]


def test_each_measured_number_of_actors_has_a_point_and_other_messages_have_none(write):
    write(2, 0.1)
    write(6, 0.3)
    write(8, 0.5, message_bytes=2**20)
    section = fan_in_section(load_forecast())
    lines = {line.name: line for line in section.chart.lines}
    assert [x for x, _ in lines["store refs"].measured] == [2, 6]
    assert [y for _, y in lines["store refs"].measured] == pytest.approx([105, 315])
    assert [x for x, _ in lines["store refs"].samples] == [2, 2, 6, 6]
    assert lines["torch gloo"].measured == []
    assert 6 in [x for x, _ in lines["store refs"].points]
    assert "of 2 measured times, with up to 6 actors, are simulated within 20 %" in section.sentence
    assert section.chart.measured_up_to == 6


def test_without_records_the_lines_are_of_the_median_machine_and_nothing_is_measured(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(fan_in, "PUBLISHED", tmp_path)
    section = fan_in_section(load_forecast())
    assert "the median machine of the campaigns" in section.sentence
    assert section.sentence.endswith("Nothing of it was measured.")
    assert {line.measured == [] for line in section.chart.lines} == {True}
