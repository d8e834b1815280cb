# SPDX-License-Identifier: Apache-2.0
"""Each machine is predicted from the others, and never from itself."""

import pytest
from made_records import write_campaign

from dataflow.analysis.campaigns import load_campaigns
from dataflow.analysis.left_out import predict_left_out
from dataflow.records.schema import ProcessCost

COPIES = 10
FAULTS = 1000  # per iteration
WARM = 0.1  # seconds of a copy of all bytes by all cores


def write_machine(folder, boot, speed, seconds):
    """Write a campaign of a machine that takes `speed` times as long for a copy, and 1 µs per page fault."""
    processes = {"driver": ProcessCost(minor_faults=FAULTS)}
    copies = {
        "memcpy_before_seconds": [WARM * speed],
        "memcpy_after_seconds": [WARM * speed],
        "memcpy_all_cores_seconds": [WARM * speed],
        "cold_copy_before_seconds": [WARM * speed + 0.01],
        "cold_copy_after_seconds": [WARM * speed + 0.01],
        "cold_copy_faults": 10_000,
    }
    environment = {"clock_code": "a", "boot": boot, "versions": {"ray": "2.60.0", "torch": "2"}}
    changes = {"processes": processes, **copies}
    times = [("store refs", {}, seconds, changes)]
    write_campaign(folder / boot, *times, environment=environment)


def seconds_on(speed):
    return COPIES * WARM * speed + FAULTS * 1e-6


@pytest.fixture
def write(tmp_path):
    """write(boot, speed, seconds) -> the campaigns so far."""

    def add(boot, speed, seconds):
        write_machine(tmp_path, boot, speed, seconds)
        return load_campaigns(tmp_path)

    return add


def test_a_machine_is_predicted_from_what_the_others_cost(write):
    write("a", 1.0, seconds_on(1.0))
    write("b", 2.0, seconds_on(2.0))
    campaigns = write("c", 0.5, 2 * seconds_on(0.5))
    found = {item.machine: item for item in predict_left_out(campaigns)}
    assert [*found] == ["a", "b", "c"]
    assert {item.configuration for item in found.values()} == {"store refs"}
    # Its own time, which is twice as long, is in no fit that predicts it.
    assert found["c"].predicted_seconds == pytest.approx(seconds_on(0.5), rel=0.02)
    assert found["c"].measured_seconds == pytest.approx(2 * seconds_on(0.5), rel=0.02)


def test_two_machines_are_too_few_because_one_is_left(write):
    write("a", 1.0, seconds_on(1.0))
    assert predict_left_out(write("b", 2.0, seconds_on(2.0))) == []


def test_times_that_the_others_do_not_explain_are_not_predicted(write):
    write("a", 1.0, seconds_on(1.0))
    write("b", 2.0, 4 * seconds_on(2.0))
    campaigns = write("c", 0.5, seconds_on(0.5))
    found = {item.machine: item.predicted_seconds for item in predict_left_out(campaigns)}
    assert found["c"] is None and found["a"] is None
    assert found["b"] == pytest.approx(seconds_on(2.0), rel=0.02)
