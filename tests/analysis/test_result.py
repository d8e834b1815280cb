# SPDX-License-Identifier: Apache-2.0
"""Test what is computed of a configuration and its runs, and what limits the trust in it."""

import msgspec
import pytest
from made_records import make_record, make_run

from dataflow.analysis.attempts import ALL_ATTEMPTS
from dataflow.analysis.comparison import Pair
from dataflow.analysis.result import Result, group_results
from dataflow.analysis.warnings import warnings
from dataflow.measure.supervisor import MAX_REPEATS
from dataflow.records.schema import NodeCosts, ProcessCost, RecordedEdge, Run, record_edges
from dataflow.report.provenance import provenance
from dataflow.report.sections import Group

PEERS = pytest.mark.study("external_systems")


def make_result(*runs, transport="refs", **changes):
    return Result([make_record(transport, *runs, **changes)])


def test_runs_of_equal_records_are_one_result_and_other_records_are_apart():
    changes = ({"traced": True}, {"table": "paired"}, {"batch_size": 2}, {"device": "cuda"},
               {"layout": {"placement": "spread"}}, {"flags": {"threads": 2}})  # fmt: skip
    records = [make_record("refs", [1.0], **change) for change in ({}, *changes)]
    records += [
        make_record("refs", [3.0], [2.0]),
        make_record("refs", make_run([1.0], pair="a")),
        make_record("refs"),
    ]
    results = group_results(records)
    assert len(results) == 8
    (merged,) = [result for result in results if len(result.records) == 2]
    assert merged.run_seconds == [1.0, 3.0, 2.0] and merged.typical_seconds == pytest.approx(
        6 ** (1 / 3)
    )


@pytest.mark.parametrize(("changes", "words"), [
    ({"flags": {"copy_out": True, "threads": 2}}, " --copy-out --threads 2"),
    ({"message": "packed"}, " --message packed"), ({"message": "fields"}, " --message fields"),
    ({"message": "fields", "as_sent": True}, " --as-sent"), ({"fields": 8}, " --fields 8"),
    ({"flow": "grpo"}, ""), ({"device": "cuda"}, " --device cuda"),
    ({"layout": {"placement": "spread", "existing_cluster": True}}, " --address --placement spread"),
])  # fmt: skip
def test_the_label_is_the_command_line(changes, words):
    assert make_result([1.0], **changes).label == f"store refs{words}"


