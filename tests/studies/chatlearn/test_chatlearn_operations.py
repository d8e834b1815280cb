# SPDX-License-Identifier: Apache-2.0
"""Compare the operations and bytes that ChatLearn's transport records with ChatLearn's formulas and with its queues."""

import pytest
import torch
from local_episodes import episode_flags, make_runner

from dataflow.studies.chatlearn.counts import content_bytes
from dataflow.studies.chatlearn.driver import Driver

# Messages that the input feeds, edges between models, and results: of ChatLearn's engines (runtime/engine.py).
GRAPHS = {
    "online-dpo": (1, 3, 1),
    "grpo": (1, 3, 1),
    "ppo": (1, 5, 2),
    "grpo-math": (2, 4, 2),
    "dpo": (1, 0, 1),
}
LAYOUTS = (
    (1, ()),
    (4, ("--replicas", "reference=3")),
    (4, ("--replicas", "reference=2", "--ranks", "reference=2")),
)


@pytest.fixture
def run(make_plan, monkeypatch, tmp_path):
    return make_runner(make_plan, monkeypatch, tmp_path)


@pytest.mark.parametrize(("count", "layout"), LAYOUTS)
@pytest.mark.parametrize("name", GRAPHS)
def test_operations_of_an_episode_are_those_of_chatlearns_formulas(run, name, count, layout):
    done = run("--flow", name, "--message", "fields", *episode_flags(count), *layout).expect_ok()
    inputs, edges, results = GRAPHS[name]
    queues = inputs + edges + results
    models = len(done.plan.requested_flow.tasks)
    ranks = 2 if "--ranks" in layout else 1
    assert done.operations == {
        "queue_actors": 1 + queues,
        "driver_put": count * queues + count,
        "driver_get": count * queues,
        "driver_qsize": count + 1,
        "driver_payload_gets": count * results,  # the driver reads in place of StreamDataset
        "model_tasks": count * (models - 1 + ranks),
        "stream_dataset_get": count,
        "stream_dataset_qsize": count + 1,
        "trainer_queue_actors": 0,
        "trainer_put": 0,
        "trainer_get": 0,
        "trainer_blocking_gets": 0,
    }


@pytest.mark.parametrize(
    ("name", "trained", "count", "global_batch", "micro_batch", "ranks"),
    [
        ("online-dpo", 1, 1, 8, 8, 1),
        ("ppo", 2, 4, 16, 2, 2),
        ("dpo", 1, 2, 4, 2, 1),
        ("grpo", 1, 3, 16, 2, 4),  # the last step has only half of its samples
        ("grpo-math", 1, 2, 16, 2, 2),
    ],
)
def test_operations_of_training_are_those_of_chatlearns_formulas(
    run, name, trained, count, global_batch, micro_batch, ranks
):
    flags = f"--sink trainer --train-global-batch {global_batch} --train-micro-batch {micro_batch}"
    flags += f" --data-parallel {ranks}"
    done = run("--flow", name, "--message", "packed", *flags.split(), *episode_flags(count))
    operations = done.expect_ok().operations
    steps = -(-8 * count // global_batch)
    assert operations["trainer_queue_actors"] == 1 + trained
    assert operations["trainer_put"] == operations["trainer_get"] == trained * steps * ranks
    assert operations["trainer_blocking_gets"] == steps * global_batch // micro_batch
    assert operations["driver_payload_gets"] == 0
    assert operations["driver_put"] == count * sum(GRAPHS[name]) + count
    assert operations["stream_dataset_get"] == count


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "--sink trainer",
        "--sink trainer --relay-episodes 1",
        "--replicas policy=2 --ranks policy=2",
    ],
)
def test_the_recorded_operations_are_those_that_the_queues_saw(run, flags):
    done = run("--flow", "ppo", "--message", "fields", *episode_flags(2), *flags.split())
    operations = done.expect_ok().operations
    recorded = {
        "made": operations["queue_actors"] + operations["trainer_queue_actors"],
        "put": operations["driver_put"] + operations["trainer_put"],
        "get": operations["driver_get"]
        + operations["trainer_get"]
        + operations["stream_dataset_get"],
        "qsize": operations["driver_qsize"] + operations["stream_dataset_qsize"],
    }
    one_more = run(
        "--flow", "ppo", "--message", "fields", *episode_flags(2, episodes=4), *flags.split()
    )
    for name, count in recorded.items():
        seen = one_more.queue_operations[name] - done.queue_operations[name]
        assert seen == count, name


