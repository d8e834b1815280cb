"""Run rounds of detached PPO, as a user starts them."""

import pytest

from dataflow.flows.catalogue import build_flow

SIZES = ("--flow", "detached-ppo", "--batch-size", "32", "--model-scale", "0.01", "--iterations", "4", "--warmup", "1")


@pytest.mark.parametrize(
    ("transport", "flags"),
    [("by-value", ("--items", "views")), pytest.param("replay-buffer", (), marks=pytest.mark.long)],
)
def test_the_store_takes_in_each_message_as_often_as_it_is_sent(run_script, transport, flags):
    finished = run_script("store", "--transport", transport, *SIZES, *flags)
    assert (finished.code, finished.stderr) == (0, "")
    assert (finished.run.status, finished.run.wrong_bytes) == ("ok", 0)
    flow = build_flow("detached-ppo", finished.record.workload.sizes)
    if transport == "by-value":  # each of 32 views is pickled with the whole batch
        assert flow.message("maker-0").serialised_bytes == 32 * flow.message("maker-0").bytes
        stored_bytes = sum(edge.message.serialised_bytes for edge in flow.edges)
    else:  # three copies of the experience
        experience = flow.message("maker-0")
        stored_bytes = experience.serialised_bytes + 2 * experience.bytes + flow.message("trainer-0").bytes
    assert finished.run.stored_bytes / 4 == pytest.approx(stored_bytes, rel=0.1)


@pytest.mark.long
def test_makers_and_trainers_exchange_experience_and_weights_over_other_transports(run_script):
    finished = run_script("torch", "--transport", "mapped", *SIZES, "--makers", "1", "--ppo-trainers", "2")
    assert (finished.code, finished.stderr) == (0, "")
    assert (finished.run.status, finished.run.wrong_bytes) == ("ok", 0)
