"""ChatLearn's actors without their computation: models, the StreamDataset behind them, and the trainers behind that.

alibaba/ChatLearn at 85ee7dfe: models/base_module.py, utils/decorator.py, data/data.py, runtime/trainer.py.
"""

import random
import time
from collections import Counter, deque

import ray
import torch
import xxhash

from common.errors import RunFailed
from common.flow.flow import DATASET
from common.flow.own_code import explained
from common.payload import pattern
from common.payload.leaves import cut, join, to_device, to_host
from common.payload.model import Model
from common.payload.participant import Participant
from common.payload.samples import padded, split


class HostModel(Model):
    """The producing worker copies device to host, the reading worker host to device."""

    def forward_step(self, task, *inputs):
        return to_host(super().forward_step(task, *(to_device(message, self.device) for message in inputs)))


class Sized:
    """Says what its messages take when Ray serialises them."""

    def message_bytes(self, count):
        context = ray._private.worker.global_worker.get_serialization_context()
        return {
            task: [
                context.serialize(to_host(outbox.payload(outbox.stamp(number)))).total_bytes
                for number in range(1, count + 1)
            ]
            for task, outbox in self.outboxes.items()
            if self.wire.edges_from(task) and task != DATASET
        }


class SizedDriver(Sized, Participant):
    pass


class StreamDataset:
    """Takes what the last queue of an episode holds, splits it into samples, and pads those again into micro-batches.

    It takes no more messages than the next micro-batch needs. The fixed loader knows how many come, the dynamic one
    asks the queue. Where samples of earlier episodes are trained on again, either takes all messages first.
    """

    def open_episode(self, queue, messages):
        """Its samples, and those of the episodes before it that are still kept."""
        options = self.plan.options
        self.queue, self.coming, self.filled, self.words, self.fresh = queue, messages, None, [], []
        self.kept = getattr(self, "kept", deque(maxlen=options.relay_episodes - 1))
        self.samples = [sample for episode in self.kept for sample in episode]
        self.operations = Counter()
        self.relays = options.relay_episodes > 1 or bool(options.relay_sample)
        self.asks = self.relays or options.loader == "dynamic"
        if not self.asks:
            self._size()

    def sample_by(self, function, file):
        """--relay-sample: `function` chooses from the samples of the episodes that are kept."""
        self.sampler, self.sampler_file = function, file

    def sampled(self):
        """How many samples were chosen, after all messages were taken."""
        self._fill(0)
        self.samples = self._chosen()
        return len(self.samples)

    def open_epoch(self, epoch):
        """Later epochs have the same samples in another order."""
        self.order = None
        if epoch:
            self.order = random.Random(epoch).sample(range(len(self.samples)), len(self.samples))
        self.given = 0

    def _fill(self, count):
        """Take messages until there are so many samples, or all of them."""
        while (self.relays or len(self.samples) < count) and self._more():
            if not self.asks:
                self._size()
            self.operations["stream_dataset_get"] += 1
            inputs = ray.get(self.queue.get()["data"])
            self.words.append(self.forward_step(DATASET, *inputs))
            self.coming, self.filled = self.coming - 1, None

    def _more(self):
        """Whether there is another message; who asks the queue does so once for each, and once when it is empty."""
        if not self.asks:
            return self.coming > 0
        if self.filled is None:
            self.filled = self._size() > 0
        return self.filled

    def _size(self):
        self.operations["stream_dataset_qsize"] += 1
        return self.queue.qsize()

    def _chosen(self):
        episodes = [*self.kept, self.fresh]
        try:
            chosen = self.sampler([list(episode) for episode in episodes])
        except Exception as error:  # whatever the user's function raises is told with its line
            raise RunFailed(explained(self.sampler_file, error)) from None
        given = {id(sample) for episode in episodes for sample in episode}
        if not isinstance(chosen, list) or not chosen or not {id(sample) for sample in chosen} <= given:
            raise RunFailed(f"{self.sampler_file}: it must return a list of samples that it was given, at least one")
        return chosen

    def take_samples(self, number, messages):
        """They become micro-batches when a trainer asks."""
        self.fresh += (new := split(messages))
        self.samples += new

    def next(self):
        """The next micro-batch; None where there is none."""
        end = self.given + self.plan.options.train_micro_batch
        self._fill(end)
        order = self.order or range(len(self.samples))
        batch = [self.samples[index] for index in order[self.given : end]]
        self.given += len(batch)
        return padded(batch) if batch else None

    def has_next(self):
        return self.given < len(self.samples) or self._more()

    def close_episode(self):
        """The word that answers the driver for each message, and what was done to the queue."""
        return self.words, dict(self.operations)

    def verify(self, first, last):
        if DATASET in self.tasks:
            self.digests_of_samples = Counter(map(digest, self.samples))
            self.kept.append(self.fresh)
            self.samples = []
        return super().verify(first, last)

    def sample_digests(self):
        return self.digests_of_samples


class ChatLearnModel(Sized, StreamDataset, HostModel):
    """A model cuts a message that has more rows than it takes at a time, and every rank but the last is silent."""

    def forward_step(self, task, *inputs):
        output, most = super().forward_step(task, *inputs), self.plan.options.counts("generation_batch")
        rows = most.get(self.place.actor)
        if rows and len(next(iter(output.values()))) > rows:
            # The models' own work on the pieces is left out; what they give is put together again.
            for message in inputs:
                cut(message, rows)
            output = join(cut(output, rows))
        return output if self.place.answers else None


class Trainer:
    """One rank of a trainer: it fetches the micro-batches of a step, and keeps them until they are checked."""

    def __init__(self, threads, seconds=0.0):
        torch.set_num_threads(threads)
        self.seconds, self.batches, self.steps = seconds, [], []

    def train_step(self, references):
        start = time.perf_counter()
        self.batches += [batch for batch in ray.get(references) if batch is not None]
        time.sleep(self.seconds)  # --model-seconds trainer=...
        self.steps.append((0, "train", start, time.perf_counter()))

    def spans(self):
        """When it had a step under way, waiting for its micro-batches included."""
        return self.steps

    def sample_digests(self):
        """Of every sample that it got since it was last asked."""
        found = Counter(digest(sample) for batch in self.batches for sample in split([batch]))
        self.batches = []
        return found


def digest(sample):
    """Of every field of a sample, without the zeros that padding adds."""
    state = xxhash.xxh3_64()
    for name in sorted(sample):
        value = sample[name]
        python = isinstance(value, (str, list))
        raw = pattern.raw(value if python else value.numpy()).tobytes().rstrip(b"\0")
        state.update(f"{name} {type(value).__name__ if python else value.dtype} {len(raw)} ".encode() + raw)
    return state.intdigest()
