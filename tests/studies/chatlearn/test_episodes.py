"""Run ChatLearn's episodes with Ray: queues and the trainer."""

SMALL = ("--batch-size", "3", "--prompt-len", "uniform:4:8", "--response-len", "6", "--warmup", "0")


def test_an_episode_is_verified(measure):
    flags = ("--flow", "online-dpo", "--as-sent", "--episode", "2", "--in-flight", "2", "--iterations", "2")
    (run,) = measure("store ref-queue", *SMALL, *flags).runs
    assert (len(run.seconds), len(run.group_seconds)) == (2, 1)


def test_the_store_takes_in_the_micro_batches_and_the_trace_has_the_steps_of_the_trainer(run_script):
    """These messages are large enough for the store, whose bytes are those that are expected, or the run fails."""
    flags = ("--transport", "ref-queue", "--message", "fields", "--flow", "online-dpo", "--batch-size", "64",
             "--prompt-len", "389", "--response-len", "512", "--episode", "2", "--in-flight", "2", "--iterations", "4",
             "--warmup", "0", "--sink", "trainer", "--keep-queues", "--model-seconds", "trainer=50ms")  # fmt: skip
    finished = run_script("store", *flags, "--trace")
    run = finished.run
    assert (finished.code, run.status, run.reason, run.wrong_bytes) == (0, "ok", None, 0)
    assert not any("as requested" in path for path in run.data_paths.values())
    # The trace has episodes, because iterations overlap in them.
    assert len(run.iterations_us) == len(run.group_seconds) == 2
    assert {(span[0], span[3]) for span in run.spans if span[2] == "train"} == {("trainer", 0), ("trainer", 1)}
