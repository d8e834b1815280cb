# SPDX-License-Identifier: Apache-2.0
"""Test how long a command is expected to take, from the runs of campaigns."""

from datetime import UTC, datetime, timedelta

import pytest
from made_records import make_record, make_run, write_record

from dataflow.plan.command_line import plan_configuration
from dataflow.plan.durations import Durations

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
pytestmark = pytest.mark.usefixtures("no_gpu")


def make_campaign(folder, *measured):
    """Write one record per measured run: its transport, its flow, when it starts (s), and its iterations."""
    for position, (transport, flow, start, seconds) in enumerate(measured):
        started_at = (BEGIN + timedelta(seconds=start)).isoformat(timespec="seconds")
        changes = {"first_seconds": 2.0, "warmup_seconds": [1.0]}
        run = make_run(seconds, started_at=started_at, order=position, **changes)
        write_record(folder / f"{position}.json", make_record(transport, run, flow=flow))
    return folder


def plan(configuration, **given):
    ((planned, _),) = plan_configuration(configuration, given)
    return planned


@pytest.fixture
def durations(tmp_path):
    """The first run takes 20 s: 5 s for its iterations and 15 s for all else; the second one 40 s, of which 30 s."""
    make_campaign(
        tmp_path / "1-a",
        ("refs", "online-dpo", 0, [1.0, 1.0]),
        ("bytes", "online-dpo", 20, [3.5, 3.5]),
        ("refs", "round-trip", 60, [0.5, 0.5]),
        ("bytes", "round-trip", 70, [0.5, 0.5]),
    )
    return Durations(tmp_path)


def test_a_run_takes_its_iterations_and_the_rest_of_the_time_until_the_next_run(durations):
    refs = plan("store refs", iterations=10)
    assert durations.iterations_seconds(refs) == 2 + 1 + 10 * 1
    assert durations.other_seconds(refs) == 15
    text = durations.describe_total([refs, refs])
    assert text.startswith("expected time: about 56 s for 2 runs with start and end")
    assert text.endswith("; longer if other programs disturb it")
    assert "not known" not in text


def test_an_unknown_workload_is_started_as_the_smallest_one_of_its_runtime(durations):
    own = plan("store refs", flow="a -> b: 8MB")
    assert durations.iterations_seconds(own) is None
    assert durations.other_seconds(own) == 10 - 4
    refs = plan("store refs", iterations=10)
    assert "plus the iterations of 1 of them, whose time" in durations.describe_total([refs, own])
    assert "plus the iterations, whose time" in durations.describe_total([own, own])


def test_nothing_is_expected_of_a_runtime_that_no_campaign_has_measured(durations, tmp_path):
    assert durations.describe_total([plan("torch gloo")]) == ""
    assert durations.describe_total([]) == ""
    assert Durations(tmp_path / "nothing").describe_total([plan("store refs")]) == ""
