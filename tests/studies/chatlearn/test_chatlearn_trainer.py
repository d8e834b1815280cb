# SPDX-License-Identifier: Apache-2.0
"""Test ChatLearn's dataset, relay buffer and trainers: each sample must reach each trained model exactly once."""

from collections import Counter

import pytest
import ray
import torch
from in_process import flip_bit
from local_episodes import BATCH_SIZE, episode_flags, make_runner

from dataflow.endpoints.payload import Outbox
from dataflow.flows.catalogue import build_flow
from dataflow.measure.data_path import expected_stored_bytes, find_other_data_path
from dataflow.records.schema import Run
from dataflow.studies.chatlearn import dataset
from dataflow.studies.chatlearn.dataset import StreamDataset
from dataflow.studies.chatlearn.samples import digest, digests_of_batches, split_samples
from dataflow.studies.chatlearn.trainer import Trainer

TRAINED = ("--flow", "grpo", "--message", "fields", "--sink", "trainer", "--train-global-batch", "8",
           "--train-micro-batch", "4")  # fmt: skip
BEGUN = "begun"


@pytest.fixture
def run(make_plan, monkeypatch, tmp_path):
    return make_runner(make_plan, monkeypatch, tmp_path)


@pytest.fixture
def steps(monkeypatch):
    """The micro-batches of each training step of each process, as they come: (process, batches)."""
    seen = []
    train_step = Trainer.train_step

    def train_and_note(self, references):
        seen.append((id(self), references))
        train_step(self, references)

    monkeypatch.setattr(Trainer, "train_step", train_and_note)
    return seen


def test_dataset_reads_a_message_when_a_micro_batch_needs_it(run, monkeypatch):
    next_batch = StreamDataset.next
    read = []

    def next_and_note(self):
        batch = next_batch(self)
        read.append((self.given_samples, len(self.acknowledgements)))
        return batch

    monkeypatch.setattr(StreamDataset, "next", next_and_note)
    run(*TRAINED, *episode_flags(2)).expect_ok()
    messages_after_first_batch = {count for given, count in read if given == 4}
    assert messages_after_first_batch == {1}


def test_an_error_of_the_dataset_at_the_start_of_an_episode_is_seen_before_those_of_models(
    run, monkeypatch
):
    begin_episode = StreamDataset.begin_episode
    got = []

    def begin_and_name(self, queue):
        begin_episode(self, queue)
        return BEGUN

    def get_and_note(value):
        got.append(value)
        return value

    monkeypatch.setattr(StreamDataset, "begin_episode", begin_and_name)
    monkeypatch.setattr(ray, "get", get_and_note)
    run(*TRAINED, *episode_flags(2)).expect_ok()
    firsts = [value[0] for value in got if isinstance(value, list) and value]
    assert any(first is BEGUN for first in firsts)


def test_with_a_relay_buffer_the_dataset_reads_the_whole_episode_first(run, monkeypatch):
    next_batch = StreamDataset.next
    unread = []

    def note_and_next(self):
        unread.append(len(self.queue))
        return next_batch(self)

    monkeypatch.setattr(StreamDataset, "next", note_and_next)
    run(*TRAINED, *episode_flags(2), "--relay-episodes", "1").expect_ok()
    assert set(unread) == {0}


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_samples_of_the_newest_episodes_are_trained_on_again_the_oldest_first(run, steps, kept):
    flags = (*episode_flags(2, episodes=4), "--relay-episodes", str(kept))
    done = run(*TRAINED, *flags).expect_ok()
    of_steps = [digests_of_batches([batch for batch in step if batch]) for _, step in steps]
    steps_of_episode = 2 * BATCH_SIZE // 8
    newest = of_steps[-steps_of_episode:]
    last = of_steps[-kept * steps_of_episode :]  # all steps of the last episode
    # Its samples come last. The ones before them are those that ended the episode before.
    assert sum(last, Counter()).total() == kept * 2 * BATCH_SIZE
    if kept > 1:
        before = of_steps[-kept * steps_of_episode - steps_of_episode : -kept * steps_of_episode]
        assert last[-2 * steps_of_episode : -steps_of_episode] == before
        assert newest != before
    assert done.operations["trainer_put"] == kept * steps_of_episode


def test_a_sample_that_changes_after_its_own_episode_fails_the_run(run, monkeypatch):
    """As a transport would do that reuses the memory of an earlier message."""
    begin_episode = StreamDataset.begin_episode

    def change_and_begin(self, queue):
        if len(self.episodes) == 2:
            self.episodes[-1].samples[0]["ref_logprobs"][2] += 1
        begin_episode(self, queue)

    monkeypatch.setattr(StreamDataset, "begin_episode", change_and_begin)
    done = run(*TRAINED, *episode_flags(2), "--relay-episodes", "2")
    assert done.run.status == "failed"
    assert set(done.run.wrong_bytes_by_field) == {"stream-dataset -> trainer"}


