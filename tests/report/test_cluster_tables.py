"""Check the tables of several nodes."""

import pytest
from made_records import make_record, make_run

from dataflow.analysis.comparison import link_seconds
from dataflow.analysis.result import Result, group_results
from dataflow.records.schema import Link, NodeCosts
from dataflow.report.sections import sections

NODES = {"driver": 0, "policy": 0, "reference": 1, "reward": 1}
MIB = 2**20
LINKS = [Link(0, 1, 1, 96 * MIB, [0.02, 0.03]), Link(0, 1, 4, 96 * MIB, [0.05]), Link(1, 0, 1, 160 * MIB, [0.001])]


def cells_of(section):
    return [dict(zip(section.table.headers, cells, strict=True)) for cells in section.table.cells]


def placed_run(seconds):
    costs = {"0": NodeCosts(busy_cores=1.5), "1": NodeCosts(busy_cores=0.5)}
    return make_run([seconds] * 3, nodes=NODES, links=LINKS, node_costs=costs)


def test_transports_are_compared_with_the_link_alone():
    layout = {"placement": "spread", "existing_cluster": True, "place": "reference=1,reward=1", "link": "10 Gbit/s"}
    packed = make_run([0.01] * 3, nodes=dict.fromkeys(NODES, 0))
    records = [
        make_record("refs", placed_run(0.1), table="cluster", layout=layout),
        make_record("shm", placed_run(0.05), runtime="graph", table="cluster", layout=layout),
        make_record("refs", packed, table="cluster", layout={"existing_cluster": True, "link": "10 Gbit/s"}),
    ]
    (section,) = sections(group_results(records))
    rows = {(row["layout"], row["configuration"]): row for row in cells_of(section)}
    assert {key: row["x link"] for key, row in rows.items()} == {
        ("2 nodes, 10 Gbit/s", "store refs"): "3.85", ("2 nodes, 10 Gbit/s", "graph shm"): "1.92",
        ("all actors on the driver's node", "store refs"): "-",
    }  # fmt: skip
    row = rows["2 nodes, 10 Gbit/s", "graph shm"]
    headers = ("ms of the link alone", "crosses the links", "busy cores (largest of all nodes)")
    assert [row[header] for header in headers] == ["26", "256 MiB", "1.5"]


@pytest.mark.parametrize(("in_flight", "seconds"), [
    # The policy sends one message to node 1. With a reference of its own on node 2, the reward model waits for it.
    (1, {"reference": 1, "reward": 1, "total": 3.0 + 7.0}), (2, {"reference": 1, "reward": 1, "total": 7.0}),
    (1, {"reference": 2, "reward": 1, "total": 1.5 + 11.0 + 7.0}),
])  # fmt: skip
def test_nodes_send_at_the_same_time_only_if_inputs_or_iterations_allow_it(in_flight, seconds):
    total = seconds.pop("total")
    links = [Link(0, 1, 1, 96 * MIB, [3.0, 4.0, 2.0]), Link(0, 1, 4, 96 * MIB, [5.0]),
             Link(1, 0, 1, 160 * MIB, [7.0]), Link(0, 2, 1, 96 * MIB, [1.5]),
             Link(2, 1, 1, 64 * MIB, [11.0])]  # fmt: skip
    run = make_run([9.0] * 3, nodes=NODES | seconds, links=links, group_seconds=[9.0])
    result = Result([make_record("refs", run, flags={"in_flight": in_flight})])
    assert link_seconds(result) == pytest.approx(total)


@pytest.mark.parametrize(("runtime", "transport", "flags", "milliseconds", "crosses", "times"), [
    ("store", "refs", {}, 1393, 256, 6.30), ("store", "refs", {"zero_copy": True}, 354.5, 256, 1.60),
    ("graph", "shm", {}, 4974, 256, 22.5), ("torch", "gloo", {}, 341.5, 352, 1.12),
    ("rdt", "gloo", {}, 447.9, 352, 1.47),
])  # fmt: skip
def test_a_message_crosses_once_per_node_or_once_per_reader(
    runtime, transport, flags, milliseconds, crosses, times
):  # fmt: skip
    """At 10 Gbit/s. The policy's message has two readers on node 1, for which the link was timed twice."""
    links = [Link(0, 1, 1, 192 * MIB, [0.1662]), Link(1, 0, 1, 160 * MIB, [0.1381])]
    nodes = NODES | ({"proxy": 0} if runtime == "rdt" else {})
    run = make_run([milliseconds / 1e3] * 3, nodes=nodes, links=links, readers_own_a_copy=not flags)
    layout = {"placement": "spread", "existing_cluster": True, "place": "reference=1,reward=1"}
    record = make_record(transport, run, runtime=runtime, table="cluster", flags=flags, layout=layout)
    (section,) = sections(group_results([record]))
    (row,) = cells_of(section)
    assert (float(row["x link"]), row["crosses the links"]) == (pytest.approx(times, rel=0.002), f"{crosses} MiB")


SEEN, REQUESTED = "object store, reference", "object store, reference (as requested)"


@pytest.mark.parametrize(("paths", "cell"), [
    ((SEEN, SEEN), None), ((REQUESTED, REQUESTED), "as requested"), ((SEEN, REQUESTED), "partly as requested"),
])  # fmt: skip
def test_the_table_says_which_data_paths_nothing_has_shown(paths, cell):
    flow = "driver -> a: 1MB; a -> b: 1MB"  # and an acknowledgement, whose path does not count
    run = make_run([0.1], data_paths={"driver -> a": paths[0], "a -> b": paths[1], "b -> driver": REQUESTED})
    (section,) = sections(group_results([make_record("refs", run, flow=flow)]))
    assert cells_of(section)[0].get("data path") == cell


@pytest.mark.parametrize(("error", "dashes"), [(0.0, set()), (0.0003, {"make"}), (0.003, {"make", "write"})])
def test_the_stages_of_a_trace_are_not_shown_if_clocks_cannot_tell_them(error, dashes):
    spans, lengths, begin = [], {"make": 3e3, "write": 17e3, "wait": 80e3}, 0.0
    for stage, length in lengths.items():
        spans.append(("driver", 0, stage, 0, begin, begin + length, 0))
        begin += length
    costs = {"1": NodeCosts(clock_error_seconds=error)}
    run = make_run([0.1], spans=spans, iterations_us=[(0.0, 100e3)], nodes=NODES, node_costs=costs)
    built = sections(group_results([make_record("memcpy", run, runtime="torch", table="cluster-stages", traced=True)]))
    (by_stage,) = [section for section in built if section.title.startswith("Milliseconds by stage")]
    (row,) = cells_of(by_stage)
    assert {stage for stage in lengths if row[stage] == "-"} == dashes
