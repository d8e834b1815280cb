"""Results and tables of updates of weights."""

import pytest
from made_records import make_record, make_run

from dataflow.analysis.links import link_seconds
from dataflow.analysis.result import Result, group_results
from dataflow.records.schema import Link, NodeCosts
from dataflow.report.sections import sections


@pytest.mark.parametrize(("errors", "cell"), [
    ({"0": 0.5, "1": 0.0004}, "10"), ({"1": 0.0006}, "-"), ({"1": 0.0003, "2": 0.0003}, "-"),
])  # fmt: skip
def test_a_transfer_is_not_shown_if_its_clocks_are_wrong_by_more_than_a_twentieth(errors, cell):
    """The driver's node has the driver's clock, whatever its agent took to answer."""
    costs = {node: NodeCosts(clock_error_seconds=error) for node, error in errors.items()}
    parts = {"publish_seconds": [0.02], "transfer_seconds": [0.01], "install_seconds": [0.03], "stall_seconds": [0.04]}
    run = make_run([0.1] * 3, node_costs=costs, measured={"weights": parts})
    record = make_record("gloo", run, runtime="torch", flow="weights", scale=0.01, table="weights")
    (section,) = sections(group_results([record]))
    (row,) = [dict(zip(section.table.headers, row, strict=True)) for row in section.table.cells]
    assert (row["publish ms"], row["transfer ms"], row["install ms"]) == ("20", cell, "30")


def test_messages_of_several_tasks_of_an_actor_cross_one_after_the_other():
    nodes = {"driver": 0, "trainer": 0, "rollout-1": 1, "rollout-2": 1}
    run = make_run([20.0] * 3, nodes=nodes)
    record = make_record("gloo", run, runtime="torch", flow="weights", scale=0.01, bucket_size=200_000)
    assert len(record.workload.edges) > 8
    sent = sum(edge.bytes for edge in record.workload.edges if edge.reader != "driver")
    run.links = [Link(0, 1, 1, sent, [10.0]), Link(1, 0, 1, 16, [0.0001])]
    assert link_seconds(Result([record])) == pytest.approx(10, rel=1e-3)
