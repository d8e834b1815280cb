"""Define ChatLearn's actors without their computation: models, the StreamDataset behind them, and trainers.

alibaba/ChatLearn at 85ee7dfe: models/base_module.py, utils/decorator.py, data/data.py, runtime/trainer.py.
"""

import time
from collections import Counter

import ray
import torch

from dataflow.endpoints.actor import Actor
from dataflow.studies.chatlearn.flags import DATASET
from dataflow.studies.chatlearn.trainer import digest, digests, pad_samples, split_samples
from dataflow.trace.recorder import count_faults


class ChatLearnActor(Actor):
    """Be one rank of a model, or the StreamDataset, which reads the results of an episode from the last queue.

    StreamDataset splits messages into samples, and pads the samples again into micro-batches. It reads a message when
    the next micro-batch needs it; with --relay-episodes, it reads all messages before the first micro-batch.
    """

    def forward_step(self, task, *inputs):
        output = super().forward_step(task, *inputs)
        if task == DATASET:
            self.samples += split_samples(self.inboxes[task].held[-1][1])
        return output if self.worker.answers else None

    def begin_episode(self, queue, kept_samples):
        """Prepare to read a queue. Keep this number of samples of earlier episodes, which come first."""
        self.queue, self.unread_messages = queue, queue.qsize()
        self.acknowledgements = []  # for the driver, one per message
        self.samples: list = self.samples[-kept_samples:] if kept_samples else []
        self.given_samples = 0

    def read_messages(self, sample_count):
        """Read messages until there are this many samples, or no more messages."""
        reads_all = self.plan.options.relay_episodes > 1
        while self.unread_messages and (reads_all or len(self.samples) < sample_count):
            self.queue.qsize()  # ChatLearn asks once per message
            inputs = ray.get(self.queue.get()["data"])
            self.acknowledgements.append([self.forward_step(DATASET, *inputs)])
            self.unread_messages -= 1

    def next(self):
        """Return the next micro-batch, or None after the last one."""
        end = self.given_samples + self.plan.options.train_micro_batch
        self.read_messages(end)
        samples = self.samples[self.given_samples : end]
        self.given_samples += len(samples)
        return pad_samples(samples) if samples else None

    def has_next(self):
        return self.given_samples < len(self.samples) or self.unread_messages > 0

    def end_episode(self):
        return self.acknowledgements

    def sample_digests(self):
        return Counter(map(digest, self.samples))


class Trainer:
    """Fetch the micro-batches of each step, as one data-parallel rank of a trainer, and keep them for the check."""

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
