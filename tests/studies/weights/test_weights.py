# SPDX-License-Identifier: Apache-2.0
"""Updates of weights: the flow, runs over transports of every kind, and how records are compared and shown."""

import pytest
from made_records import make_record, make_run, rows_of

from dataflow.analysis.result import group_results
from dataflow.flows.catalogue import build_flow
from dataflow.flows.flow import DRIVER
from dataflow.records.schema import NodeCosts
from dataflow.report.sections import sections
from dataflow.studies.weights.flow import changes_flow
from dataflow.studies.weights.updates import UpdateTimes, collect_updates, updates_of

SMALL = {"flow": "weights", "model": "gpt2", "model_scale": 0.01}
FLAGS = ("--flow", "weights", "--model", "gpt2", "--model-scale", "0.01")
LONG = pytest.mark.long


def weights(model, **sizes):
    """Return a flow of weights, and its messages of weights."""
    flow = build_flow("weights", {"model": model, **sizes})
    return flow, [message for message in flow.messages if message.is_parameters]


def test_buckets_hold_all_tensors_in_order_and_at_most_their_size():
    _, (whole,) = weights("gpt2")
    cut, messages = weights("gpt2", bucket_size=50 * 2**20)
    assert [name for message in messages for name in message.names] == whole.names
    assert len(messages) > 5
    assert all(message.bytes <= 50 * 2**20 or len(message.fields) == 1 for message in messages)
    sending = [task.reads for task in cut.tasks if task.actor == "trainer"]
    assert sending[:2] == [(DRIVER,), ("trainer.0",)]
    assert len(weights("gpt2", bucket_size=1)[1]) == len(whole.fields) == 148
    assert cut.slots(1) == 2  # the versions that alternate


def test_senders_share_the_tensors_and_shards_have_one_reader_each():
    flow, messages = weights("opt-350m", senders=2)
    parts = [message.bytes for message in messages]
    assert sum(parts) == 662_392_832 and max(parts) < 1.1 * min(parts)
    assert {str(edge) for edge in flow.edges_to_actor("rollout-1")} == {
        "trainer-1 -> rollout-1.0", "trainer-2 -> rollout-1.1"}  # fmt: skip
    sharded, _ = weights("opt-350m", senders=2, sharded=True)
    assert [str(edge) for edge in sharded.edges if edge.message.is_parameters] == [
        "trainer-1 -> rollout-1", "trainer-2 -> rollout-2"]  # fmt: skip


def test_adapters_and_changes_have_the_textbook_bytes():
    """opt-350m: rank x (18,432 rows and columns per layer) x 24 layers x 2 bytes. A change: 2 bytes, an index of 4."""
    _, (message,) = weights("opt-350m", lora_rank=8)
    assert message.bytes == 8 * 18_432 * 24 * 2
    for share in (0.001, 0.33):
        flow, messages = weights("qwen2.5-0.5b", changed=share)
        items = sum(message.bytes for message in messages) / 2
        sent = sum(message.bytes for message in changes_flow(flow).messages)
        assert sent == pytest.approx(6 * items / round(1 / share), rel=0.01)


@pytest.mark.parametrize(("sizes", "error"), [
    ({"model": "gpt3"}, "unknown --model gpt3"),
    ({"senders": 2, "receivers": 3, "sharded": True}, "the same number of both"),
    ({"model": "1GiB", "senders": 2}, "give fewer senders"),
    ({"model": "qwen3-30b-a3b", "bucket_size": 1}, "give a larger one"),
    ({"model": "1GiB", "lora_rank": 4}, "no matrices"),
])  # fmt: skip
def test_sizes_that_do_not_fit_are_rejected(sizes, error):
    with pytest.raises(ValueError, match=error):
        build_flow("weights", sizes)


@pytest.mark.parametrize(("configuration", "flags"), [
    pytest.param("store refs", "--copy-out --bucket-size 8MiB", marks=LONG),
    pytest.param("graph zero-copy", "", marks=LONG),
    ("torch broadcast", "--bucket-size 8MiB"),
    pytest.param("torch gloo", "--senders 2 --sharded --message packed", marks=LONG),
    pytest.param("torch mapped", "--copy-in --copy-out", marks=LONG),
])  # fmt: skip
def test_updates_are_verified_and_timed_part_by_part(measure, configuration, flags):
    model = (
        "--flow",
        "weights",
        "--model",
        "gpt2",
        "--model-scale",
        "0.05",
        "--iterations",
        "4",
        "--warmup",
        "1",
    )
    record = measure(configuration, *model, *flags.split())
    updates = updates_of(record.runs[0])
    for parts in (
        updates.publish_seconds,
        updates.transfer_seconds,
        updates.install_seconds,
        updates.stall_seconds,
    ):
        assert len(parts) == 4 and min(parts) > 0
    assert all(map(float.__le__, updates.stall_seconds, record.runs[0].seconds))
    assert updates.reads > 0 and updates.torn_reads == 0


@LONG
def test_parameters_that_are_overwritten_while_they_are_served_tear(run_script):
    """The receiver copies without stopping its engine."""
    model = ("--flow", "weights", "--model", "256MiB", "--iterations", "4", "--warmup", "1")
    fault = ("--copy-out", "--inject", "rollout-1:1:tear")
    finished = run_script("torch", "--transport", "mapped", *model, *fault)
    assert finished.code == 1 and "found two versions" in finished.stderr
    assert updates_of(finished.run).torn_reads > 0


@pytest.mark.parametrize(
    ("torn_reads", "expected"), [((0, 0), None), ((1, 2), "3 of 9 reads of served parameters")]
)
def test_torn_reads_fail_the_run_and_a_transfer_is_timed_on_the_drivers_clock(
    make_plan, torn_reads, expected
):
    plan = make_plan("torch", "--transport", "gloo", *FLAGS)
    times = {name: UpdateTimes(1.0, 2.0, 3.0, 4.0) for name in plan.worker_names}
    for name, reads, torn in zip(("rollout-1", "rollout-2"), (4, 5), torn_reads, strict=True):
        times[name].reads, times[name].torn_reads = reads, torn
    offsets = {"trainer": 0.0, "rollout-1": 0.25, "rollout-2": 0.125}
    updates, failure = collect_updates(
        plan, [(times, True)], lambda name, seconds: seconds + offsets[name]
    )
    assert (updates.reads, updates.publish_seconds, updates.transfer_seconds) == (9, [3.0], [1.25])
    assert failure is None if expected is None else failure.startswith(expected)


@pytest.mark.parametrize(("errors", "cell"), [
    ({"0": 0.5, "1": 0.0004}, "10"), ({"1": 0.0006}, "-"), ({"1": 0.0003, "2": 0.0003}, "-"),
])  # fmt: skip
def test_a_transfer_is_not_shown_if_its_clocks_are_wrong_by_more_than_a_twentieth(errors, cell):
    """The driver's node has the driver's clock, whatever its agent took to answer."""
    costs = {node: NodeCosts(clock_error_seconds=error) for node, error in errors.items()}
    parts = {
        "publish_seconds": [0.02],
        "transfer_seconds": [0.01],
        "install_seconds": [0.03],
        "stall_seconds": [0.04],
    }
    run = make_run([0.1] * 3, node_costs=costs, measured={"weights": parts})
    (section,) = sections(
        group_results([make_record("gloo", run, runtime="torch", table="weights", **SMALL)])
    )
    (row,) = rows_of(section)
    assert (row["publish ms"], row["transfer ms"], row["install ms"]) == ("20", cell, "30")
