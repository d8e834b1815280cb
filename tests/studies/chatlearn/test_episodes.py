"""Run ChatLearn's episodes: compare the counts of queue operations with its formulas, and check trainers."""

import pytest

from dataflow.flows.catalogue import build_flow

CHATLEARN = ("--transport", "ref-queue")
SMALL = ("--batch-size", "3", "--prompt-len", "uniform:4:8", "--response-len", "6", "--warmup", "0")


def test_operations_of_an_episode_equal_chatlearns_formulas(run_script, cluster):
    count, replicas, ranks = 2, {"policy": 2}, {"reward": 2}
    layout = ("--as-sent", "--replicas", "policy=2", "--ranks", "reward=2", *cluster)
    episodes = ("--episode", str(count), "--in-flight", str(count), "--iterations", str(count))
    finished = run_script("store", *CHATLEARN, "--flow", "online-dpo", *SMALL, *episodes, *layout)
    assert (finished.code, finished.stderr) == (0, "")
    run, sizes = finished.run, finished.record.workload.sizes
    assert (run.status, run.wrong_bytes, len(run.seconds), len(run.group_seconds)) == ("ok", 0, count, 1)

    flow = build_flow("online-dpo", sizes, "fields")
    inputs, returned, queues = len(flow.edges_from("driver")), len(flow.edges_to("driver")), len(flow.edges)
    counts = run.queue_operations
    assert counts["queue_actors"] == 1 + queues
    assert counts["driver_put"] == count * queues + count
    assert counts["driver_get"] == count * queues
    assert counts["driver_qsize"] == count + 1
    assert counts["model_tasks"] == count * sum(ranks.get(task.name, 1) for task in flow.tasks)
    assert (counts["stream_dataset_get"], counts["stream_dataset_qsize"]) == (count, count + 1)
    assert counts["driver_payload_gets"] == count * returned
    assert counts["driver_payload_bytes"] == count * sum(edge.bytes for edge in flow.edges_to("driver"))
    assert inputs + returned <= queues
    workers = {name for name in run.nodes if name != "driver"}
    assert len(workers) == sum(replicas.get(actor, 1) * ranks.get(actor, 1) for actor in flow.actors)

    assert set(run.message_bytes) == {"driver", *(task.name for task in flow.tasks)}
    for sender, serialised in run.message_bytes.items():
        message = flow.message(sender)
        assert len(serialised) == count
        assert max(serialised) - min(serialised) < 16  # Ray's header can differ by a few bytes
        # Pickle adds a few hundred bytes per tensor, and some once per message.
        limit = message.serialised_bytes + 700 + 300 * len(message.tensor_bytes)
        assert message.serialised_bytes < serialised[0] < limit


@pytest.mark.long
def test_samples_reach_the_trainers_by_chatlearns_operations(run_script, cluster, tmp_path):
    flags = ("--flow", "grpo", "--message", "fields", "--sink", "trainer", "--episode", "2", "--in-flight", "2",
             "--iterations", "4", "--warmup", "0", "--batch-size", "8", "--prompt-len", "uniform:4:8",
             "--response-len", "6", "--train-global-batch", "8", "--train-micro-batch", "2", "--data-parallel", "2",
             "--model-seconds", "trainer=50ms", "--keep-queues")  # fmt: skip
    finished = run_script("store", *CHATLEARN, *flags, *cluster, "--trace")
    assert (finished.code, finished.stderr) == (0, "")
    run, counts = finished.run, finished.run.queue_operations
    assert (run.status, run.wrong_bytes) == ("ok", 0)
    steps = 2 * 8 // 8
    assert counts["trainer_queue_actors"] == 2
    assert counts["trainer_put"] == counts["trainer_get"] == steps * 2
    assert counts["trainer_blocking_gets"] == steps * 8 // 2
    assert (counts["stream_dataset_get"], counts["stream_dataset_qsize"]) == (2, 3)
    assert counts.keys().isdisjoint({"driver_payload_gets", "driver_payload_bytes"})
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


@pytest.mark.long
def test_any_transport_can_end_at_a_trainer_that_makes_micro_batches(run_script):
    flags = ("--flow", "ppo", "--sink", "trainer", "--train-micro-batch", "4", "--iterations", "4", "--in-flight", "2")
    finished = run_script("torch", "--transport", "multiprocessing", *flags, *SMALL, "--message", "packed")
    assert (finished.code, finished.stderr) == (0, "")
    flags = finished.record.configuration.flags
    assert flags == {"in_flight": 2, "sink": "trainer", "train_micro_batch": 4}
    assert (finished.run.status, finished.run.wrong_bytes, finished.run.readers_own_a_copy) == ("ok", 0, False)
