"""--sink trainer: cut the results into micro-batches, and verify that each sample is in one of them."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

from dataflow.studies import Collector, Part
from dataflow.studies.chatlearn import samples


class TrainerPart(Part):
    """Make micro-batches of an iteration's results, and keep them until they are verified.

    An actor that has a method take_samples(messages), as ChatLearn's dataset, gets the results instead.
    """

    name = "chatlearn"
    traced: ClassVar[Mapping[str, str]] = {"train": "train"}

    def __init__(self, endpoint: Any) -> None:
        super().__init__(endpoint)
        self.sink_task = endpoint.task_flow.tasks[-1].name
        self.micro_batches: dict[int, list[samples.Batch]] = {}

    def run(self, task: str, number: int) -> None:
        if task == self.sink_task:
            messages = self.endpoint.inboxes[task].held[-1][1]
            take = getattr(self.endpoint, "take_samples", None)
            if take:
                take(messages)
            else:
                self.train(number, messages)

    def train(self, number: int, messages: Any) -> None:
        options = self.endpoint.plan.options
        self.micro_batches[number] = samples.make_micro_batches(messages, options.train_micro_batch)
        if "trainer" in options.model_times:
            self.endpoint.compute(options.model_times["trainer"])

    def end_group(self, number: int) -> Mapping[str, int]:
        """Return the wrong bytes of all micro-batches since the last call."""
        wrong = Counter[str]()
        while self.micro_batches:
            number, batches = self.micro_batches.popitem()
            edges = self.endpoint.inboxes[self.sink_task].edges
            wrong.update(samples.verify_micro_batches(batches, edges, number, self.endpoint.digests))
        return wrong


class TrainerCollector(Collector):
    def add(self, values: Mapping[str, Mapping[str, int]], is_timed: bool) -> Mapping[str, int]:
        return sum(map(Counter, values.values()), Counter[str]())
