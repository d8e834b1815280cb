"""Cut messages into samples and pad these into micro-batches; an actor does so at the end with --sink trainer.

The samples are verified by their hashes: each must be in one micro-batch, and in no other.
"""

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
import xxhash

from dataflow.endpoints.payload import raw_bytes
from dataflow.endpoints.tensors import Payload, to_array
from dataflow.studies import Collector, Part

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
        data = raw_bytes(to_array(value) if isinstance(value, torch.Tensor) else value).tobytes().rstrip(b"\0")
        state.update(f"{name} {kind} {len(data)} ".encode() + data)
    return state.intdigest()


def digests(batches: Iterable[Batch]) -> Counter[int]:
    """Return how often each sample is in these micro-batches, by its hash."""
    return Counter(digest(sample) for batch in batches for sample in split_samples([batch]))


def count_wrong(sent: Counter[int], received: Counter[int]) -> int:
    """Return how many samples were lost, repeated or changed."""
    return max((sent - received).total(), (received - sent).total())


class TrainerPart(Part):
    """Make micro-batches of the messages that the last task reads, and keep the newest ones until they are verified."""

    name = "chatlearn"
    traced: ClassVar[Mapping[str, str]] = {"train": "train"}

    def __init__(self, endpoint: Any) -> None:
        super().__init__(endpoint)
        self.task, self.options = endpoint.task_flow.tasks[-1].name, endpoint.plan.options
        # As many messages as the inbox holds, and the micro-batches of each.
        self.held: deque[tuple[Sequence[Payload], list[Batch]]] = deque(maxlen=self.options.in_flight)

    def run(self, task: str, number: int) -> None:
        if task == self.task:
            self.train(self.endpoint.inboxes[task].held[-1][1])

    def train(self, messages: Sequence[Payload]) -> None:
        samples, size = split_samples(messages), self.options.train_micro_batch
        batches = [pad_samples(samples[start : start + size]) for start in range(0, len(samples), size)]
        self.held.append((messages, batches))
        if "trainer" in self.options.model_times:
            self.endpoint.compute(self.options.model_times["trainer"])

    def end_group(self, number: int) -> int:
        """Return the bytes of wrong samples in the newest micro-batches."""
        wrong = 0
        for messages, batches in self.held:
            sent = Counter(map(digest, split_samples(messages)))
            message_bytes = sum(edge.bytes for edge in self.endpoint.inboxes[self.task].edges)
            wrong += count_wrong(sent, digests(batches)) * math.ceil(message_bytes / sent.total())
        self.held.clear()
        return wrong


class TrainerCollector(Collector):
    def add(self, values: Mapping[str, int], is_timed: bool) -> Mapping[str, int]:
        return {f"{worker}, micro-batches": wrong for worker, wrong in values.items() if wrong}