def test_queues_that_are_kept_are_not_made_in_an_episode(run):
    flags = ("--flow", "grpo", "--message", "fields", *episode_flags(2))
    kept = run(*flags, "--keep-queues").expect_ok()
    assert kept.operations["queue_actors"] == 0
    assert kept.queue_operations["made"] == 6
    fresh = run(*flags).expect_ok()
    assert fresh.queue_operations["made"] == 6 * len(fresh.episodes)


def test_episodes_with_other_counts_fail_the_run(run, monkeypatch):
    submit = Driver.submit

    def submit_and_ask(self, query):
        submit(self, query)
        if self.submitted == 6:
            self.has_messages(self.last_queue)

    monkeypatch.setattr(Driver, "submit", submit_and_ask)
    done = run("--flow", "grpo", "--message", "fields", *episode_flags(2))
    assert done.run.status == "failed"
    assert done.run.reason == "episodes of equal length differ in driver_qsize: 3 and 4"


# B = 8 samples; prompts of 4 to 8 tokens, responses of 6.
@pytest.mark.parametrize("padding", ["megatron", "vllm"])
@pytest.mark.parametrize("form", [("--message", "fields"), ("--message", "packed"), ("--as-sent",)])
@pytest.mark.parametrize("name", ["ppo", "online-dpo"])
def test_bytes_of_messages_are_those_of_chatlearns_formulas(run, name, form, padding):
    flags = ("--flow", name, *form, "--padding", padding, "--seq-length", "20", *episode_flags(1))
    done = run(*flags).expect_ok()
    prompts = list(done.plan.requested_flow.query.fields[0].lengths)
    samples, longest = 8, max(prompts) + 6
    length = 20 if padding == "vllm" else longest
    prompt_tokens, response_tokens = sum(prompts), 6 * samples
    value_bytes = 4 * response_tokens if name == "ppo" else 0  # action_values
    expected = {
        "input": 8 * prompt_tokens,
        "policy": 13 * samples * length
        - 4 * samples
        + 8 * prompt_tokens
        + 4 * (prompt_tokens + response_tokens),
        "reference": 4 * samples * (length - 1),
        "reward": 17 * samples * length
        + 8 * response_tokens
        + value_bytes
        + 8 * prompt_tokens
        + 9 * samples
        + 4 * prompt_tokens,
    }
    if name == "ppo":
        expected["value"] = 4 * samples * length
    assert done.measured["message_bytes"] == expected


def test_bytes_of_dpo_are_those_of_chatlearns_formulas(run):
    done = run("--flow", "dpo", "--padding", "vllm", "--seq-length", "20", *episode_flags(2))
    pairs = 24 * 8 * 20
    sizes = {"input": pairs + 8 * 8, "reference": pairs + 16 * 8}
    assert done.expect_ok().measured["message_bytes"] == sizes
    fields = {}
    for field in done.plan.requested_flow.query.fields:
        fields[field.name] = (field.dtype, field.shape)
    assert fields == {
        "chosen": ("int64", (8, 20)),
        "rejected": ("int64", (8, 20)),
        "chosen_mask": ("float32", (8, 1, 20)),
        "rejected_mask": ("float32", (8, 1, 20)),
        "prompt_id_lens": ("int64", (8,)),
    }


def test_content_is_counted_without_the_storage_of_views():
    view = torch.zeros(100)[:3]
    payload = {
        "views": [view, view],
        "words": ["ab", "é"],
        "rewards": [[0.5], [1.5]],
        "ids": [[1, 2]],
    }
    assert content_bytes(payload) == 2 * 12 + 2 + 2 + 2 * 9 + 2 * 8
