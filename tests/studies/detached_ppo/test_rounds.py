"""Run rounds of detached PPO, as a user starts them."""

import pytest

from dataflow.flows.catalogue import build_flow


@pytest.mark.long
@pytest.mark.parametrize(
    "flags", [("store", "by-value", "--items", "views"), ("torch", "mapped", "--makers", "1", "--ppo-trainers", "2")]
)
def test_makers_and_trainers_exchange_experience_and_weights(run_script, flags):
    runtime, name, *more = flags
    sizes = (
        "--flow",
        "detached-ppo",
        "--batch-size",
        "32",
        "--model-scale",
        "0.01",
        "--iterations",
        "4",
        "--warmup",
        "1",
    )
    finished = run_script(runtime, "--transport", name, *sizes, *more)
    assert (finished.code, finished.stderr) == (0, "")
    run, workload = finished.run, finished.record.workload
    assert (run.status, run.wrong_bytes) == ("ok", 0)
    if name == "by-value":  # each of 32 views is pickled with the whole batch
        flow = build_flow("detached-ppo", workload.sizes)
        stored = sum(edge.message.serialised_bytes for edge in flow.edges)
        assert run.stored_bytes / 4 == pytest.approx(stored, rel=0.1)
        assert flow.message("maker-0").serialised_bytes == 32 * flow.message("maker-0").bytes


@pytest.mark.long
def test_the_replay_buffer_stores_three_copies_of_the_experience(run_script):
    sizes = (
        "--flow",
        "detached-ppo",
        "--batch-size",
        "32",
        "--model-scale",
        "0.01",
        "--iterations",
        "4",
        "--warmup",
        "1",
    )
    finished = run_script("store", "--transport", "replay-buffer", *sizes)
    flow = build_flow("detached-ppo", finished.record.workload.sizes)
    experience, weights = flow.message("maker-0"), flow.message("trainer-0").bytes
    stored = experience.serialised_bytes + 2 * experience.bytes + weights
    assert finished.run.status == "ok"
    assert finished.run.stored_bytes / 4 == pytest.approx(stored, rel=0.1)
