"""Run makers and trainers of detached PPO at their own speed, as a user starts them."""

import pytest
from conftest import SCRIPTS

SMALL = ("--flow", "detached-ppo", "--batch-size", "32", "--scale", "0.01")


@pytest.mark.parametrize("flags", [
    ("replay-buffer", "--makers", "2", "--items", "clones"),
    pytest.param(("by-value", "--trainers", "2"), marks=pytest.mark.long),
])  # fmt: skip
def test_trainers_consume_batches_and_update_makers(run_script, flags):
    once = ("--duration", "3s", "--update-steps", "4", "--warmup", "0")  # one update before the free run
    finished = run_script(SCRIPTS["store"], "--transport", *flags, *SMALL, *once)
    assert (finished.code, finished.stderr) == (0, "")
    run = finished.run
    assert (run.status, run.wrong_bytes, run.updates.torn_reads) == ("ok", 0, 0)
    assert run.updates.reads > 300
    batches = len(run.free_run.waiting_batches)
    assert len(run.seconds) == batches > 4
    # One of two trainers sends weights, and the other has no version.
    assert (len(run.free_run.staleness) < batches) == ("--trainers" in flags)
    assert run.free_run.samples == batches * (16 if "--trainers" in flags else 32)
    assert sum(run.seconds) == pytest.approx(run.free_run.seconds, rel=1e-3)
    assert 0 < len(run.free_run.stall_seconds) <= batches // 4 * (2 if "--makers" in flags else 1)
    assert (
        min(run.free_run.waiting_batches + run.free_run.staleness) >= 0 and max(run.free_run.staleness) <= batches // 4
    )


@pytest.mark.long
def test_a_maker_that_waits_keeps_few_batches_and_one_that_does_not_wait_is_stopped(run_script):
    slow = (*SMALL, "--batch-size", "64", "--model-seconds", "trainer-0=300ms", "--warmup", "0")
    finished = run_script(SCRIPTS["store"], "--transport", "by-value", "--items", "batch", *slow, "--duration", "3s")
    assert finished.run.status == "ok"
    # the replay buffer, the calls that wait, the batch that is being made, and one at each of both ends
    assert max(finished.run.free_run.waiting_batches) <= 22
    finished = run_script(SCRIPTS["store"], "--transport", "replay-buffer", *slow, "--duration", "60s")
    assert finished.code == 1
    assert "maker-0: " in finished.stderr and "wait for trainers, which are slower" in finished.stderr
    assert finished.stderr.count("\n") == 1


@pytest.mark.long
@pytest.mark.parametrize("fault", ["maker-0:7:flip", "trainer-0:6:flip"])
def test_wrong_batches_and_weights_are_found(run_script, fault):
    finished = run_script(SCRIPTS["store"], "--transport", "by-value", *SMALL, "--duration", "1.5s", "--inject", fault)
    assert finished.code == 1
    assert finished.run.wrong_bytes > 0


@pytest.mark.long
def test_the_replay_buffer_stores_three_copies_of_the_experience(run_script):
    flags = ("--transport", "replay-buffer", *SMALL, "--iterations", "4", "--warmup", "1")
    run = run_script(SCRIPTS["store"], *flags).run
    experience, weights = 32 * 8970, run_bytes(flags)
    assert run.status == "ok"
    assert run.stored_bytes / 4 == pytest.approx(32 * experience + 2 * experience + weights, rel=0.1)


def run_bytes(flags):
    from common.flows.catalogue import build_flow

    flow = build_flow("detached-ppo", {"batch_size": 32, "scale": 0.01})
    return flow.message("trainer-0").bytes


@pytest.mark.parametrize(("flags", "error"), [
    (("--transport", "refs", *SMALL, "--duration", "1s"), "makers and trainers run freely only over store by-value"),
    (("--transport", "by-value", *SMALL, "--update-steps", "3"), "leave it out"),
])  # fmt: skip
def test_other_transports_have_no_free_run(run_script, flags, error):
    finished = run_script(SCRIPTS["store"], *flags)
    assert finished.code == 2
    assert error in finished.stderr and finished.stderr.count("\n") == 1
