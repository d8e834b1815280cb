"""ChatLearn's episodes as they run: what is done to queues, against its formulas, and what the messages take."""

import pytest
from conftest import SCRIPTS

from common.flow.catalogue import build_flow

SMALL = ("--rows", "3", "--prompt-len", "uniform:4:8", "--response-len", "6", "--warmup", "0")
OVERLAP = ("--loader", "dynamic", "--model-seconds", "policy=3s,trainer=50ms")  # new queues take a while
CASES = [
    ("online-dpo", 3, ("--as-shipped", "--generation-batch", "policy=2"), {"policy": 2}, {"reward": 2}),
    ("ppo", 2, ("--poll-queues", "--colocated"), {}, {}),
]


@pytest.mark.parametrize(("name", "count", "flags", "replicas", "ranks"), CASES, ids=lambda value: str(value))
def test_operations_of_an_episode_are_those_of_chatlearns_formulas(run_script, name, count, flags, replicas, ranks):
    def listed(numbers):
        return ",".join(f"{model}={number}" for model, number in numbers.items())

    more = [
        *flags,
        *(["--replicas", listed(replicas)] if replicas else []),
        *(["--ranks", listed(ranks)] if ranks else []),
    ]
    message = [] if "--as-shipped" in flags else ["--message", "fields"]
    episodes = ("--episode", str(count), "--in-flight", str(count), "--iterations", str(2 * count))
    finished = run_script(SCRIPTS["store"], "--flow", name, *message, *SMALL, *episodes, *more)
    assert (finished.code, finished.stderr) == (0, "")
    run, key = finished.run, finished.record.row
    assert (run.status, run.wrong_bytes, len(run.seconds), len(run.episode_seconds)) == ("ok", 0, 2 * count, 2)

    flow = build_flow(name, key.sizes, "fields")
    inputs, returned = len(flow.edges_from("driver")), len(flow.edges_to("driver"))
    queues, found = len(flow.edges), run.operations
    between = queues - inputs - returned
    assert found["queue_actors"] == (0 if "--keep-queues" in flags else 1 + inputs + between + returned)
    assert found["driver_put"] == count * queues + count
    assert found["driver_get"] == count * queues
    polls = found["driver_get"] if "--poll-queues" in flags else 0
    assert found["driver_qsize"] == count + 1 + polls
    assert found["model_tasks"] == count * sum(ranks.get(task.name, 1) for task in flow.tasks)
    assert (found["stream_dataset_get"], found["stream_dataset_qsize"]) == (count, count + 1)
    assert found["driver_payload_gets"] == count * returned
    assert found["driver_payload_bytes"] == count * sum(edge.bytes for edge in flow.edges_to("driver"))
    assert (key.layout.replicas, key.layout.ranks) == (replicas, ranks)

    assert set(run.message_bytes) == {"driver", *(task.name for task in flow.tasks)}
    for sender, sizes in run.message_bytes.items():
        message = flow.message(sender)
        assert len(sizes) == count and len(set(sizes)) == 1
        # A few hundred bytes of pickle for each tensor (tests/chatlearn/test_sizes.py), and what a message has once.
        assert message.shipped_bytes < sizes[0] < message.shipped_bytes + 700 + 300 * len(message.leaves)


@pytest.mark.parametrize(
    ("name", "flags", "trainers", "ranks", "epochs"),
    [("grpo", ("--message", "fields", "--train-ranks", "2", *OVERLAP), 1, 2, 1)],
    ids=["grpo"],
)
def test_samples_reach_the_trainers_by_chatlearns_operations(
    run_script, tmp_path, name, flags, trainers, ranks, epochs
):
    episodes = ("--episode", "2", "--in-flight", "2", "--iterations", "4", "--warmup", "0", "--rows", "8")
    steps = (
        "--train-global-batch",
        "8",
        "--train-micro-batch",
        "2",
        "--data-parallel",
        str(ranks),
        "--epochs",
        str(epochs),
    )
    lengths = ("--prompt-len", "uniform:4:8", "--response-len", "6")
    finished = run_script(
        SCRIPTS["store"],
        "--flow",
        name,
        "--sink",
        "trainer",
        *episodes,
        *lengths,
        *steps,
        *flags,
        "--trace",
        str(tmp_path / "trace.json"),
    )
    assert (finished.code, finished.stderr) == (0, "")
    run, found = finished.run, finished.run.operations
    assert (run.status, run.wrong_bytes) == ("ok", 0)
    whole_steps = 2 * 8 // 8
    assert found["trainer_queue_actors"] == epochs * (1 + trainers)
    assert found["trainer_put"] == found["trainer_get"] == epochs * trainers * whole_steps * ranks
    assert found["trainer_blocking_gets"] == epochs * whole_steps * 8 // 2
    assert (found["stream_dataset_get"], found["stream_dataset_qsize"]) == (2, 3)
    assert (found["driver_payload_gets"], found["driver_payload_bytes"]) == (0, 0)
    assert "stream-dataset" in finished.record.row.layout.nodes
    # A trace of episodes, not of the trips that overlap in them, with the trainers' steps.
    assert len(run.trips_us) == len(run.episode_seconds) == 2
    steps_of = {(span[0], span[4]) for span in run.spans if span[2] == "train"}
    assert steps_of == {
        (f"trainer 1, rank {data}.{rank}", trip) for data in (0, 1) for rank in (0, 1) for trip in (0, 1)
    }
    assert {"policy", "reward", "stream-dataset"} <= {span[0] for span in run.spans if span[2] == "make"}
    # Rollout and training overlap: the policy is at its second message while the first one's samples are trained on.
    rollouts = [span[-2:] for span in run.spans if span[0] == "policy" and span[2] == "compute"]
    training = [span[-2:] for span in run.spans if span[0].startswith("trainer") and span[2] == "train"]
    assert len(rollouts) == 4 and all(end - start > 2.9e6 for start, end in rollouts)
    assert any(start < ended and begun < end for start, end in rollouts for begun, ended in training)


def test_any_transport_ends_at_a_trainer_that_makes_micro_batches(run_script):
    flags = ("--flow", "ppo", "--sink", "trainer", "--train-micro-batch", "4", "--iterations", "4", "--in-flight", "2")
    finished = run_script(SCRIPTS["torch"], "--transport", "multiprocessing", *flags, *SMALL, "--message", "packed")
    assert (finished.code, finished.stderr) == (0, "")
    assert finished.record.row.flags == {"in_flight": 2, "sink": "trainer", "train_micro_batch": 4}
    assert (finished.run.status, finished.run.wrong_bytes, finished.run.payload_copied) == ("ok", 0, False)


def test_a_flow_in_a_file_runs_and_its_picture_needs_no_file(run_script, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "def mine(models, query):\n    return models.reward(models.policy(query), models.reference(query))\n"
    )
    finished = run_script(SCRIPTS["torch"], "--flow", f"{path}:mine", "--iterations", "2", *SMALL)
    assert (finished.code, finished.run.status) == (0, "ok"), finished.stderr
    path.unlink()
    assert finished.record.row.flow == "mine.py:mine"
    import plot_results

    assert plot_results.main([str(finished.output)]) == 0
