# SPDX-License-Identifier: Apache-2.0
"""Define ChatLearn's StreamDataset: it reads the results of an episode, and gives micro-batches to trainers.

alibaba/ChatLearn at 85ee7dfe: data/data.py. Without a relay buffer, it reads a message when the next micro-batch needs
it. With one, it first reads the whole episode, and then gives the samples of the newest episodes, the oldest first.
"""

from collections import Counter, deque
from functools import cached_property
from typing import Any

import ray

from dataflow.endpoints.actor import Actor
from dataflow.studies.chatlearn.counts import CountingPart, counts_of
from dataflow.studies.chatlearn.flags import DATASET, ChatLearnFlags, chatlearn_flags
from dataflow.studies.chatlearn.samples import (
    Batch,
    Sample,
    digests_of,
    pad_samples,
    split_samples,
)


class EpisodeSamples:
    """The samples of one episode."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    @cached_property
    def digests(self) -> Counter[int]:
        """Return the hashes that the samples had at the end of their own episode, when this is called first.

        So a change of a sample in a later episode is found.
        """
        return digests_of(self.samples)


class StreamDataset(Actor):
    """An actor that can read the last queue of an episode."""

    @cached_property
    def flags(self) -> ChatLearnFlags:
        return chatlearn_flags(self.plan.options)

    @cached_property
    def episodes(self) -> deque[EpisodeSamples]:
        """Return the episodes whose samples are kept, the newest one last."""
        return deque(maxlen=max(1, self.flags.relay_episodes))

    @cached_property
    def counts(self) -> CountingPart:
        return counts_of(self)

    def begin_episode(self, queue: Any) -> None:
        """Start an episode: with a relay buffer, read all its messages now; else note how many next() has to read.

        `queue` has the references to its messages. If a model failed to make one, reading it raises that error.
        """
        self.queue = queue
        self.acknowledgements: list[Any] = []  # for the driver, one per message
        self.episodes.append(EpisodeSamples())  # this drops the oldest one if there are too many
        self.samples: list[Sample] = []  # of all kept episodes
        for episode in self.episodes:
            self.samples += episode.samples
        self.given_samples = 0
        self.unread_messages = 0
        if self.flags.relay_episodes:
            while self.count_waiting():
                self.read_message()
        else:
            self.unread_messages = self.count_waiting()

    def count_waiting(self) -> int:
        self.counts.count("stream_dataset_qsize")
        return self.queue.qsize()

    def read_message(self) -> None:
        """Fetch the payloads of the next message, acknowledge them, and cut them into samples."""
        self.count_waiting()  # ChatLearn asks once more before each message
        self.counts.count("stream_dataset_get")
        references = self.queue.get()["data"]
        inputs = ray.get(references)
        acknowledgement = self.forward_step(DATASET, *inputs)
        self.acknowledgements.append([acknowledgement])
        _, payloads = self.inboxes[DATASET].held[-1]
        samples = split_samples(payloads)
        self.episodes[-1].samples += samples
        self.samples += samples

    def next(self) -> Batch | None:
        """Return the next micro-batch, or None after the last one, which can be smaller than the others."""
        begin = self.given_samples
        end = begin + self.flags.train_micro_batch
        while self.unread_messages and len(self.samples) < end:
            self.read_message()
            self.unread_messages -= 1
        batch = self.samples[begin:end]
        self.given_samples += len(batch)
        return pad_samples(batch) if batch else None

    def has_next(self) -> bool:
        return self.unread_messages > 0 or self.given_samples < len(self.samples)

    def end_episode(self) -> list[Any]:
        return self.acknowledgements

    def sample_digests(self) -> Counter[int]:
        """Return how often each sample should have reached the trainers in this episode, by its hash."""
        total: Counter[int] = Counter()
        for episode in self.episodes:
            total += episode.digests
        return total
