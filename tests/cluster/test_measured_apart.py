# SPDX-License-Identifier: Apache-2.0
"""Derive what calls take, and how many page faults smaller messages have, from the committed records."""

import pytest

from dataflow.analysis.result import group_results
from dataflow.cluster import measured_apart
from dataflow.cluster.measured_apart import (
    REFERENCES,
    calls_of_direct,
    calls_of_store,
    count_calls,
    count_messages,
    driver_seconds_at_most,
    faults_of_smaller,
    find_hops,
    mean_seconds,
    time_of_call,
    time_of_one_more,
    time_of_submitting,
)
from tests.made_records import make_record, make_run

MIB = 2**20
PAGE = 4096
US = 1e-6


def use_tables(monkeypatch, **tables):
    """Let published tables have these records."""
    results = {name: group_results(records) for name, records in tables.items()}
    monkeypatch.setattr(measured_apart, "load_table", results.__getitem__)


def hops(flow, seconds, **sizes):
    return make_record("refs", [seconds], flow=flow, **sizes)


def test_a_call_takes_half_of_the_time_of_a_message_without_bytes(monkeypatch):
    records = []
    for flags, at_zero in (({}, 0.006), ({"retain_memory": True}, 0.008)):
        for mib in (1, 4, 16):
            # The line is that of the two smallest sizes.
            seconds = at_zero + mib * 0.001 if mib < 16 else 1.0
            flow = f"producer -> consumer: {mib}MiB"
            records.append(make_record("refs", [seconds], flow=flow, flags=flags))
    use_tables(monkeypatch, **{"retained-memory": records})
    assert time_of_call(mean_seconds) == pytest.approx((0.003 + 0.004) / 2, rel=1e-4)


def test_one_call_more_is_the_difference_to_a_round_trip(monkeypatch):
    use_tables(monkeypatch, hops=[hops("round-trip", 0.002), hops("scatter-gather", 0.008)])
    several = find_hops(REFERENCES, "scatter-gather")
    assert time_of_one_more(several, mean_seconds, count_calls) == pytest.approx(0.006 / 3)
    # Two messages each, of which a round trip has two.
    assert time_of_one_more(several, mean_seconds, count_messages) == pytest.approx(0.006 / 6)


def test_submitting_has_the_time_of_all_threads_of_the_driver_for_each_call(monkeypatch):
    spans = [
        ("driver", 0, "submit", 0, 0.0, 100.0, 0),
        ("driver", 0, "submit", 0, 200.0, 300.0, 0),
        ("driver", 1, "submit", 0, 0.0, 400.0, 0),
        ("driver", 0, "wait", 0, 300.0, 900.0, 0),
        ("policy", 0, "submit", 0, 0.0, 900.0, 0),
    ]
    record = make_record("refs", make_run([0.01], spans=spans), traced=True)
    use_tables(monkeypatch, stages=[record])
    assert time_of_submitting(REFERENCES, lambda _: 2) == pytest.approx((100 + 100 + 400) / 2 * US)


def test_committed_records_say_what_calls_take():
    store = calls_of_store().call
    direct = calls_of_direct()
    assert direct.call == store
    # A round trip is a call whose messages travel in it.
    round_trip = mean_seconds(find_hops(REFERENCES, "round-trip"))
    assert round_trip < store.seconds < 2 * round_trip
    assert store.submit_seconds < driver_seconds_at_most() < store.seconds
    assert store.seconds < direct.reading_call.seconds
    assert direct.reading_call.submit_seconds < direct.reading_call.seconds


def test_committed_records_say_how_many_page_faults_smaller_messages_have():
    """Each end makes two copies. At 1 MiB, their memory is used again."""
    faults = {item.message_bytes: item.faults * PAGE for item in faults_of_smaller(False, 32 * MIB)}
    assert [*faults] == [MIB, 4 * MIB, 8 * MIB, 12 * MIB, 16 * MIB]
    assert faults.pop(MIB) < 1.5
    assert all(1.5 < count < 2.0 for count in faults.values())
    kept = {item.message_bytes: item.faults * PAGE for item in faults_of_smaller(True, 32 * MIB)}
    assert max(kept.values()) < 0.3
