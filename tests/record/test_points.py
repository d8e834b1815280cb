"""Records of sweeps: kept in one file, read as a record a point."""

from made_records import a_record, a_run, a_sweep

from common.analysis.results import results_of
from common.record import files
from common.record.points import points


def test_each_point_is_a_record_of_its_own_with_its_runs(tmp_path):
    sweep = a_sweep("refs", "payload", {2**20: [0.1, 0.1], 2**26: [0.5]}, flags={"zero_copy": True})
    sweep.runs.append(a_run([0.3], at={"payload": 2**26}, edges=sweep.runs[1].edges, order=7))
    files.create(tmp_path / "sweep.json", sweep)
    small, large = points(files.load(tmp_path / "sweep.json"))
    assert (small.row.sizes["payload"], large.row.sizes["payload"]) == (2**20, 2**26)
    assert [run.seconds for run in large.runs] == [[0.5], [0.3]]
    assert abs(large.bytes_per_trip / small.bytes_per_trip - 64) < 1e-3
    assert (small.sweep, small.row.flags) == ("", {"zero_copy": True})
    assert [result.record.bytes_per_trip for result in results_of([sweep])] == [2**20, 2**26]
    assert [result.flow.bytes_per_trip for result in results_of([sweep])] == [2**20, 2**26]


def test_trips_in_flight_are_a_flag_but_for_one_at_a_time():
    one, four = points(a_sweep("mapped", "in_flight", {1: [0.1], 4: [0.2]}, runtime="graph"))
    assert (one.row.flags, four.row.flags) == ({}, {"in_flight": 4})
    assert [result.name for result in results_of([one, four])] == ["graph mapped", "graph mapped --in-flight 4"]


def test_a_point_that_did_not_fit_is_told_and_the_others_stand():
    waived = a_run([], status="waived", reason="no memory")
    good, other = results_of([a_sweep("refs", "payload", {2**20: [0.1], 2**30: waived})])
    assert (good.status, other.status, other.failure) == ("ok", "waived", "waived, no memory")


def test_a_record_that_is_no_sweep_is_its_only_point():
    record = a_record("refs", [0.1])
    assert points(record) == [record]
