"""Run ChatLearn's episodes with Ray: replicas, ranks and trainers."""

import pytest

CHATLEARN = ("--transport", "ref-queue")
SMALL = ("--batch-size", "3", "--prompt-len", "uniform:4:8", "--response-len", "6", "--warmup", "0")


def test_an_episode_with_replicas_and_ranks_is_verified(run_script, cluster):
    layout = ("--as-sent", "--replicas", "policy=2", "--ranks", "reward=2", *cluster)
    episodes = ("--episode", "2", "--in-flight", "2", "--iterations", "2")
    finished = run_script("store", *CHATLEARN, "--flow", "online-dpo", *SMALL, *episodes, *layout)
    assert (finished.code, finished.stderr) == (0, "")
    run = finished.run
    assert (run.status, run.wrong_bytes, len(run.seconds), len(run.group_seconds)) == ("ok", 0, 2, 1)
    assert set(run.nodes) == {"driver", "policy.0", "policy.1", "reference", "reward.0", "reward.1"}


@pytest.mark.long
def test_samples_reach_the_trainers_with_ray(run_script, cluster, tmp_path):
    flags = ("--flow", "grpo", "--message", "fields", "--sink", "trainer", "--episode", "2", "--in-flight", "2",
             "--iterations", "4", "--warmup", "0", "--batch-size", "8", "--prompt-len", "uniform:4:8",
             "--response-len", "6", "--train-global-batch", "8", "--train-micro-batch", "2", "--data-parallel", "2",
             "--model-seconds", "trainer=50ms", "--keep-queues")  # fmt: skip
    finished = run_script("store", *CHATLEARN, *flags, *cluster, "--trace")
    assert (finished.code, finished.stderr) == (0, "")
    run = finished.run
    assert (run.status, run.wrong_bytes) == ("ok", 0)
    assert "stream-dataset" in run.nodes
    # The trace has episodes, because iterations overlap in them, and the steps of the trainers.
    assert len(run.iterations_us) == len(run.group_seconds) == 2
    training = [span for span in run.spans if span[2] == "train"]
    assert {(span[0], span[4]) for span in training} == {
        (f"trainer 1, rank {rank}", episode) for rank in (0, 1) for episode in (0, 1)
    }


def test_the_store_takes_in_the_micro_batches_of_the_trainers_too(run_script):
    """These messages are large enough for the store, whose bytes are those that are expected, or the run fails."""
    flags = ("--transport", "ref-queue", "--message", "fields", "--flow", "online-dpo", "--batch-size", "64",
             "--prompt-len", "389", "--response-len", "512", "--episode", "4", "--in-flight", "4", "--iterations", "4",
             "--warmup", "0", "--sink", "trainer")  # fmt: skip
    finished = run_script("store", *flags)
    assert (finished.code, finished.run.status, finished.run.reason) == (0, "ok", None)
    assert not any("as requested" in path for path in finished.run.data_paths.values())
