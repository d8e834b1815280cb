# SPDX-License-Identifier: Apache-2.0
"""Copy many small tensors into one buffer: a message of one tensor costs less than a message of hundreds.

    python3 -m examples.packed_message

In the tables of this suite: `store refs --message fields` before, `store refs --message packed` after.
"""

import ray
import torch

from examples.actors import print_times, start


class Rollout:
    def __init__(self):
        self.answers = [torch.full((length,), length) for length in range(200, 712)]

    def generate(self):
        return self.answers

    def generate_packed(self):
        return torch.cat(self.answers), list(map(len, self.answers))


class Trainer:
    def train(self, answers):
        return sum(int(answer[-1]) for answer in answers)

    def train_packed(self, message):
        buffer, lengths = message
        return self.train(buffer.split(lengths))  # views of the buffer


if __name__ == "__main__":
    rollout, trainer = start(Rollout, Trainer)
    print_times(
        lambda: ray.get(trainer.train.remote(rollout.generate.remote())),
        lambda: ray.get(trainer.train_packed.remote(rollout.generate_packed.remote())),
    )
