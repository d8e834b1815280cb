# SPDX-License-Identifier: Apache-2.0
"""Define a trained model and its processes, which take training steps without their computation."""

import time
from collections import Counter
from typing import Any

import ray
import torch
from ray.util.queue import Queue

from dataflow.studies.chatlearn.counts import CountingPart
from dataflow.studies.chatlearn.flags import chatlearn_flags
from dataflow.studies.chatlearn.samples import Batch, digests_of_batches
from dataflow.trace.spans import count_faults

Span = tuple[int, str, float, float, int]  # as in dataflow/trace/spans.py


class Trainer:
    """One data-parallel rank of a trained model.

    It fetches the micro-batches of its steps, and keeps them until they are verified.
    """

    def __init__(self, threads: int, step_seconds: float = 0.0) -> None:
        torch.set_num_threads(threads)
        self.step_seconds = step_seconds
        self.batches: list[Batch] = []
        self.steps: list[Span] = []

    def train_step(self, references: list[Any]) -> None:
        start = time.perf_counter()
        faults = count_faults()
        for batch in ray.get(references):
            if batch is not None:
                self.batches.append(batch)
        time.sleep(self.step_seconds)  # --model-seconds trainer=...
        span = (0, "train", start, time.perf_counter(), count_faults() - faults)
        self.steps.append(span)

    def spans(self) -> list[Span]:
        return self.steps  # for --trace, including the wait for micro-batches

    def sample_digests(self) -> Counter[int]:
        """Return how often each sample has come since the last call, by its hash."""
        batches = self.batches
        self.batches = []
        return digests_of_batches(batches)


def make_queue(counts: CountingPart) -> Any:
    counts.count("trainer_queue_actors")
    return Queue()


class TrainedModel:
    """A model that is trained: a process per data-parallel rank, and a queue of their micro-batches."""

    def __init__(self, index: int, options: Any, counts: CountingPart) -> None:
        self.name = "trainer" if index == 0 else f"trainer-{index + 1}"
        self.counts = counts
        step_seconds = options.model_times.get("trainer", 0.0)
        actor_class = ray.remote(num_cpus=0)(Trainer)
        self.ranks: list[Any] = []
        for _ in range(chatlearn_flags(options).data_parallel):
            rank = actor_class.remote(options.threads, step_seconds)
            self.ranks.append(rank)

    def begin_episode(self) -> None:
        self.queue = make_queue(self.counts)

    def put(self, number: int, references: list[Any]) -> None:
        """Queue references to the micro-batches of one rank for one step."""
        self.counts.count("trainer_put")
        self.queue.put({"iter": number, "data": references})

    def start_step(self) -> list[Any]:
        """Give each rank its list of micro-batches; return references to the ends of the step."""
        running: list[Any] = []
        for rank in self.ranks:
            self.counts.count("trainer_get")
            references = self.queue.get()["data"]
            end = rank.train_step.remote(references)
            running.append(end)
        return running

    def sample_digests(self) -> Counter[int]:
        """Return how often each sample has come to all ranks together since the last call, by its hash."""
        total: Counter[int] = Counter()
        references = [rank.sample_digests.remote() for rank in self.ranks]
        for digests in ray.get(references):
            total += digests
        return total

    def spans(self) -> dict[str, list[Span]]:
        """Return the steps of each process, by its name."""
        spans: dict[str, list[Span]] = {}
        for index, rank in enumerate(self.ranks):
            process = self.name if index == 0 else f"{self.name}.{index}"
            spans[process] = ray.get(rank.spans.remote())
        return spans
