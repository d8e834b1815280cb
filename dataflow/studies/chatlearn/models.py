"""Define ChatLearn's actors without their computation: models, the StreamDataset behind them, and a trainer.

Each sample must be in one micro-batch of the trainer, and in no other; its hash is compared.
alibaba/ChatLearn at 85ee7dfe: models/base_module.py, utils/decorator.py, data/data.py, runtime/trainer.py.
"""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import ray
import torch
import xxhash

from dataflow.endpoints.actor import Actor
from dataflow.endpoints.payload import raw_bytes
from dataflow.endpoints.tensors import Payload, to_array
from dataflow.studies.chatlearn import DATASET
from dataflow.trace.spans import count_faults

Batch = dict[str, Any]  # of fields; each has a value per sample


def split_samples(messages: Sequence[Payload]) -> list[Batch]:
    """Return one dict of views per sample, with the fields of all messages; of equal names, the last message's."""
    merged = {name: value for message in messages for name, value in message.items()}
    count = len(next(iter(merged.values())))
    return [{name: value[index] for name, value in merged.items()} for index in range(count)]


def pad_samples(samples: Sequence[Batch]) -> Batch:
    """Return samples as one dict of fields. Flat tensors are filled with zeros to equal lengths; strings stay lists."""
    batch: Batch = {}
    for name, first in samples[0].items():
        values = [sample[name] for sample in samples]
        if isinstance(first, (str, list)):
            batch[name] = values
        elif first.dim() == 1:
            batch[name] = torch.nn.utils.rnn.pad_sequence(values, batch_first=True)
        else:
            batch[name] = torch.stack(values)
    return batch


def digest(sample: Batch) -> int:
    """Return a hash of all fields of a sample, without the zeros that padding adds."""
    state = xxhash.xxh3_64()
    for name, value in sorted(sample.items()):
        kind = getattr(value, "dtype", type(value).__name__)
        data = (
            raw_bytes(to_array(value) if isinstance(value, torch.Tensor) else value)
            .tobytes()
            .rstrip(b"\0")
        )
        state.update(f"{name} {kind} {len(data)} ".encode() + data)
    return state.intdigest()


def digests(batches: Iterable[Batch]) -> Counter[int]:
    """Return how often each sample is in these micro-batches, by its hash."""
    return Counter(digest(sample) for batch in batches for sample in split_samples([batch]))


def count_wrong(sent: Counter[int], received: Counter[int]) -> int:
    """Return how many samples were lost, repeated or changed."""
    return max((sent - received).total(), (received - sent).total())


class ChatLearnActor(Actor):
    """Be a model, or the StreamDataset, which reads the results of an episode from the last queue.

    StreamDataset splits messages into samples, and pads the samples again into micro-batches. It reads a message when
    the next micro-batch needs it.
    """

    def begin_episode(self, queue):
        self.queue, self.unread_messages = queue, queue.qsize()
        self.acknowledgements = []  # for the driver, one per message
        self.samples: list[Batch] = []
        self.given_samples = 0

    def next(self):
        """Return the next micro-batch, or None after the last one."""
        begin, end = self.given_samples, self.given_samples + self.plan.options.train_micro_batch
        while self.unread_messages and len(self.samples) < end:
            self.queue.qsize()  # ChatLearn asks once per message
            inputs = ray.get(self.queue.get()["data"])
            self.acknowledgements.append([self.forward_step(DATASET, *inputs)])
            self.samples += split_samples(self.inboxes[DATASET].held[-1][1])
            self.unread_messages -= 1
        self.given_samples = min(end, len(self.samples))
        return pad_samples(self.samples[begin:end]) if begin < self.given_samples else None

    def has_next(self):
        return self.given_samples < len(self.samples) or self.unread_messages > 0

    def end_episode(self):
        return self.acknowledgements

    def sample_digests(self):
        return Counter(map(digest, self.samples))


class Trainer:
    """Fetch the micro-batches of each step, and keep them for the check."""

    def __init__(self, threads, step_seconds=0.0):
        torch.set_num_threads(threads)
        self.step_seconds, self.batches, self.steps = step_seconds, [], []

    def train_step(self, references):
        start, faults = time.perf_counter(), count_faults()
        self.batches += [batch for batch in ray.get(references) if batch is not None]
        time.sleep(self.step_seconds)  # --model-seconds trainer=...
        self.steps.append((0, "train", start, time.perf_counter(), count_faults() - faults))

    def spans(self):
        return self.steps  # for --trace, including the wait for micro-batches

    def sample_digests(self):
        """Return the digests of all samples since the last call."""
        batches, self.batches = self.batches, []
        return digests(batches)
