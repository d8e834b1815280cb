"""Run ChatLearn's episodes with Ray: its queues, processes, dataset and trainers."""

SIZES = ("--batch-size", "8", "--prompt-len", "uniform:4:8", "--response-len", "6")


def test_the_store_takes_in_the_micro_batches_and_the_trace_has_the_steps_of_the_trainer(
    run_script,
):
    """These messages are large enough for the store, whose bytes are those that are expected, or the run fails."""
    flags = ("--transport", "ref-queue", "--message", "fields", "--flow", "online-dpo", "--batch-size", "64",
             "--prompt-len", "389", "--response-len", "512", "--episode", "2", "--in-flight", "2", "--iterations", "4",
             "--warmup", "0", "--sink", "trainer", "--keep-queues", "--model-seconds", "trainer=50ms",
             "--replicas", "policy=2", "--ranks", "reference=2")  # fmt: skip
    finished = run_script("store", *flags, "--trace")
    run = finished.run
    assert (finished.code, run.status, run.reason, run.wrong_bytes) == (0, "ok", None, 0)
    assert not any("as requested" in path for path in run.data_paths.values())
    # The trace has episodes, because iterations overlap in them.
    assert len(run.iterations_us) == len(run.group_seconds) == 2
    assert {(span[0], span[3]) for span in run.spans if span[2] == "train"} == {
        ("trainer", 0),
        ("trainer", 1),
    }
    # The further processes of models are in the trace too, and their costs are in the record.
    further = {"policy.1.0", "reference.0.1"}
    assert further <= {span[0] for span in run.spans}
    assert further <= run.processes.keys()


def test_replicas_ranks_data_parallel_trainers_and_a_relay_buffer_work_together(
    run_script, cluster
):
    flags = ("--transport", "ref-queue", "--flow", "ppo", *SIZES, "--episode", "4", "--in-flight", "4",
             "--iterations", "8", "--warmup", "2", "--sink", "trainer", "--train-global-batch", "16",
             "--train-micro-batch", "4", "--replicas", "reference=3", "--ranks", "policy=2", "--data-parallel", "2",
             "--relay-episodes", "2", *cluster)  # fmt: skip
    finished = run_script("store", *flags)
    assert (finished.code, finished.stderr) == (0, "")
    run = finished.run
    assert (run.status, run.reason, run.wrong_bytes) == ("ok", None, 0)
    measured = run.measured["chatlearn"]
    # 4 messages per episode; 1 input, 5 edges and 2 results; 64 samples in 4 steps of 2 models with 2 ranks.
    assert measured["operations"] == {
        "queue_actors": 9,
        "driver_put": 36,
        "driver_get": 32,
        "driver_qsize": 5,
        "driver_payload_gets": 0,
        "model_tasks": 20,
        "stream_dataset_get": 4,
        "stream_dataset_qsize": 9,
        "trainer_queue_actors": 3,
        "trainer_put": 16,
        "trainer_get": 16,
        "trainer_blocking_gets": 16,
    }
    assert measured["replica_order"] == {"reference": [[0, 1, 2, 0], [1, 2, 0, 1]]}
    received = measured["received_messages"]
    assert received["policy"] == received["policy.0.1"] == received["stream-dataset"] == 8
    of_reference = [received[name] for name in ("reference", "reference.1.0", "reference.2.0")]
    assert of_reference == [3, 3, 2]


def test_dpo_goes_over_a_compiled_graph(run_script):
    finished = run_script("graph", "--flow", "dpo", *SIZES, "--iterations", "3", "--warmup", "0")
    assert (finished.code, finished.run.status, finished.run.wrong_bytes) == (0, "ok", 0)
    assert finished.record.workload.message == "fields"
