"""Run updates of weights over transports of every kind, as a user starts them."""

import pytest

from dataflow.flows.catalogue import build_flow
from dataflow.flows.models import model_fields

MODEL = ("--flow", "weights", "--model", "gpt2", "--model-scale", "0.05")
RUNS = [
    pytest.param(("store", "refs", "--copy-out"), marks=pytest.mark.long),
    ("store", "by-value", "--bucket-size", "8MiB"),
    ("rdt", "broadcast", "--copy-out", "--bucket-size", "8MiB"),
    pytest.param(("rdt", "gloo", "--message", "packed"), marks=pytest.mark.long),
    pytest.param(("graph", "shm", "--bucket-size", "8MiB", "--message", "packed", "--copy-out"),
                 marks=pytest.mark.long),
    pytest.param(("graph", "zero-copy"), marks=pytest.mark.long),
    ("torch", "broadcast", "--bucket-size", "8MiB"),
    pytest.param(("torch", "gloo", "--senders", "2", "--sharded", "--message", "packed"), marks=pytest.mark.long),
    ("torch", "mapped", "--copy-in", "--copy-out"),
    pytest.param(("torch", "mapped", "--message", "packed"), marks=pytest.mark.long),
]  # fmt: skip


@pytest.mark.parametrize("flags", RUNS, ids=" ".join)
def test_updates_are_verified_and_timed_part_by_part(run_script, join_cluster, flags):
    runtime, name, *more = flags
    more += [*join_cluster(runtime), "--iterations", "4", "--warmup", "1"]
    finished = run_script(runtime, "--transport", name, *MODEL, *more)
    assert (finished.code, finished.stderr) == (0, "")
    run, workload = finished.run, finished.record.workload
    assert (run.status, run.wrong_bytes) == ("ok", 0)
    flow = build_flow("weights", workload.sizes)
    received = sum(edge.bytes for edge in flow.edges if edge.message.is_parameters)
    assert received == (1 if "--sharded" in more else 2) * sum(field.bytes for field in model_fields("gpt2", 0.05))
    updates = run.updates
    for parts in (updates.publish_seconds, updates.transfer_seconds, updates.install_seconds, updates.stall_seconds):
        assert len(parts) == 4 and min(parts) > 0
    assert all(map(float.__le__, updates.stall_seconds, run.seconds))
    assert updates.reads > 0 and updates.torn_reads == 0


@pytest.mark.long
@pytest.mark.parametrize(
    "flags", [("store", "by-value", "--items", "views"), ("torch", "mapped", "--makers", "1", "--trainers", "2")]
)
def test_makers_and_trainers_exchange_experience_and_weights(run_script, flags):
    runtime, name, *more = flags
    sizes = ("--flow", "detached-ppo", "--batch-size", "32", "--scale", "0.01", "--iterations", "4", "--warmup", "1")
    finished = run_script(runtime, "--transport", name, *sizes, *more)
    assert (finished.code, finished.stderr) == (0, "")
    run, workload = finished.run, finished.record.workload
    assert (run.status, run.wrong_bytes, run.updates.torn_reads) == ("ok", 0, 0)
    if name == "by-value":  # each of 32 views is pickled with the whole batch
        flow = build_flow("detached-ppo", workload.sizes)
        stored = sum(edge.message.serialised_bytes for edge in flow.edges)
        assert run.stored_bytes / 4 == pytest.approx(stored, rel=0.1)
        assert flow.message("maker-0").serialised_bytes == 32 * flow.message("maker-0").bytes


@pytest.mark.long
def test_the_replay_buffer_stores_three_copies_of_the_experience(run_script):
    sizes = ("--flow", "detached-ppo", "--batch-size", "32", "--scale", "0.01", "--iterations", "4", "--warmup", "1")
    finished = run_script("store", "--transport", "replay-buffer", *sizes)
    flow = build_flow("detached-ppo", finished.record.workload.sizes)
    experience, weights = flow.message("maker-0"), flow.message("trainer-0").bytes
    stored = experience.serialised_bytes + 2 * experience.bytes + weights
    assert finished.run.status == "ok"
    assert finished.run.stored_bytes / 4 == pytest.approx(stored, rel=0.1)


@pytest.mark.long
def test_parameters_that_are_overwritten_while_they_are_served_tear(run_script):
    """The receiver copies without stopping its engine."""
    model = ("--flow", "weights", "--model", "256MiB", "--iterations", "4", "--warmup", "1")
    fault = ("--copy-out", "--inject", "rollout-1:1:tear")
    finished = run_script("torch", "--transport", "mapped", *model, *fault)
    assert finished.code == 1
    assert "found two versions" in finished.stderr
    assert finished.run.updates.torn_reads > 0
