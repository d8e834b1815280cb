"""--sink trainer of other transports: an actor cuts the results into micro-batches, and verifies their samples."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import torch

from dataflow.endpoints.outbox import Outbox
from dataflow.endpoints.tensors import Payload
from dataflow.studies import Collector, Part
from dataflow.studies.chatlearn.samples import (
    Batch,
    count_wrong,
    digest,
    digests,
    pad_samples,
    sample_bytes,
    split_samples,
)


class TrainerPart(Part):
    """Make micro-batches of the messages that the last task reads, and keep them until they are verified."""

    name = "chatlearn"
    traced: ClassVar[Mapping[str, str]] = {"train": "train"}

    def __init__(self, endpoint: Any) -> None:
        super().__init__(endpoint)
        self.task, self.options = endpoint.task_flow.tasks[-1].name, endpoint.plan.options
        self.edges = endpoint.task_flow.edges_to(self.task)
        self.micro_batches: dict[int, list[Batch]] = {}  # by iteration

    def run(self, task: str, number: int) -> None:
        if task == self.task:
            self.train(number, self.endpoint.inboxes[task].held[-1][1])

    def train(self, number: int, messages: Sequence[Payload]) -> None:
        """Keep copies, so that no message is held."""
        samples, size = split_samples(messages), self.options.train_micro_batch
        self.micro_batches[number] = [pad_samples(samples[n : n + size]) for n in range(0, len(samples), size)]
        if "trainer" in self.options.model_times:
            self.endpoint.compute(self.options.model_times["trainer"])

    @cached_property
    def outboxes(self) -> list[Outbox]:
        """Return outboxes with the same payloads as those of the senders."""
        slots, device = self.endpoint.task_flow.slots(self.options.in_flight), torch.device("cpu")
        return [Outbox(edge.source, edge.message, slots, device, False, None) for edge in self.edges]

    def end_group(self, number: int) -> Mapping[str, int]:
        """Return the bytes of wrong samples in all micro-batches since the last call."""
        wrong = 0
        for number, batches in self.micro_batches.items():
            sent = [outbox.payload(outbox.write_number(number)) for outbox in self.outboxes]
            wrong += count_wrong(Counter(map(digest, split_samples(sent))), digests(batches))
        self.micro_batches.clear()
        return {f"{self.task}, micro-batches": wrong * sample_bytes(self.edges)} if wrong else {}


class TrainerCollector(Collector):
    def add(self, values: Mapping[str, Mapping[str, int]], is_timed: bool) -> Mapping[str, int]:
        return sum(map(Counter, values.values()), Counter[str]())
