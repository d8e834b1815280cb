# SPDX-License-Identifier: Apache-2.0
"""Run the training steps of an episode, as ChatLearn's trainer does.

alibaba/ChatLearn at 85ee7dfe: runtime/trainer.py. All lists of micro-batches are queued first, one per step and
data-parallel rank. Then each trained model takes its steps. In a step, each rank reads one list.
"""

import math
from collections import deque
from typing import Any

import ray

from dataflow.studies.chatlearn.counts import counts_of
from dataflow.studies.chatlearn.flags import DATASET, chatlearn_flags
from dataflow.studies.chatlearn.samples import count_wrong
from dataflow.studies.chatlearn.trainer import Span, TrainedModel, make_queue
from dataflow.workers.worker_group import WorkerGroup


class Training:
    """The trained models behind StreamDataset."""

    def __init__(self, workers: WorkerGroup) -> None:
        """Start the trained models of a plan with ChatLearn's dataset, and do not wait for them.

        rules.py has rejected flags with which a global batch is not divided evenly into the micro-batches of all ranks,
        and results whose messages have different numbers of samples.
        """
        plan = workers.plan
        flags = chatlearn_flags(plan.options)
        self.counts = counts_of(workers.driver)
        self.dataset = workers.actors[DATASET]
        self.global_batch = flags.train_global_batch  # samples per step
        self.data_parallel = flags.data_parallel
        rank_samples = self.global_batch // self.data_parallel
        self.rank_batches = rank_samples // flags.train_micro_batch  # micro-batches per step
        count = flags.trained_models(plan.requested_flow.name)
        self.models = [TrainedModel(index, plan.options, self.counts) for index in range(count)]
        edges = plan.task_flow.edges_to(DATASET)
        (self.batch_size,) = edges[0].message.sample_counts
        message_bytes = sum(edge.bytes for edge in edges)
        self.sample_bytes = math.ceil(message_bytes / self.batch_size)
        kept_episodes = max(1, flags.relay_episodes)
        self.message_counts: deque[int] = deque(maxlen=kept_episodes)  # of each kept episode

    @property
    def samples(self) -> int:
        """Return the samples of an episode for the trainers, with those of the relay buffer."""
        return sum(self.message_counts) * self.batch_size

    def train(self, queue: Any, message_count: int) -> list[Any]:
        """Train on the samples of an episode, and return StreamDataset's acknowledgement of each message.

        Raise the error of StreamDataset if it cannot read the episode, and not what follows from it in a trained model.
        """
        self.message_counts.append(message_count)
        begun = self.dataset.begin_episode.remote(queue)
        _results = make_queue(self.counts)  # not used: ChatLearn makes one, too, and never fills it
        for model in self.models:
            model.begin_episode()
        steps = math.ceil(self.samples / self.global_batch)
        for list_number in range(steps * self.data_parallel):
            references = self.request_micro_batches()
            for model in self.models:
                model.put(list_number, references)
        running: list[Any] = []
        for model in self.models:
            for _ in range(steps):
                running += model.start_step()
        ray.get([begun, *running])  # it raises the error of the first one that has failed
        return ray.get(self.dataset.end_episode.remote())

    def request_micro_batches(self) -> list[Any]:
        """Return references to the micro-batches of one data-parallel rank for one step."""
        references: list[Any] = []
        for _ in range(self.rank_batches):
            reference = self.dataset.next.remote()
            references.append(reference)
            self.counts.count("trainer_blocking_gets")
            ray.get(self.dataset.has_next.remote())
        return references

    def spans(self) -> dict[str, list[Span]]:
        """Return the steps of each process of the trained models, by its name."""
        spans: dict[str, list[Span]] = {}
        for model in self.models:
            spans |= model.spans()
        return spans

    def check(self) -> dict[str, int]:
        """Return the bytes of samples that StreamDataset lost, or that a model did not receive exactly once."""
        kept = ray.get(self.dataset.sample_digests.remote())
        wrong_samples = {DATASET: abs(self.samples - kept.total())}
        for model in self.models:
            edge = f"{DATASET} -> {model.name}"
            wrong_samples[edge] = count_wrong(kept, model.sample_digests())
        wrong_bytes: dict[str, int] = {}
        for name, count in wrong_samples.items():
            if count:
                wrong_bytes[name] = count * self.sample_bytes
        return wrong_bytes
