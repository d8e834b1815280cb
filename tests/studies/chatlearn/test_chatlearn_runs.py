# SPDX-License-Identifier: Apache-2.0
"""Run ChatLearn's episodes with Ray: its queues, processes, dataset and trainers."""

import pytest


@pytest.mark.slow
def test_replicas_ranks_data_parallel_trainers_and_a_relay_buffer_run_with_ray(run_script):
    """These messages are large enough for the store, whose bytes are those that are expected, or the run fails."""
    flags = ("--transport", "ref-queue", "--message", "fields", "--flow", "online-dpo", "--batch-size", "64",
             "--prompt-len", "389", "--response-len", "512", "--episode", "2", "--in-flight", "2", "--iterations", "4",
             "--warmup", "0", "--sink", "trainer", "--keep-queues", "--model-seconds", "trainer=50ms", "--replicas",
             "policy=2", "--ranks", "reference=2", "--data-parallel", "2", "--relay-episodes", "2")  # fmt: skip
    finished = run_script("store", *flags, "--trace")
    run = finished.run
    assert (finished.code, run.status, run.reason, run.wrong_bytes) == (0, "ok", None, 0)
    assert not any("as requested" in path for path in run.data_paths.values())
    # The trace has episodes, because iterations overlap in them.
    assert len(run.iterations_us) == len(run.group_seconds) == 2
    training = {(span[0], span[3]) for span in run.spans if span[2] == "train"}
    assert training == {("trainer", 0), ("trainer.1", 0), ("trainer", 1), ("trainer.1", 1)}
    # The further processes of models are in the trace too, and their costs are in the record.
    further = {"policy.1.0", "reference.0.1"}
    assert further <= {span[0] for span in run.spans}
    assert further <= run.processes.keys()
    # 2 messages per episode; 1 input, 3 edges and 1 result; 256 samples of two episodes in 2 steps of 2 ranks.
    measured = run.measured["chatlearn"]
    assert measured["operations"] == {
        "queue_actors": 0,  # --keep-queues
        "driver_put": 12,
        "driver_get": 10,
        "driver_qsize": 3,
        "driver_payload_gets": 0,
        "model_tasks": 8,
        "stream_dataset_get": 2,
        "stream_dataset_qsize": 5,
        "trainer_queue_actors": 2,
        "trainer_put": 4,
        "trainer_get": 4,
        "trainer_blocking_gets": 32,
    }
    assert measured["replica_order"] == {"policy": [[1, 0], [1, 0]]}
    assert measured["received_messages"] == {
        "driver": 4,
        "policy": 2,
        "policy.1.0": 2,
        "reference": 4,
        "reference.0.1": 4,
        "reward": 4,
        "stream-dataset": 4,
    }
