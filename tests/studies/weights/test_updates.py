"""Run updates of weights over transports of every kind, as a user starts them."""

import pytest

from dataflow.flows.catalogue import build_flow
from dataflow.studies.weights.updates import updates_of

LONG = pytest.mark.long
RUNS = [
    ("store", "refs", "--copy-out", "--bucket-size", "8MiB"),
    ("rdt", "broadcast", "--copy-out", "--bucket-size", "8MiB"),
    pytest.param(("graph", "zero-copy"), marks=LONG),
    ("torch", "broadcast", "--bucket-size", "8MiB"),
    pytest.param(("torch", "gloo", "--senders", "2", "--sharded", "--message", "packed"), marks=LONG),
    ("torch", "mapped", "--copy-in", "--copy-out"),
]


@pytest.mark.parametrize("flags", RUNS, ids=" ".join)
def test_updates_are_verified_and_timed_part_by_part(run_script, join_cluster, flags):
    runtime, name, *more = flags
    model = ("--flow", "weights", "--model", "gpt2", "--model-scale", "0.05", "--iterations", "4", "--warmup", "1")
    finished = run_script(runtime, "--transport", name, *model, *more, *join_cluster(runtime))
    assert (finished.code, finished.stderr) == (0, "")
    run, workload = finished.run, finished.record.workload
    assert (run.status, run.wrong_bytes) == ("ok", 0)
    assert workload.bytes_per_iteration == build_flow("weights", workload.sizes).bytes_per_iteration
    updates = updates_of(run)
    for parts in (updates.publish_seconds, updates.transfer_seconds, updates.install_seconds, updates.stall_seconds):
        assert len(parts) == 4 and min(parts) > 0
    assert all(map(float.__le__, updates.stall_seconds, run.seconds))
    assert updates.reads > 0 and updates.torn_reads == 0


@pytest.mark.long
def test_parameters_that_are_overwritten_while_they_are_served_tear(run_script):
    """The receiver copies without stopping its engine."""
    model = ("--flow", "weights", "--model", "256MiB", "--iterations", "4", "--warmup", "1")
    fault = ("--copy-out", "--inject", "rollout-1:1:tear")
    finished = run_script("torch", "--transport", "mapped", *model, *fault)
    assert finished.code == 1
    assert "found two versions" in finished.stderr
    assert updates_of(finished.run).torn_reads > 0
