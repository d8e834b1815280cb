"""An actor of the flow without its computation."""

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

from common.payload import samples
from common.payload.leaves import Payload
from common.payload.participant import Participant
from common.plan.plan import Plan


class Model(Participant):
    """Each of its tasks reads its inputs and emits its payload."""

    def __init__(self, plan: Plan, name: str) -> None:
        torch.set_num_threads(plan.options.threads)
        super().__init__(plan, name)
        # A task that reads nothing but what this actor's own tasks emitted takes its number from the last of those.
        local = [task for task in self.tasks.values() if not self.inboxes[task.name].edges]
        self.followers = {name: [task.name for task in local if task.reads[-1] == name] for name in self.tasks}
        self.stays: dict[str, deque[int]] = {task: deque() for task in self.tasks}
        self.batches: dict[int, list[samples.Batch]] = {}
        self.times = plan.options.model_times

    def forward_step(self, task: str, *inputs: Any) -> Any:
        """Take a task's inputs, in the order of the flow's edges, and give its payload."""
        number = self.receive(inputs, task) if self.inboxes[task].edges else self.stays[task].popleft()
        for follower in self.followers[task]:
            self.stays[follower].append(number)
        if self.place.actor in self.times:
            self.compute(self.times[self.place.actor])
        if task == self.plan.sink:
            self.take_samples(number, self.inboxes[task].held[-1][1])
        return self.emit(number, task)

    def compute(self, seconds: float) -> None:
        """--model-seconds: the model's own work, which needs no CPU here."""
        time.sleep(seconds)

    def take_samples(self, number: int, messages: Sequence[Payload]) -> None:
        """--sink trainer: what the flow returned; ChatLearn's StreamDataset keeps it for trainers that are others."""
        self.train(number, messages)

    def train(self, number: int, messages: Sequence[Payload]) -> None:
        """--sink trainer: this actor is the trainer; it keeps an episode's micro-batches until they are checked."""
        self.batches[number] = samples.micro_batches(messages, self.plan.options.train_micro_batch)
        if "trainer" in self.times:
            self.compute(self.times["trainer"])

    def verify(self, first: int, last: int) -> tuple[dict[str, int], dict[str, bool | None]]:
        wrong, mapped = super().verify(first, last)
        batches, self.batches = self.batches, {}
        for number, own in batches.items():
            edges = self.inboxes[str(self.plan.sink)].edges
            for name, bad in samples.wrong_bytes(own, edges, number, self.plan.options.slots, self.digests).items():
                wrong[name] = wrong.get(name, 0) + bad
        return wrong, mapped