def test_the_flow_is_that_of_the_catalogue_only_if_its_edges_are_those_of_the_record(tmp_path):
    record = make_record("refs", [1.0], batch_size=4)
    assert (Result([record]).flow.title, len(Result([record]).flow.edges)) == ("online DPO", 5)
    (tmp_path / "flow.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    edges = (RecordedEdge("driver", "policy", 16), *record.workload.edges[1:])
    others = ({"flow": "of-tomorrow"}, {"sizes": {"pages": 3}}, {"flow": f"{tmp_path}/flow.py:f"})
    for changes in ({"edges": edges}, *others):
        workload = msgspec.structs.replace(record.workload, **changes)
        flow = Result([msgspec.structs.replace(record, workload=workload)]).flow
        assert flow.title == flow.name == workload.flow
        assert record_edges(flow) == workload.edges
    assert not (tmp_path / "executed").exists()


def test_a_skipped_run_of_an_older_record_advises_no_flag_that_is_gone():
    reason = "cuda-ipc needs 1 GPUs and this machine has 0: use another --transport"
    skipped = make_result(make_run([], status="skipped", reason=reason))
    assert skipped.failure == "skipped: cuda-ipc needs 1 GPU and this machine has 0"


def test_the_ok_runs_count_and_without_any_the_failed_ones():
    failed, skipped = (
        make_run([9.0], status="failed", reason="died"),
        make_run([], status="skipped", reason="no GPU"),
    )
    mixed = make_result([1.0], failed, skipped)
    assert (mixed.status, mixed.seconds, mixed.failure) == ("ok", [1.0], "2 of 3 runs failed: died")
    assert (make_result(skipped, failed).status, make_result(skipped, failed).seconds) == (
        "failed",
        [9.0],
    )
    assert (make_result(skipped).status, make_result(skipped).failure) == (
        "skipped",
        "skipped: no GPU",
    )
    assert make_result([1.0]).failure is None
    assert make_result([1.0], make_run([], status="failed", wrong_bytes=3)).wrong_bytes == 3


@pytest.mark.parametrize(("change", "status", "allowed_seconds"), [
    ({"settled": False}, "not settled", []),
    ({"other_cores": 0.31, "memcpy_before_seconds": [7.0] * 5}, "disturbed", [9.0]),
    ({"steal_cores": 0.11, "memcpy_before_seconds": [7.0] * 5}, "disturbed", [9.0]),
])  # fmt: skip
def test_disturbed_and_unsettled_runs_do_not_count_unless_all_records_allow_it(
    change, status, allowed_seconds
):
    left_out = make_run([9.0], **change)
    mixed = make_result([1.0], left_out, [2.0])
    assert (mixed.status, mixed.run_seconds, mixed.seconds) == ("ok", [1.0, 2.0], [1.0, 2.0])
    assert mixed.memcpy_seconds == 0.02
    alone = make_result(left_out, left_out)
    assert (alone.status, alone.run_seconds, alone.failure.partition(":")[0]) == (
        status,
        [],
        status,
    )
    allowed = make_record("refs", left_out, arguments={"allow_disturbed": True})
    assert Result([allowed]).run_seconds == allowed_seconds
    assert Result([allowed, make_record("refs", [1.0], left_out)]).run_seconds == [1.0]


def attempts(order, *cores, seconds=9.0):
    """Return a run and its repetitions: all have the same position."""
    return [make_run([seconds], order=order, other_cores=used) for used in cores]


def test_a_run_that_was_disturbed_as_often_as_it_is_repeated_counts_if_there_is_no_other():
    result = make_result(*attempts(0, 1.0, 1.1, 1.2), *attempts(5, 2.0, 2.1))
    assert (result.status, result.run_seconds, result.is_disturbed) == ("ok", [9.0], True)
    assert not result.can_be_ranked
    assert "are not ranked: measure again on an idle machine" in result.failure
    assert "verdict" in Pair(result, make_result([1.0], [1.1], [1.2])).ratio.verdict
    assert Pair(result, result).ratio.interval is None


def test_a_disturbed_run_never_counts_where_a_quiet_one_exists():
    result = make_result(*attempts(0, 1.0, 1.1, 1.2), *attempts(5, 0.0, seconds=2.0))
    assert (result.run_seconds, result.is_disturbed) == ([2.0], False)


def test_a_run_and_its_repetitions_are_one_run():
    result = make_result(*attempts(3, 1.0, 0.0), *attempts(5, 1.0, 1.0))
    assert [len(planned.attempts) for planned in result.planned_runs] == [2, 2]
    (notes,) = [line for line in provenance([result]) if "Boots" in line]
    assert "Measured again, because they were disturbed: 2 of 2 runs." in notes
    assert "Left out, because they were disturbed: 1 of 2 runs." in notes
    left_out = make_result(*attempts(3, 1.0, 1.0), *attempts(5, 1.0, 1.0))
    assert "none of 2 runs counts (repeated 2 times), as other programs" in left_out.failure
    allowed = make_record("refs", *attempts(0, 1.0, 1.0), arguments={"allow_disturbed": True})
    assert len(Result([allowed]).planned_runs) == 2  # nothing was repeated


def test_a_run_is_repeated_as_often_as_its_attempts_are_counted():
    assert ALL_ATTEMPTS == 1 + MAX_REPEATS


def test_a_reference_is_no_multiple_of_itself():
    assert make_result([0.5], runtime="torch", transport="memcpy").times_memcpy is None
    assert make_result([0.5]).times_memcpy == 25


def test_numbers_per_iteration():
    counts = {"driver": (3, 30), "policy": (2, 60)}
    costs = {
        name: ProcessCost(peak_memory_bytes=peak, minor_faults=faults)
        for name, (peak, faults) in counts.items()
    }
    run = make_run([1.0, 2.0, 3.0], processes=costs, cpu_seconds=9.0, stored_bytes=30, spilled_bytes=4,
                   group_seconds=[7.5], memcpy_after_seconds=[0.06],
                   null_transport_seconds=[0.1, 0.2, 9.0])  # fmt: skip
    result = make_result(run, flags={"check_every": 3, "in_flight": 2})
    assert (
        result.typical_seconds == 2.5
    )  # per iteration of a group, because latencies include waiting
    assert result.overhead_share == pytest.approx(0.2 / 2.5)
    assert make_result([1.0]).overhead_share is None
    assert (result.cpu_seconds_per_iteration, result.spilled_bytes, result.first_seconds) == (
        3,
        4,
        [5.0],
    )
    assert (result.in_flight, result.check_every, result.peak_memory_bytes) == (2, 3, 5)
    assert result.times_memcpy == pytest.approx(2.5 / 0.04)
    assert (result.faults_per_iteration, make_result([1.0]).faults_per_iteration) == (30, None)
    numbers = [
        float(number) for number in range(1, 21)
    ]  # as few as have a 95th percentile, and one less
    assert (make_result(numbers).p95_seconds, make_result(numbers[1:]).p95_seconds) == (
        pytest.approx(19.05),
        None,
    )
    grouped = make_run([9.0] * 40, group_seconds=[2 * number for number in numbers])
    assert make_result(grouped, flags={"in_flight": 2}).p95_seconds == pytest.approx(19.05)
    partial = make_run([1.0] * 5, group_seconds=[4.0, 4.4, 2.1])
    for in_flight in (1, 2):
        flags = {"check_every": 2, "in_flight": in_flight}
        assert make_result(partial, flags=flags).typical_seconds == pytest.approx(
            2.1
        )  # 10.5 s for 5 iterations
    assert make_result(run, flags={"in_flight": 2}).check_every == 2
    assert make_result(run, make_run([1.0], cpu_seconds=None)).cpu_seconds_per_iteration is None


@pytest.mark.parametrize(("name", "changes", "expected"), [
    ("graph mapped", {}, True), ("torch multiprocessing", {}, True), ("torch mapped", {"message": "fields"}, True),
    ("torch mapped", {"flags": {"copy_out": True}}, True), ("torch mapped", {"message": "packed"}, False),
    ("torch mapped", {"flags": {"copy_in": True, "copy_out": True}}, False),
    ("graph zero-copy", {}, False), ("store refs", {"flags": {"zero_copy": True}}, False),
    ("graph nixl-read", {"flags": {"keep": True}}, True), ("graph nixl-read", {"message": "packed"}, False),
    # It can also send what it has not registered before (--registration none): docs/method.md compares both.
    ("rdt nixl", {}, False),
    pytest.param("peers nixl-read", {}, True, marks=PEERS), pytest.param("peers nixl-write", {}, True, marks=PEERS),
    pytest.param("peers nixl-read-thread", {}, True, marks=PEERS),
    pytest.param("peers zmq-ipc", {}, False, marks=PEERS),
])  # fmt: skip
def test_a_producer_writes_in_place_only_into_memory_of_the_transport_and_without_a_copy_in_the_clock(
    name, changes, expected
):
    runtime, transport = name.split()
    assert (
        make_result([1.0], runtime=runtime, transport=transport, **changes).producer_writes_in_place
        is expected
    )


def test_results_with_as_many_threads_share_their_references_and_views_are_no_multiple_of_a_copy():
    def make(memcpy, cold, batch_size=None, owns=True, **flags):
        run = make_run(
            [1.0],
            memcpy_before_seconds=memcpy,
            cold_copy_before_seconds=cold,
            readers_own_a_copy=owns,
        )
        return make_result(run, flags=flags, **({"batch_size": batch_size} if batch_size else {}))

    copy, view = make([0.04], [0.2]), make([0.02], [0.4], owns=False)
    shared = Group(
        [copy, view, make([0.01], [0.1], threads=2), make([0.001], [], batch_size=2)], []
    ).results
    assert [result.memcpy_seconds for result in shared] == [
        pytest.approx(0.03),
        pytest.approx(0.03),
        0.01,
        0.001,
    ]
    assert [r.multiple_of(r.cold_copy_seconds) for r in shared] == [
        pytest.approx(1 / 0.3),
        None,
        10,
        None,
    ]
    assert (
        shared[1].times_memcpy is None
        and Group([make([], [])], []).results[0].memcpy_seconds is None
    )


PASSES = {
    "memcpy_before_seconds": [0.2, 0.3],
    "memcpy_after_seconds": [0.25],
    "memcpy_all_cores_seconds": [0.09],
}
SHARED = "driver -> a: 8B; a -> b, c: 1MB"  # one read and two writes are three quarters of the bytes of two copies


@pytest.mark.parametrize(("seconds", "changes", "expected"), [
    ([0.1] * 3, {"runtime": "torch", "transport": "memcpy"}, "impossible"),
    ([0.1] * 3, {}, "ok"),  # its actors can copy at the same time
    ([0.07] * 3, {}, "impossible"), ([0.07] * 2, {}, "ok"), ([0.07, 0.07, 0.07, 0.3], {}, "ok"),
    ([0.065] * 3, {"flow": SHARED}, "ok"), ([0.055] * 3, {"flow": SHARED}, "impossible"),
])  # fmt: skip
def test_times_below_those_of_copies_are_impossible(seconds, changes, expected):
    copies = [make_run([time], **PASSES) for time in seconds]
    views = [make_run([time], readers_own_a_copy=False, **PASSES) for time in seconds]
    result = make_result(*copies, **changes)
    assert (result.status, make_result(*views, **changes).status) == (expected, "ok")
    assert ("find out which bytes were not copied" in str(result.failure)) == (
        expected == "impossible"
    )


@pytest.mark.parametrize(("seconds", "changes", "words"), [
    ([0.1] * 6, {}, ""), ([0.1] * 6, {"other_cores": 1.2}, "other programs used 1.2 cores"),
    ([0.1] * 6, {"steal_cores": 0.7}, "the hypervisor took 0.7 cores"),
    ([0.1] * 6, {"settled": False}, "the times still changed or the page faults still fell"),
    ([0.1] * 6, {"other_cores": 0.3, "steal_cores": 0.1}, ""),
    ([0.1] * 6, {"memcpy_after_seconds": [0.04]}, "the memcpy time changed from 20 to 40 ms"),
    ([0.1] * 6, {"memcpy_before_seconds": [0.004], "memcpy_after_seconds": [0.008]}, ""),  # copies within caches
    ([0.1] * 6, {"memcpy_after_seconds": [0.04, 0.021]}, ""),  # a single slow pass is no slower machine
    ([0.1, 0.2], {}, ""), ([0.1] * 6, {"spilled_bytes": 2**20}, "1 MiB were spilled"),
    ([0.1], {"null_transport_seconds": [0.05]}, "50.0% of an iteration is"),
    ([0.01] * 6, {}, "takes 0.49 times the memcpy time"),
    ([0.0191] * 6, {}, ""),  # copies were measured at another time
    ([0.01] * 6, {"memcpy_all_cores_seconds": [0.011]}, ""),  # two readers copy at the same time
    ([0.1], {"null_transport_seconds": [0.004]}, ""), ([], {"status": "failed"}, ""),
])  # fmt: skip
def test_a_warning_names_what_limits_the_trust(seconds, changes, words):
    quiet = {"memcpy_before_seconds": [0.02], "memcpy_after_seconds": [0.021], "memcpy_all_cores_seconds": [0.0205],
             "processes": {}}  # fmt: skip
    lines = warnings(make_result(make_run(seconds, **quiet | changes)))
    assert len(lines) == bool(words) and words in "".join(lines)


@pytest.mark.parametrize(
    ("other_cores", "idle_cores", "is_disturbed"),
    [
        (0.31, None, True),  # older records do not say how many cores were idle
        (0.31, 1.0, True),
        (0.5, 5.1, False),  # kubelet and monitoring on a larger machine
        (17.0, 180.0, False),
        (19.0, 180.0, True),
    ],
)
def test_other_programs_disturb_a_run_by_the_cores_that_are_left_idle(
    other_cores, idle_cores, is_disturbed
):
    run = Run(other_cores=other_cores, idle_cores=idle_cores)
    assert bool(run.disturbance) == is_disturbed


def test_the_hypervisor_of_any_node_disturbs_a_run():
    assert not Run(node_costs={"1": NodeCosts(steal_cores=0.1)}).disturbance
    run = Run(node_costs={"1": NodeCosts(steal_cores=0.4)})
    assert run.disturbance == "the hypervisor took 0.4 cores"