@pytest.mark.parametrize("flow", ["grpo", "ppo"])
def test_data_parallel_ranks_together_receive_each_sample_exactly_once(run, steps, flow):
    flags = ("--flow", flow, "--data-parallel", "2", "--train-micro-batch", "2")
    run(*TRAINED, *flags, *episode_flags(2)).expect_ok()
    trained_models = 2 if flow == "ppo" else 1
    processes = dict.fromkeys(process for process, _ in steps)
    assert len(processes) == 2 * trained_models
    samples = {process: Counter() for process in processes}
    for process, batches in steps:
        assert len(batches) == 2  # of 2 samples: the half of a global batch
        samples[process] += digests_of_batches(batches)
    ranks = list(samples.values())
    first_model = ranks[0] + ranks[1]
    assert ranks[0].total() == ranks[1].total()
    if flow == "ppo":
        assert ranks[2] + ranks[3] == first_model


def test_a_rank_takes_the_next_micro_batches_of_the_dataset(run, steps):
    """The first rank reads the first list of a step, which has the first micro-batches, and so on."""
    run(*TRAINED, "--train-micro-batch", "2", *episode_flags(2)).expect_ok()
    alone = [digests_of_batches(batches) for _, batches in steps]
    steps.clear()
    flags = ("--data-parallel", "2", "--train-micro-batch", "2", *episode_flags(2))
    run(*TRAINED, *flags).expect_ok()
    shared = [digests_of_batches(batches) for _, batches in steps]
    both = [shared[index] + shared[index + 1] for index in range(0, len(shared), 2)]
    assert both == alone


def change_sample(batches):
    batches[0]["rm_rewards"][0] = [9.5]
    return batches


def exchange_field(batches):
    """Exchange a field of two samples."""
    batches[0]["action_logprobs"] = batches[0]["action_logprobs"].flip(0)
    return batches


@pytest.mark.parametrize(("ranks", "relay"), [("1", "0"), ("2", "2")])
@pytest.mark.parametrize(
    "change",
    [
        lambda b: b[1:],
        lambda b: b + b[:1],
        lambda b: b[:-1] + b[-1:] * 2,
        change_sample,
        exchange_field,
    ],
)
def test_a_sample_that_does_not_reach_the_trainer_exactly_once_fails_the_run(
    run, monkeypatch, change, ranks, relay
):
    step = Trainer.train_step
    monkeypatch.setattr(
        Trainer, "train_step", lambda self, references: step(self, change(references))
    )
    flags = ("--data-parallel", ranks, "--relay-episodes", relay)
    done = run(*TRAINED, *flags, *episode_flags(2))
    assert done.run.status == "failed"
    assert set(done.run.wrong_bytes_by_field) == {"stream-dataset -> trainer"}


def test_the_second_trained_model_is_verified_too(run, monkeypatch):
    step = Trainer.train_step
    first = []

    def lose_in_second(self, references):
        first.append(self)
        step(self, references if self is first[0] else references[1:])

    monkeypatch.setattr(Trainer, "train_step", lose_in_second)
    done = run(*TRAINED, "--flow", "ppo", *episode_flags(2))
    assert set(done.run.wrong_bytes_by_field) == {"stream-dataset -> trainer-2"}


@pytest.mark.parametrize(
    "change", [lambda samples: samples[:-1], lambda samples: samples + samples[:1]]
)
def test_a_sample_that_the_dataset_loses_or_repeats_fails_the_run(run, monkeypatch, change):
    monkeypatch.setattr(dataset, "split_samples", lambda messages: change(split_samples(messages)))
    done = run(*TRAINED, *episode_flags(2))
    assert done.run.status == "failed"
    assert "stream-dataset" in done.run.wrong_bytes_by_field


def test_a_changed_bit_of_any_field_or_another_dtype_changes_the_digest_of_a_sample():
    sizes = {"batch_size": 1, "prompt_len": "uniform:3:9", "response_len": "uniform:2:7"}
    message = build_flow("ppo", sizes, "fields").message("reward")
    payload = Outbox("reward", message, 1, torch.device("cpu")).pool[0]
    (sample,) = split_samples([payload])
    for name in payload:
        (changed,) = split_samples([flip_bit(payload, name)])
        assert digest(changed) != digest(sample), name
    other_dtype = sample | {"ref_logprobs": sample["ref_logprobs"].view(torch.int32)}
    assert digest(other_dtype) != digest(sample)


def test_the_micro_batches_of_the_trainer_are_stored_too(make_plan):
    flags = ("--transport", "ref-queue", "--message", "fields", "--batch-size", "64", "--prompt-len", "389",
             "--response-len", "512", *episode_flags(4, episodes=2), "--warmup", "0")  # fmt: skip
    plan = make_plan("store", *flags, "--sink", "trainer")
    messages = expected_stored_bytes(plan)
    batches = plan.task_flow.edges_to("stream-dataset")[0].bytes
    for stored, is_expected in ((messages + batches, True), (messages + 2 * batches, False)):
        problem = find_other_data_path(plan, Run(stored_bytes=4 * stored), {}, range(2, 6))
        assert (problem is None) == is_expected
    relayed = make_plan("store", *flags, "--sink", "trainer", "--relay-episodes", "2")
    assert relayed.added.stored_bytes == 2 * plan.added.stored_bytes
    # The longest sample sets the length.
    uneven = make_plan("store", *flags, "--sink", "trainer", "--prompt-len", "uniform:10:100")
    assert uneven.added.stored_bytes > uneven.task_flow.edges_to("stream-dataset")[0].bytes
    assert make_plan("store", *flags).added.stored_bytes == 0
