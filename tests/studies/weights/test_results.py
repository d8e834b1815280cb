"""Results of updates of weights: what a run keeps, and how records are compared and shown."""

import pytest
from made_records import make_record, make_run

from dataflow.analysis.links import link_seconds
from dataflow.analysis.result import Result, group_results, with_shared_references
from dataflow.commands.answer import is_asked_for
from dataflow.records.schema import Link, NodeCosts
from dataflow.report.sections import sections
from dataflow.studies.weights.updates import UpdateCollector, UpdateTimes

SMALL = {"flow": "weights", "model": "gpt2", "scale": 0.01}
FLAGS = ("--flow", "weights", "--model", "gpt2", "--model-scale", "0.01")


@pytest.mark.parametrize(("torn_reads", "expected"), [((0, 0), None), ((1, 2), "3 of 9 reads of served parameters")])
def test_torn_reads_fail_the_run_and_a_transfer_is_timed_on_the_drivers_clock(make_plan, torn_reads, expected):
    plan = make_plan("torch", "--transport", "gloo", *FLAGS)
    times = {name: UpdateTimes(1.0, 2.0, 3.0, 4.0) for name in plan.workers}
    for name, reads, torn in zip(("rollout-1", "rollout-2"), (4, 5), torn_reads, strict=True):
        times[name].reads, times[name].torn_reads = reads, torn
    collector = UpdateCollector(plan)
    collector.add(times, is_timed=True)
    offsets = {"trainer": 0.0, "rollout-1": 0.25, "rollout-2": 0.125}
    updates, failure = collector.result(lambda name, seconds: seconds + offsets[name])
    assert (updates.reads, updates.publish_seconds, updates.transfer_seconds) == (9, [3.0], [1.25])
    assert failure is None if expected is None else failure.startswith(expected)


def test_changed_weights_are_a_multiple_of_copies_of_all_weights_and_not_of_what_is_sent():
    runs = {
        "fields": make_run([1.0], memcpy_before_seconds=[0.2]),
        "indices": make_run([1.0], memcpy_before_seconds=[0.002], cold_copy_before_seconds=[0.01]),
    }
    everything, changes = (Result([make_record("refs", run, message=message, changed=0.01, **SMALL)])
                           for message, run in runs.items())  # fmt: skip
    assert [result.times_memcpy for result in with_shared_references([everything, changes])] == [5, 5]
    assert changes.times_memcpy is None and changes.times_cold_copy is None


def test_messages_of_several_tasks_of_an_actor_cross_one_after_the_other():
    nodes = {"driver": 0, "trainer": 0, "rollout-1": 1, "rollout-2": 1}
    run = make_run([20.0] * 3, nodes=nodes)
    record = make_record("gloo", run, runtime="torch", bucket_size=200_000, **SMALL)
    assert len(record.workload.edges) > 8
    sent = sum(edge.bytes for edge in record.workload.edges if edge.reader != "driver")
    run.links = [Link(0, 1, 1, sent, [10.0]), Link(1, 0, 1, 16, [0.0001])]
    assert link_seconds(Result([record])) == pytest.approx(10, rel=1e-3)


@pytest.mark.parametrize(("errors", "cell"), [
    ({"0": 0.5, "1": 0.0004}, "10"), ({"1": 0.0006}, "-"), ({"1": 0.0003, "2": 0.0003}, "-"),
])  # fmt: skip
def test_a_transfer_is_not_shown_if_its_clocks_are_wrong_by_more_than_a_twentieth(errors, cell):
    """The driver's node has the driver's clock, whatever its agent took to answer."""
    costs = {node: NodeCosts(clock_error_seconds=error) for node, error in errors.items()}
    parts = {"publish_seconds": [0.02], "transfer_seconds": [0.01], "install_seconds": [0.03], "stall_seconds": [0.04]}
    run = make_run([0.1] * 3, node_costs=costs, measured={"weights": parts})
    (section,) = sections(group_results([make_record("gloo", run, runtime="torch", table="weights", **SMALL)]))
    row = dict(zip(section.table.headers, section.table.cells[0], strict=True))
    assert (row["publish ms"], row["transfer ms"], row["install ms"]) == ("20", cell, "30")


@pytest.mark.parametrize(
    ("changes", "expected"), [({}, True), ({"bucket_size": 2**20, "message": "packed"}, True), ({"scale": 0.02}, False)]
)
def test_records_with_messages_of_every_size_and_form_answer(make_plan, changes, expected):
    result = Result([make_record("broadcast", [0.1], runtime="torch", **SMALL | changes)])
    assert is_asked_for(result, make_plan("torch", *FLAGS)) is expected
